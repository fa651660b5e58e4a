"""What a decoded body says against its schema: unknown fields, wrong types, what is kept of it (TS15).

``decode_fields`` does for built-in kinds what Go's strict decoder does in kube-apiserver: it names unknown fields,
refuses wrong types, drops what is unknown or ``null``. ``prune`` does for custom resources what structural
pruning does; their types are validation's subject, not decoding's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kube.kinds.schemas import QUANTITY, Schema
from kube.objects.protobuf import omitted_when_zero
from kube.quota.quantities import InvalidQuantity, parse_quantity
from kube.requests.decoding import PATH_MAX
from kube.requests.status import BadRequest

MAX_PROBLEMS: Final = 100
"""How many unknown fields are named at most, as in kube-apiserver."""

MICRO_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    re.ASCII,
)
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]|=[^=]", re.ASCII)
_WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "ClusterRole": ("rules",),
    "EndpointSlice": ("ports",),
    "HPAScalingRules": ("policies",),
    "ObjectMeta": ("managedFields",),
    "Role": ("rules",),
}
"""Optional lists that show even when they are empty."""

_SCALARS: Final = frozenset({"string", "integer", "boolean"})
_BOUNDS: Final = {"int32": 2**31, "int64": 2**63}

_KUBERNETES: Final = "io.k8s."
"""How the names of Kubernetes' own definitions begin."""

_Path = tuple["_Path", str] | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body's value as it is kept, and the fields that were dropped because the kind has none of that name."""

    value: Any
    unknown: tuple[str, ...]


class DecodeError(BadRequest):
    """The 400 for a body that is not what its kind says."""

    def __init__(self, kind: str, version: str, problem: str) -> None:
        super().__init__(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')
        self.problem = problem


def decode_fields(
    value: dict[str, Any], schema: Schema, *, kind: str, version: str, converted: bool = False
) -> Decoded:
    """A built-in object as its kind's decoder reads it. ``version`` is the ``apiVersion``'s version.

    Unknown and ``null`` fields are dropped. Raises ``DecodeError`` in kube-apiserver's words when a value has another type
    than its field; with ``converted`` in the words for what a strategic merge made, which Go does not decode but
    convert. The value is not changed in place; unchanged parts are shared.
    """
    unknown: list[str] = []
    try:
        kept = _decode(value, schema, None, schema, unknown)
    except _Mismatch as error:
        raise DecodeError(kind, version, error.conversion if converted and error.conversion else str(error)) from None
    return Decoded(kept, tuple(unknown))


def with_zeros(given: Any, kept: Any, schema: Schema) -> Any:
    """What ``decode_fields`` kept of an applied configuration, with the zeros in it: whoever applies one owns it.

    ``kept`` itself when there are none.
    """
    if type(given) is dict and type(kept) is dict:
        result = kept
        for name, value in given.items():
            field = schema.properties.get(name, schema.additional)
            if field is None:
                continue
            if name in kept:
                below = with_zeros(value, kept[name], field)
                if below is not kept[name]:
                    result = {**result, name: below}
            elif value in ("", 0) and type(value) in (str, int, bool) and field.type in _SCALARS:
                result = {**result, name: value}
        return result
    if type(given) is list and type(kept) is list and schema.items is not None and len(given) == len(kept):
        items = [with_zeros(value, other, schema.items) for value, other in zip(given, kept, strict=True)]
        return items if any(new is not old for new, old in zip(items, kept, strict=True)) else kept
    return kept


def prune(value: Any, schema: Schema) -> Decoded:
    """A custom object without the fields that its structural schema does not know.

    Those of its metadata are named first, those of the metadata of embedded objects last.
    """
    found = _Pruned([], [], [])
    kept = _prune(value, schema, None, found, found.others)
    return Decoded(kept, (*sorted(found.metadata), *sorted(found.others), *sorted(found.embedded)))


class _Pruned(NamedTuple):
    """The paths of unknown fields, by where they stand."""

    metadata: list[str]
    others: list[str]
    embedded: list[str]


def problems(unknown: Sequence[str], repeated: Sequence[str]) -> list[str]:
    """What ``fieldValidation`` reports, one text each: error text for ``Strict``, warnings for ``Warn``.

    ``repeated`` are texts already. What is unknown is not looked into: that it is there twice is not said.
    """
    ignored = tuple(f'duplicate field "{path}{end}' for path in unknown for end in '".[')
    texts = [text for text in repeated if not text.startswith(ignored)] if ignored else list(repeated)
    texts += [f'unknown field "{path}"' for path in unknown]
    return texts[:MAX_PROBLEMS]


def strict_decoding_error(found: Sequence[str]) -> str:
    """``strict decoding error: unknown field "spec.foo", …`` from the texts of ``problems``."""
    return f"strict decoding error: {', '.join(found)}"


class _Mismatch(Exception):
    """A value that its field cannot hold, in words for decoding and for conversion."""

    def __init__(self, text: str, conversion: str = "") -> None:
        super().__init__(text)
        self.conversion = conversion


class _Key(str):
    """A key of a map in a path."""

    __slots__ = ()


def _text(path: _Path) -> str:
    """The path as problems name it; of a long one the beginning, as of those that are there twice."""
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part[: PATH_MAX + 1])
    return "".join(reversed(parts)).removeprefix(".")[:PATH_MAX]


