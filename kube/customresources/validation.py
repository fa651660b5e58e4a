"""Whether a custom object is what its structural schema says (apiextensions/v1), with the real server's words.

Pruning, defaulting (``fieldvalidation``, ``structural``) and ``without_nulls`` come before, in this order; CEL rules
come after.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import orjson

from kube.kinds.formats import is_of_format
from kube.kinds.patterns import matches
from kube.kinds.schemas import MISSING, Schema
from kube.objects.fieldvalidation import prune
from kube.objects.patches import same
from kube.requests.fielderrors import duplicate, invalid, not_supported, required, too_long, too_many, type_invalid
from kube.requests.names import dns1035_label
from kube.requests.status import Cause

MAX_CAUSES: Final = 100
"""A list of a million wrong items is told apart well enough by its first hundred."""

_BITS: Final = {"int32": 31, "int64": 63}
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
_OWN: Final = frozenset({"apiVersion", "kind", "metadata"})
_REPETITION: Final = "FieldValueDuplicate"


def object_causes(schema: Schema, document: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
    """Everything that is wrong with an object, in order; at most ``MAX_CAUSES``. Metadata is checked elsewhere.

    With ``old`` it is a change of that one: a value that is as it was is not judged again (Kubernetes' ratcheting).
    """
    found = _causes(schema, document, MISSING if old is None else old)
    if old is not None:
        found = _without_old_repetitions(schema, found, old)
    return list(islice(found, MAX_CAUSES))


def _causes(schema: Schema, document: Mapping[str, Any], old: Any) -> Iterator[Cause]:
    if not _is_as_before(document, old):
        yield from _object(schema, document, "", old)
        yield from _composed(schema, document, "")


def _without_old_repetitions(schema: Schema, causes: Iterator[Cause], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Lists may repeat items, as with the real server, in an object in which one of them did before."""
    repeats: bool | None = None
    for cause in causes:
        if cause.reason == _REPETITION:
            if repeats is None:
                repeats = any(known.reason == _REPETITION for known in _causes(schema, old, MISSING))
            if repeats:
                continue
        yield cause


def _is_as_before(value: Any, old: Any) -> bool:
    return old is not MISSING and same(value, old)


def _below(old: Any, name: str) -> Any:
    return old.get(name, MISSING) if isinstance(old, dict) else MISSING


def default_causes(schema: Schema, path: str) -> list[Cause]:
    """What is wrong with the defaults in a structural schema: each must be what its own place allows."""
    causes: list[Cause] = []
    if schema.default is not MISSING and schema.default is not None:
        at = f"{path}.default"
        if not same(prune(schema.default, schema).value, schema.default):
            causes.append(invalid(at, _in_key_order(schema.default), "must not have unknown fields"))
        # The real server, too, leaves repeated items of a default to the objects that it ends up in.
        found = [cause for cause in _value(schema, schema.default, "") if cause.reason != _REPETITION]
        places = ("" if cause.field == "<nil>" else cause.field.strip(".") for cause in found)
        causes += [
            Cause(cause.reason, cause.message, f"{at}.{place}" if place else at)
            for cause, place in zip(found, places, strict=True)
        ]
    for name, child in schema.properties.items():
        if not (schema.embedded_resource and name in _OWN):
            causes.extend(default_causes(child, f"{path}.properties[{name}]"))
    if schema.additional is not None:
        causes.extend(default_causes(schema.additional, f"{path}.additionalProperties"))
    if schema.items is not None:
        causes.extend(default_causes(schema.items, f"{path}.items"))
    return causes[:MAX_CAUSES]


def without_nulls(schema: Schema, value: Any) -> Any:
    """The value without the nulls of fields that are not nullable, as Kubernetes drops them before it validates."""
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        for name, member in value.items():
            child = schema.properties.get(name) or schema.additional
            if child is None:
                kept[name] = member
            elif member is not None or child.nullable:
                kept[name] = without_nulls(child, member)
        return kept
    if isinstance(value, list) and schema.items is not None:
        return [without_nulls(schema.items, item) for item in value]
    return value


def _value(schema: Schema, value: Any, path: str, old: Any = MISSING) -> Iterator[Cause]:
    if _is_as_before(value, old):
        return
    if value is None:
        if not schema.nullable and schema.type:
            yield _wrong_type(schema, value, path)
        return
    if not _fits(schema, value):
        yield _wrong_type(schema, value, path)
    if schema.enum and not any(same(value, choice) for choice in schema.enum):
        yield not_supported(path, _in_key_order(value), map(_in_key_order, schema.enum))
    if isinstance(value, bool):
        pass
    elif isinstance(value, str):
        yield from _text(schema, value, path)
    elif isinstance(value, int | float):
        yield from _number(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path, old)
    elif isinstance(value, dict):
        if schema.embedded_resource:
            yield from _embedded(value, path)
        yield from _object(schema, value, path, old)
    yield from _composed(schema, value, path)


def _fits(schema: Schema, value: Any) -> bool:
    if schema.int_or_string:
        return (isinstance(value, int) and not isinstance(value, bool)) or isinstance(value, str)
    kind = _kind(value)
    if schema.type == "number":
        return kind in ("integer", "number")
    if schema.type == "integer":
        return kind in ("integer", "number") and _is_held(value)
    return schema.type in ("", kind)


def _is_held(number: float) -> bool:
    """Whether an integer of 64 bits holds a number."""
    return (isinstance(number, int) or number.is_integer()) and -(1 << 63) <= number < 1 << 63


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _wrong_type(schema: Schema, value: Any, path: str) -> Cause:
    wanted = "integer,string" if schema.int_or_string else schema.type
    kind = _kind(value)
    if wanted == "integer" and kind in ("integer", "number"):
        # The real server reads it as a float, and names the type where there is no format for it.
        wanted, kind = (schema.format, "float64") if schema.format in _BITS else (wanted, "number")
    return type_invalid(path, kind, f'{path} in body must be of type {wanted}: "{kind}"')


def _text(schema: Schema, value: str, path: str) -> Iterator[Cause]:
    rules = schema.rules
    if "maxLength" in rules and len(value) > rules["maxLength"]:
        yield too_long(path, rules["maxLength"])
    elif "minLength" in rules and len(value) < rules["minLength"]:
        yield invalid(path, value, f"{path} in body should be at least {rules['minLength']} chars long")
    elif "pattern" in rules and not matches(rules["pattern"], value):
        yield invalid(path, value, f"{path} in body should match '{rules['pattern']}'")
    if schema.type == "string" and schema.format and not is_of_format(value, schema.format):
        yield type_invalid(path, value, f"{path} in body must be of type {schema.format}: {_quoted(value)}")


def _number(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    rules = schema.rules
    bits = _BITS.get(schema.format)
    if schema.type == "integer" and bits is not None and not (_is_held(value) and -(1 << bits) <= value < 1 << bits):
        yield _unplaced(f"Checked value must be of type integer with format {schema.format} in {path}")
    elif schema.type == "integer" and not _is_held(value):
        yield _unplaced(f"Checked value must be of type integer (default format) in {path}")
    elif schema.type == "number" and schema.format == "float" and abs(value) > _FLOAT_MAX:
        yield _unplaced(f"Checked value must be of type number with format float in {path}")
    low, high, step = rules.get("minimum"), rules.get("maximum"), rules.get("multipleOf")
    if step and not _is_multiple(value, step):
        yield invalid(path, value, f"{path} in body should be a multiple of {_plain(step)}")
    if low is not None and (value < low or (rules.get("exclusiveMinimum") and value == low)):
        words = "greater than" if rules.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {words} {_plain(low)}")
    if high is not None and (value > high or (rules.get("exclusiveMaximum") and value == high)):
        words = "less than" if rules.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {words} {_plain(high)}")


def _is_multiple(value: float, step: float) -> bool:
    times = value / step
    return math.isfinite(times) and abs(times - round(times)) <= 1e-9


def _list(schema: Schema, items: list[Any], path: str, old: Any) -> Iterator[Cause]:
    rules = schema.rules
    if "maxItems" in rules and len(items) > rules["maxItems"]:
        yield too_many(path, len(items), rules["maxItems"])
    if "minItems" in rules and len(items) < rules["minItems"]:
        yield invalid(path, len(items), f"{path} in body should have at least {rules['minItems']} items")
    if rules.get("uniqueItems") and len({_identity(item) for item in items}) < len(items):
        yield invalid(path, _in_key_order(items), f"{path} in body shouldn't contain duplicates")
    if schema.items is not None:
        for index, at in enumerate(schema.places_before(items, old)):
            yield from _value(schema.items, items[index], f"{path}[{index}]", MISSING if at is None else old[at])
    if schema.list_type in ("set", "map"):
        yield from _repeated(schema, items, path)


def _in_key_order(value: Any) -> Any:
    """A value as Go writes untyped maps in messages."""
    if isinstance(value, dict):
        return {key: _in_key_order(value[key]) for key in sorted(value)}
    return [_in_key_order(item) for item in value] if isinstance(value, list) else value


def _repeated(schema: Schema, items: list[Any], path: str) -> Iterator[Cause]:
    counts: dict[bytes, int] = {}
    for index, item in enumerate(items):
        shown = item
        if schema.list_type == "map":
            if not isinstance(item, dict):
                yield invalid(
                    f"{path}[{index}]", _in_key_order(item), "must be an object for an array of list-type map"
                )
                continue
            shown = {key: item[key] for key in sorted(schema.list_map_keys) if key in item}
        identity = _identity(shown)
        counts[identity] = counts.get(identity, 0) + 1
        if counts[identity] == 2:
            yield duplicate(f"{path}[{index}]", shown)


def _object(schema: Schema, value: Mapping[str, Any], path: str, old: Any) -> Iterator[Cause]:
    rules = schema.rules
    if "maxProperties" in rules and len(value) > rules["maxProperties"]:
        yield too_many(path, len(value), rules["maxProperties"])
    if "minProperties" in rules and len(value) < rules["minProperties"]:
        yield invalid(path, len(value), f"{path} in body should have at least {rules['minProperties']} properties")
    if rules.get("additionalProperties") is False:
        for name in sorted(value.keys() - schema.properties.keys()):
            yield invalid(path, name, f"{_join(path, name)} in body is a forbidden property")
    for name in schema.required:
        if name not in value:
            yield required(_join(path, name))
    for name, member in value.items():
        if schema.embedded_resource and name in _OWN:
            if name == "metadata" and isinstance(member, dict):
                yield from _names(schema.properties[name], member, _join(path, name), _below(old, name))
            continue
        child = schema.properties.get(name) or schema.additional
        if child is not None:
            yield from _value(child, member, _join(path, name), _below(old, name))


def _names(schema: Schema, metadata: Mapping[str, Any], path: str, old: Any) -> Iterator[Cause]:
    """What a schema asks of an object's name, besides what every name must be."""
    for name in ("name", "generateName"):
        child = schema.properties.get(name)
        if child is not None and (child.rules or child.enum) and name in metadata:
            yield from _value(child, metadata[name], f"{path}.{name}", _below(old, name))


def _embedded(value: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield required(f"{path}.{name}")
        elif not value[name]:
            yield invalid(f"{path}.{name}", value[name], "must not be empty")
        elif not isinstance(value[name], str):
            yield type_invalid(f"{path}.{name}", value[name], "must be a string")
        elif name == "apiVersion" and value[name].count("/") > 1:
            yield invalid(f"{path}.{name}", value[name], f"unexpected GroupVersion string: {value[name]}")
        elif name == "kind" and (reasons := dns1035_label(value[name].lower())):
            words = f"may have mixed case, but should otherwise match: {','.join(reasons)}"
            yield invalid(f"{path}.{name}", value[name], words)


def _composed(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    rules = schema.rules
    where = f'"{path}"'
    if rules.get("anyOf"):
        found = [list(_value(_part(part), value, path)) for part in rules["anyOf"]]
        if all(found):
            yield _unplaced(f"{where} must validate at least one schema (anyOf)")
            yield from min(found, key=len)
    if rules.get("oneOf"):
        found = [list(_value(_part(part), value, path)) for part in rules["oneOf"]]
        valid = sum(not causes for causes in found)
        if valid == 0:
            yield _unplaced(f"{where} must validate one and only one schema (oneOf). Found none valid")
            yield from min(found, key=len)
        elif valid > 1:
            words = f"Found {valid} valid alternatives"
            yield _unplaced(f"{where} must validate one and only one schema (oneOf). {words}")
    if rules.get("allOf"):
        found = [list(_value(_part(part), value, path)) for part in rules["allOf"]]
        for causes in found:
            yield from causes
        if any(found):
            none = ". None validated" if all(found) else ""
            yield _unplaced(f"{where} must validate all the schemas (allOf){none}")
    if rules.get("not") is not None and _accepts(rules["not"], value, path):
        yield _unplaced(f"{where} must not validate the schema (not)")


def _unplaced(message: str) -> Cause:
    """A cause as kube-apiserver gives it when its validator names no field."""
    return invalid("<nil>", "", message)


def _accepts(source: Mapping[str, Any], value: Any, path: str) -> bool:
    return next(_value(_part(source), value, path), None) is None


def _part(source: Mapping[str, Any]) -> Schema:
    """A value validation of ``allOf``, ``anyOf``, ``oneOf`` or ``not``: it says nothing about structure."""
    items, values = source.get("items"), source.get("additionalProperties")
    return Schema(
        type=source.get("type", ""),
        format="int-or-string" if source.get("x-kubernetes-int-or-string") else source.get("format", ""),
        properties={name: _part(child) for name, child in (source.get("properties") or {}).items()},
        items=_part(items) if isinstance(items, dict) else None,
        additional=_part(values) if isinstance(values, dict) else None,
        required=tuple(source.get("required") or ()),
        nullable=bool(source.get("nullable")),
        enum=tuple(source.get("enum") or ()),
        rules=source,
    )


def _identity(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # An integer of more than 64 bits.
        return json.dumps(value, sort_keys=True).encode()


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _plain(number: float) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
