"""A CRD's structural schema (``openAPIV3Schema``) as the same ``Schema`` that built-in kinds have (TS10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from kube.kinds.schemas import MISSING, OBJECT_META, Definitions, Schema

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
    )


def _metadata(source: Mapping[str, Any], definitions: Definitions) -> Schema:
    """What an object's metadata is, with what the schema asks of its name."""
    metadata = definitions.definition(OBJECT_META)
    asked = source.get("properties", {}).get("metadata", {}).get("properties") or {}
    names = {name: _node(asked[name], definitions) for name in ("name", "generateName") if name in asked}
    return replace(metadata, properties={**metadata.properties, **names}) if names else metadata


def with_defaults(value: Any, schema: Schema) -> Any:
    """The value with the schema's defaults in it; unchanged parts are shared, nothing is changed in place.

    A ``null`` in a field that is not nullable but has a default gives way to the default, as in Kubernetes.
    """
    if type(value) is dict:
        filled = value
        for name, child in schema.properties.items():
            present = value.get(name, MISSING)
            if child.default is not MISSING and (present is MISSING or (present is None and not child.nullable)):
                present = child.default
            if present is MISSING:
                continue
            below = with_defaults(present, child)
            if below is not value.get(name, MISSING):
                filled = {**filled, name: below}
        if schema.additional is not None:
            for name, present in value.items():
                if name not in schema.properties:
                    below = with_defaults(present, schema.additional)
                    if below is not present:
                        filled = {**filled, name: below}
        return filled
    if type(value) is list and schema.items is not None:
        items = [with_defaults(item, schema.items) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value