def _go_path(path: _Path) -> str:
    """The path as Go's decoder names it: without the indexes of lists and the keys of maps."""
    fields: list[str] = []
    while path is not None:
        path, part = path
        fields += [] if isinstance(part, _Key) or part.startswith("[") else [part]
    return "".join(reversed(fields)).removeprefix(".")


def _decode(value: Any, schema: Schema, path: _Path, owner: Schema, unknown: list[str]) -> Any:
    kind = type(value)
    if schema.type == "string":
        if kind is str:
            return value if not schema.format else _formatted(value, schema)
        if schema.format == "int-or-string" and kind is int and -_BOUNDS["int32"] <= value < _BOUNDS["int32"]:
            return value
        if schema.format == "quantity" and (kind is int or kind is float):
            return _quantity(str(value))
    elif schema.type == "object":
        if kind is dict:
            return _decode_object(value, schema, path, schema if schema.definition else owner, unknown)
    elif schema.type == "array":
        if kind is list:
            return _decode_list(value, schema, path, owner, unknown)
    elif schema.type == "integer":
        if kind is int and -_BOUNDS.get(schema.format, 2**63) <= value < _BOUNDS.get(schema.format, 2**63):
            return value
        if kind is float and value.is_integer() and abs(value) < _BOUNDS.get(schema.format, 2**63):
            return int(value)
    elif schema.type == "boolean":
        if kind is bool:
            return value
    elif schema.type == "number":
        if kind is int or kind is float:
            return value
    else:
        return value
    raise _Mismatch(_mismatch(value, schema, path, owner), _conversion(value, schema))


def _decode_object(
    value: dict[str, Any], schema: Schema, path: _Path, owner: Schema, unknown: list[str]
) -> dict[str, Any]:
    kept: dict[str, Any] | None = None
    properties, additional = schema.properties, schema.additional
    if not properties and additional is None:
        return value
    for name, child in value.items():
        field = properties.get(name, additional)
        if type(child) is str and child and field is not None and field.type == "string" and not field.format:
            continue
        here: _Path = (path, "." + name)
        if field is None:
            if len(unknown) < MAX_PROBLEMS:
                unknown.append(_text(here))
        elif child is not None:
            if field is additional and field.format == "quantity" and type(child) in (str, int, float):
                below: Any = _quantity(str(child), in_list=True)
            else:
                place = here if additional is None else (path, _Key("." + name))
                if field.type == "object" and type(child) is dict:
                    # As ``_decode`` would, which asks for other types first: most of what is nested is this.
                    below = _decode_object(child, field, place, field if field.definition else owner, unknown)
                else:
                    below = _decode(child, field, place, owner, unknown)
            if not below and additional is None and _left_out(below, name, field, schema, owner):
                kept = dict(value) if kept is None else kept
                del kept[name]
                continue
            if below is child:
                continue
            kept = dict(value) if kept is None else kept
            kept[name] = below
            continue
        elif additional is not None:
            kept = dict(value) if kept is None else kept
            kept[name] = _zero(additional)
            continue
        kept = dict(value) if kept is None else kept
        del kept[name]
    return value if kept is None else kept


def _left_out(value: Any, name: str, field: Schema, schema: Schema, owner: Schema) -> bool:
    """Whether an empty value is as good as none: Go writes most optional fields only with something in them.

    An empty list of managed fields means something: they are cleared.
    """
    if name in schema.required or name in _WRITTEN.get((schema.definition or owner.definition).rpartition(".")[2], ()):
        return False
    definition = schema.definition or owner.definition
    if not definition.startswith(_KUBERNETES):
        return False
    if type(value) is list or (type(value) is dict and field.additional is not None):
        return True
    return type(value) is not dict and name in omitted_when_zero(definition)


def _decode_list(value: list[Any], schema: Schema, path: _Path, owner: Schema, unknown: list[str]) -> list[Any]:
    items = schema.items
    if items is None:
        return value
    kept: list[Any] | None = None
    plain = items.type == "string" and not items.format
    for index, child in enumerate(value):
        if plain and type(child) is str:
            continue
        here: _Path = (path, f"[{index}]") if items.type != "string" else path
        below = _zero(items) if child is None else _decode(child, items, here, owner, unknown)
        if below is not child:
            kept = list(value) if kept is None else kept
            kept[index] = below
    return value if kept is None else kept


