"""A CRD's structural schema (``openAPIV3Schema``) as the same ``Schema`` that built-in kinds have (TS10)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from kube.customresources.validationcosts import alternatives
from kube.kinds.formats import is_known
from kube.kinds.schemas import MISSING, OBJECT_META, Definitions, Schema
from kube.requests.decoding import MAX_BYTES
from kube.requests.status import RequestEntityTooLarge

_READ: Final = frozenset(
    (
        "type",
        "format",
        "description",
        "title",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "nullable",
        "enum",
        "default",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    )
)
_TEXT: Final = Schema(type="string")
_ANYTHING: Final = Schema(closed=True, nullable=True)
"""A value that ``additionalProperties: true`` lets in: of any type, but nobody has described what is in it."""


def structural_schema(source: Mapping[str, Any], definitions: Definitions) -> Schema:
    """The schema of a custom resource's root: ``apiVersion``, ``kind`` and ``metadata`` are those of every object.

    ``source`` is a structural schema that validation has accepted (bounded in depth like every body). Fields are read
    when they are first asked for: a definition may be large, and what is kept of it touches a few of them.
    """
    return _node(source, definitions, embedded=True)


class _Properties(Mapping[str, Schema]):
    """The fields of a structural schema. ``known`` are those that are the same in every object."""

    __slots__ = ("_definitions", "_known", "_source")

    def __init__(self, source: Mapping[str, Any], definitions: Definitions, known: dict[str, Schema]) -> None:
        self._source = {**source, **known}
        self._definitions = definitions
        self._known = known

    def __getitem__(self, name: str) -> Schema:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _node(self._source[name], self._definitions)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)

    def defaulted(self) -> tuple[str, ...]:
        """The names of those that have a default. No schema is linked for it."""
        return tuple(name for name, each in self._source.items() if isinstance(each, Mapping) and "default" in each)


def _node(source: Mapping[str, Any], definitions: Definitions, *, embedded: bool = False) -> Schema:
    embedded = embedded or bool(source.get("x-kubernetes-embedded-resource"))
    known = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _metadata(source, definitions)} if embedded else {}
    items, values = source.get("items"), source.get("additionalProperties")
    additional = _node(values, definitions) if isinstance(values, Mapping) else None
    rules = {key: value for key, value in source.items() if key not in _READ}
    if isinstance(values, bool):
        # Where it is false, too, other fields are kept until they are judged: they are refused, not left out.
        additional, rules["additionalProperties"] = _ANYTHING, values
    return Schema(
        type=source.get("type", ""),
        format="int-or-string" if source.get("x-kubernetes-int-or-string") else source.get("format", ""),
        properties=_Properties(source.get("properties", {}), definitions, known),
        items=_node(items, definitions) if isinstance(items, Mapping) else None,
        additional=additional,
        closed=additional is None and not source.get("x-kubernetes-preserve-unknown-fields"),
        required=tuple(source.get("required", ())),
        nullable=bool(source.get("nullable")),
        enum=tuple(source.get("enum") or ()),
        default=source.get("default", MISSING),
        embedded_resource=embedded,
        list_type=source.get("x-kubernetes-list-type", ""),
        list_map_keys=tuple(source.get("x-kubernetes-list-map-keys", ())),
        map_type=source.get("x-kubernetes-map-type", ""),
        rules=MappingProxyType(rules),
        alternatives=alternatives(rules),
    )


def _metadata(source: Mapping[str, Any], definitions: Definitions) -> Schema:
    """What an object's metadata is, with what the schema asks of its name."""
    metadata = definitions.definition(OBJECT_META)
    asked = source.get("properties", {}).get("metadata", {}).get("properties") or {}
    names = {name: _node(asked[name], definitions) for name in ("name", "generateName") if name in asked}
    return replace(metadata, properties={**metadata.properties, **names}) if names else metadata


def with_defaults(value: Any, schema: Schema, room: int = MAX_BYTES) -> Any:
    """The value with the schema's defaults in it; unchanged parts are shared, nothing is changed in place.

    A ``null`` in a field that is not nullable but has a default gives way to the default, as in Kubernetes. Raises
    ``RequestEntityTooLarge`` where the defaults, each counted as often as it is put in, take more than ``room`` bytes.
    """
    return _Filling(room).value(value, schema)


_PUT_IN: Final = 128
"""Bytes that a default counts for beside its own: putting it in takes time, however short it is."""


def _defaulted(schema: Schema) -> tuple[str, ...]:
    """The names of the properties of a schema that have a default, worked out once."""
    names: tuple[str, ...] | None = schema.kept.get("defaulted")
    if names is None:
        own = schema.properties
        names = (
            own.defaulted()
            if isinstance(own, _Properties)
            else tuple(name for name, child in own.items() if child.default is not MISSING)
        )
        schema.kept["defaulted"] = names
    return names


class _Filling:
    def __init__(self, room: int) -> None:
        self._room, self._left = room, room
        self._sizes: dict[int, int] = {}

    def value(self, value: Any, schema: Schema) -> Any:
        if type(value) is dict:
            return self._object(value, schema)
        if type(value) is list and schema.items is not None:
            items = [self.value(item, schema.items) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def _object(self, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        # It costs what the value holds, and what is put in: of the fields that a schema has there may be thousands.
        filled: dict[str, Any] = {}
        for name in _defaulted(schema):
            child, present = schema.properties[name], value.get(name, MISSING)
            if present is MISSING or (present is None and not child.nullable):
                self._take(child)
                filled[name] = self.value(child.default, child)
        for name, present in value.items():
            below_it = schema.properties.get(name, schema.additional)
            if below_it is not None and name not in filled:
                below = self.value(present, below_it)
                if below is not present:
                    filled[name] = below
        return {**value, **filled} if filled else value

    def _take(self, schema: Schema) -> None:
        size = self._sizes.get(id(schema))
        if size is None:
            size = self._sizes[id(schema)] = _PUT_IN + len(json.dumps(schema.default))
        self._left -= size
        if self._left < 0:
            raise RequestEntityTooLarge(
                f"Request entity too large: the defaults alone are more than {self._room} bytes"
            )


def unknown_formats(crd: Mapping[str, Any]) -> list[str]:
    """The formats in the schemas of a valid CRD that say nothing, each once."""
    waiting: list[Any] = [
        (version.get("schema") or {}).get("openAPIV3Schema") for version in reversed(crd["spec"]["versions"])
    ]
    found: dict[str, None] = {}
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        name = node.get("format")
        if name and not is_known(name, node.get("type") or ""):
            found[name] = None
        parts = [part for field in ("allOf", "anyOf", "oneOf") for part in node.get(field) or ()]
        parts += [node.get("not"), node.get("additionalProperties"), node.get("items")]
        waiting += [*reversed(parts), *reversed((node.get("properties") or {}).values())]
    return list(found)
