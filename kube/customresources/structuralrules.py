"""Whether a CRD's ``openAPIV3Schema`` is structural: typed throughout, so that pruning and merging are defined.

See https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kube.kinds.patterns import is_pattern
from kube.requests.fielderrors import forbidden, invalid, not_supported, required
from kube.requests.status import Cause

MAX_DEPTH: Final = 64
"""Nesting of a schema; the objects it describes nest no deeper in typed parts."""

MAX_NODES: Final = 20_000
"""Schemas within one version, so that a CRD cannot cost more memory than it deserves."""

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_FORBIDDEN: Final = (
    "$ref",
    "definitions",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "patternProperties",
    "xml",
)
_STRUCTURAL_ONLY: Final = (
    "default",
    "nullable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "description",
    "title",
    "x-kubernetes-validations",
)
"""What a part of ``allOf`` and its like must not say: it validates values and gives them no structure."""

_UNDEFINED: Final = frozenset(("default", "x-kubernetes-list-type", "x-kubernetes-map-type"))
_FALSE: Final = frozenset(
    (
        "nullable",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    )
)

_LIMITS: Final = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_NUMBERS: Final = ("maximum", "minimum", "multipleOf")
_LISTS: Final = (
    "required",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_MAPS: Final = ("properties", "not")
_ROOT: Final = "at the root"
_ITEM: Final = "for specified array items"
_FIELD: Final = "for specified object fields"

_ROOT_METADATA: Final = frozenset({"name", "generateName"})


def schema_causes(schema: Any, path: str) -> list[Cause]:
    """Everything that keeps a schema from being structural, in order."""
    checker = _Checker()
    causes = list(checker.node(schema, path, MAX_DEPTH, _ROOT))
    return causes[:100]


class _Checker:
    def __init__(self) -> None:
        self._left = MAX_NODES

    def node(self, schema: Any, path: str, depth: int, place: str = _FIELD) -> Iterator[Cause]:
        """A schema that gives structure."""
        root = place is _ROOT
        malformed = self._malformed(schema, path, depth)
        if malformed is not None:
            yield malformed
            return
        yield from self._typed(schema, path, place)
        yield from self._values(schema, path)
        yield from self._list_type(schema, path)
        yield from self._map_type(schema, path)
        properties, values, items = schema.get("properties"), schema.get("additionalProperties"), schema.get("items")
        if values is not None and root:
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if schema.get("nullable") is True and root:
            yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")
        if values is not None and schema.get("x-kubernetes-embedded-resource") is True:
            words = "must not be used if x-kubernetes-embedded-resource is set"
            yield forbidden(f"{path}.additionalProperties", words)
        if properties and values is not None and values is not True:
            yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        for name, child in (properties or {}).items():
            if root and name == "metadata":
                yield from self._metadata(child, f"{path}.properties[metadata]", depth)
            elif not (root and name in ("apiVersion", "kind")):
                yield from self.node(child, f"{path}.properties[{name}]", depth - 1)
        if isinstance(values, Mapping):
            yield from self.node(values, f"{path}.additionalProperties", depth - 1)
        if isinstance(items, list):
            yield forbidden(f"{path}.items", "items must be a schema object and not an array")
        elif items is not None:
            yield from self.node(items, f"{path}.items", depth - 1, _ITEM)
        yield from self._junctors(schema, path, depth)

    def _malformed(self, schema: Any, path: str, depth: int) -> Cause | None:
        self._left -= 1
        if not isinstance(schema, Mapping):
            return invalid(path, schema, "must be a schema object")
        if depth == 0 or self._left < 0:
            return forbidden(path, "the schema is too large or nests too deeply")
        checks: list[tuple[tuple[str, ...], type | tuple[type, ...], str]] = [
            (_LISTS, list, "must be a list"),
            (_MAPS, Mapping, "must be an object"),
            (_LIMITS, int, "must be an integer"),
            (_NUMBERS, (int, float), "must be a number"),
            (("type", "format", "pattern", "x-kubernetes-list-type", "x-kubernetes-map-type"), str, "must be a string"),
        ]
        for names, kind, words in checks:
            for name in names:
                value = schema.get(name)
                if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                    return invalid(f"{path}.{name}", value, words)
        for name in ("required", "x-kubernetes-list-map-keys"):
            for index, value in enumerate(schema.get(name) or ()):
                if not isinstance(value, str):
                    return invalid(f"{path}.{name}[{index}]", value, "must be a string")
        return None

    def _typed(self, schema: Mapping[str, Any], path: str, place: str) -> Iterator[Cause]:
        kind = schema.get("type", "")
        free = schema.get("x-kubernetes-preserve-unknown-fields") is True
        either = schema.get("x-kubernetes-int-or-string") is True
        if kind and place is _ROOT and kind != "object":
            yield invalid(f"{path}.type", kind, f"must be object {_ROOT}")
        elif kind and kind not in _TYPES:
            yield not_supported(f"{path}.type", kind, _TYPES)
        elif not kind and (place is _ROOT or not (free or either)):
            yield required(f"{path}.type", f"must not be empty {place}")
        if either and free:
            words = "must be false if x-kubernetes-int-or-string is true"
            yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", True, words)
        if schema.get("x-kubernetes-preserve-unknown-fields") is False:
            yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
        if kind == "array" and schema.get("items") is None:
            yield required(f"{path}.items", "must be specified")
        if schema.get("x-kubernetes-embedded-resource") is True:
            if kind != "object":
                yield _other_type(schema, path, "must be object if x-kubernetes-embedded-resource is true")
            if not free and not schema.get("properties"):
                yield required(
                    f"{path}.properties",
                    "must not be empty if x-kubernetes-embedded-resource is true without "
                    "x-kubernetes-preserve-unknown-fields",
                )

    def _values(self, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
        for name in _FORBIDDEN:
            if schema.get(name):
                yield forbidden(f"{path}.{name}", f"{name} is not supported")
        if schema.get("uniqueItems") is True:
            words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            yield forbidden(f"{path}.uniqueItems", words)
        pattern = schema.get("pattern")
        if pattern is not None and not is_pattern(pattern):
            yield invalid(f"{path}.pattern", pattern, "must be a valid regular expression, but isn't")

    def _map_type(self, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
        map_type = schema.get("x-kubernetes-map-type")
        if map_type is not None:
            if schema.get("type") != "object":
                yield _other_type(schema, path, "must be object if x-kubernetes-map-type is specified")
            if map_type not in ("granular", "atomic"):
                yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))

    def _list_type(self, schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
        kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
        if kind is None:
            if keys:
                words = "must be map if x-kubernetes-list-map-keys is non-empty"
                yield required(f"{path}.x-kubernetes-list-type", words)
            return
        if schema.get("type") != "array":
            yield _other_type(schema, path, "must be array if x-kubernetes-list-type is specified")
            return
        if kind not in ("atomic", "set", "map"):
            yield not_supported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
            return
        if kind != "map":
            if keys:
                words = "must be map if x-kubernetes-list-map-keys is non-empty"
                yield invalid(f"{path}.x-kubernetes-list-type", kind, words)
            field = _uncomparable(schema.get("items")) if kind == "set" else ""
            if field:
                words = "must be atomic as item of a list with x-kubernetes-list-type=set"
                yield invalid(f"{path}.items.{field}", schema["items"].get(field), words)
            return
        items = schema.get("items")
        properties = items.get("properties") if isinstance(items, Mapping) else None
        properties = properties if isinstance(properties, Mapping) else {}
        if not keys:
            yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
        if isinstance(items, Mapping) and items.get("type") != "object":
            words = "must be object if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.type", items.get("type", ""), words)
        wanted = (items.get("required") or []) if isinstance(items, Mapping) else []
        if any(key not in properties for key in keys):
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        for key in dict.fromkeys(keys):
            child, at = properties.get(key), f"{path}.items.properties[{key}]"
            if not isinstance(child, Mapping):
                continue
            if child.get("type") in ("array", "object"):
                words = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield invalid(f"{at}.type", child["type"], words)
            elif "default" not in child and key not in wanted:
                words = "this property is in x-kubernetes-list-map-keys"
                yield required(f"{at}.default", f"{words}, so it must have a default or be a required property")
        if len(set(keys)) < len(keys):
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")

    def _metadata(self, schema: Any, path: str, depth: int) -> Iterator[Cause]:
        if not isinstance(schema, Mapping):
            yield invalid(path, schema, "must be a schema object")
            return
        if schema.get("type", "object") != "object":
            yield invalid(f"{path}.type", schema.get("type"), "must be object")
        if schema.get("x-kubernetes-validations"):
            yield forbidden(f"{path}.x-kubernetes-validations", "rules about metadata stand at the root")
        properties = schema.get("properties")
        for name, child in (properties if isinstance(properties, Mapping) else {}).items():
            if name not in _ROOT_METADATA:
                words = "must not specify anything other than name and generateName"
                yield forbidden(path, f"{words}, but metadata is implicitly specified")
                return
            if isinstance(child, Mapping) and child.get("x-kubernetes-validations"):
                words = "rules about the name stand at the root"
                yield forbidden(f"{path}.properties[{name}].x-kubernetes-validations", words)
            yield from self.node(child, f"{path}.properties[{name}]", depth - 1)

    def _junctors(self, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Cause]:
        for name in _JUNCTORS:
            for index, part in enumerate(schema.get(name) or ()):
                yield from self._part(schema, part, f"{path}.{name}[{index}]", depth - 1)
        if schema.get("not") is not None:
            yield from self._part(schema, schema["not"], f"{path}.not", depth - 1)

    def _part(self, whole: Mapping[str, Any], part: Any, path: str, depth: int) -> Iterator[Cause]:
        malformed = self._malformed(part, path, depth)
        if malformed is not None:
            yield malformed
            return
        either = whole.get("x-kubernetes-int-or-string") is True
        if part.get("type") and not either:
            yield forbidden(f"{path}.type", "must be empty to be structural")
        for name in _STRUCTURAL_ONLY:
            # ``default: false`` is a default.
            if part.get(name) or (name in _UNDEFINED and part.get(name) is not None):
                words = "undefined" if name in _UNDEFINED else "false" if name in _FALSE else "empty"
                yield forbidden(f"{path}.{name}", f"must be {words} to be structural")
        if part.get("additionalProperties") not in (None, False):
            yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
        if "metadata" in (part.get("properties") or {}):
            yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
        yield from self._values(part, path)
        yield from self._list_type(part, path)
        yield from self._map_type(part, path)
        for name, child in (part.get("properties") or {}).items():
            yield from self._part({}, child, f"{path}.properties[{name}]", depth - 1)
        if part.get("items") is not None:
            yield from self._part({}, part["items"], f"{path}.items", depth - 1)
        for name in _JUNCTORS:
            for index, inner in enumerate(part.get(name) or ()):
                yield from self._part(whole, inner, f"{path}.{name}[{index}]", depth - 1)
        if part.get("not") is not None:
            yield from self._part(whole, part["not"], f"{path}.not", depth - 1)


def _other_type(schema: Mapping[str, Any], path: str, words: str) -> Cause:
    """The cause that a schema is not of the type that an extension needs."""
    kind = schema.get("type")
    return invalid(f"{path}.type", kind, words) if kind else required(f"{path}.type", words)


def _uncomparable(items: Any) -> str:
    """The extension by which the items of a set would have to be made atomic; empty when they can be compared."""
    if not isinstance(items, Mapping):
        return ""
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return "x-kubernetes-map-type"
    if items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
        return "x-kubernetes-list-type"
    return ""