def _zero(schema: Schema) -> Any:
    """What ``null`` means in a list or a map: the type's zero value."""
    if schema.format == "quantity":
        return "0"
    if schema.format == "int-or-string":
        return 0
    return {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}.get(schema.type)


def _formatted(value: str, schema: Schema) -> str:
    if schema.format == "quantity":
        return _quantity(value)
    if schema.format == "byte":
        _check_base64(value)
    elif schema.format == "date-time":
        layout = "2006-01-02T15:04:05" + (".000000" if schema.definition == MICRO_TIME else "") + "Z07:00"
        if not _DATE_TIME.fullmatch(value):
            shown = value[:64]
            raise _Mismatch(f'parsing time "{shown}" as "{layout}": cannot parse "{shown}" as "2006"')
    return value


def _quantity(text: str, *, in_list: bool = False) -> str:
    """A quantity in the form in which Kubernetes writes it: ``0.5`` is ``500m``; lists of resources have no finer ones."""
    try:
        found = parse_quantity(text)
        shown = str(found.rounded() if in_list else found)
    except InvalidQuantity as error:
        raise _Mismatch(str(error)) from None
    # What is as it should be stays the same object, and so does all around it.
    return text if shown == text else shown


def _check_base64(value: str) -> None:
    compact = value.replace("\n", "").replace("\r", "")
    wrong = _NOT_BASE64.search(compact)
    if wrong is not None:
        raise _Mismatch(f"illegal base64 data at input byte {wrong.start()}")
    body = compact.rstrip("=")
    if len(compact) % 4 or len(compact) - len(body) > 2:
        raise _Mismatch(f"illegal base64 data at input byte {len(body) // 4 * 4}")


def _mismatch(value: Any, schema: Schema, path: _Path, owner: Schema) -> str:
    if schema.definition == QUANTITY:
        return "unmarshalerDecoder: quantities must be a string or a number"
    struct = (owner.definition or schema.definition).rpartition(".")[2]
    where = f"{struct}.{_go_path(path)}" if path is not None else struct
    return f"json: cannot unmarshal {_json_word(value, schema)} into Go struct field {where} of type {_go_type(schema)}"


def _conversion(value: Any, schema: Schema) -> str:
    """What Go's converter of generic values says; empty for types that read JSON themselves."""
    if schema.definition == QUANTITY or schema.format in ("int-or-string", "date-time"):
        return ""
    given = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}[type(value)]
    if schema.type == "object":
        return f"cannot restore map from {given}" if schema.additional else f"cannot restore struct from: {given}"
    if schema.type == "array":
        return f"cannot restore slice from {given}"
    wanted = _go_type(schema)
    between_numbers = given in ("int64", "float64") and schema.type in ("integer", "number")
    if between_numbers or (given, wanted) == ("int64", "string"):
        return f"cannot convert {given} to {wanted}"
    return f"unrecognized type: {wanted}"


def _json_word(value: Any, schema: Schema) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return f"number {value}" if schema.type == "integer" else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _go_type(schema: Schema) -> str:
    if schema.type == "array" and schema.items is not None:
        return f"[]{_go_type(schema.items)}"
    if schema.type == "object" and schema.additional is not None:
        return f"map[string]{_go_type(schema.additional)}"
    if schema.definition:
        parts = schema.definition.split(".")
        return f"{parts[-2]}.{parts[-1]}"
    return {
        "integer": schema.format or "int64",
        "boolean": "bool",
        "number": "float64",
        "object": "map[string]interface {}",
    }.get(schema.type, schema.type)


def _prune(value: Any, schema: Schema, path: _Path, found: _Pruned, unknown: list[str]) -> Any:
    if type(value) is dict:
        dropped: set[str] = set()
        below: dict[str, Any] = {}
        for name, child in value.items():
            field = schema.properties.get(name, schema.additional)
            here: _Path = (path, "." + name)
            if field is None:
                if schema.closed:
                    if len(unknown) < MAX_PROBLEMS:
                        unknown.append(_text(here))
                    dropped.add(name)
                continue
            listed = unknown
            if name == "metadata" and schema.embedded_resource:
                listed = found.metadata if path is None else found.embedded
            pruned = _prune(child, field, here, found, listed)
            if pruned is not child:
                below[name] = pruned
        if not below and not dropped:
            return value
        return {name: below.get(name, child) for name, child in value.items() if name not in dropped}
    items = schema.items or (schema if schema.closed else None)
    if type(value) is list and items is not None:
        kept = [_prune(child, items, (path, f"[{index}]"), found, unknown) for index, child in enumerate(value)]
        return kept if any(new is not old for new, old in zip(kept, value, strict=True)) else value
    return value
