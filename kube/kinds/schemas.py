"""What the fields of a kind are: OpenAPI definitions as compact, linked schemas.

Field validation, pruning, defaults, strategic merge, server-side apply and OpenAPI documents read the same
definitions. The source is the definitions file of one Kubernetes minor (``Definitions.from_json``); only the
text of a definition is kept until a kind of it is first asked for, so that an idle server stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import orjson

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_DEFS: Final = b'"#/$defs/'
_DEFINITIONS: Final = b'"#/definitions/'

QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
LABEL_SELECTOR: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"

MISSING: Final = object()
"""The ``default`` of a schema that has none (``None`` is a value)."""


@dataclass(slots=True, eq=False, kw_only=True)
class Schema:
    """One node of a kind's schema. Never changed once it is built; references are followed, so it may be cyclic.

    ``type`` is ``object``, ``array``, ``string``, ``integer``, ``number``, ``boolean`` or ``""`` (anything).
    ``format`` is OpenAPI's (``int32``, ``date-time``, ``byte``), or ``quantity``, or ``int-or-string``.
    ``additional`` is the schema of a map's values; ``None`` for an object with fixed fields.
    ``closed``: unknown fields are not kept. Lists say how they merge: ``list_type`` is ``atomic``, ``set``,
    ``map`` or ``""``; ``patch_strategy`` holds strategic merge's words. ``definition`` is the name of the
    definition that this node is, ``""`` within one.
    """

    type: str = ""
    format: str = ""
    definition: str = ""
    properties: Mapping[str, Schema] = field(default_factory=lambda: _NONE)
    items: Schema | None = None
    additional: Schema | None = None
    closed: bool = False
    required: tuple[str, ...] = ()
    nullable: bool = False
    enum: tuple[Any, ...] = ()
    default: Any = MISSING
    embedded_resource: bool = False
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    merge_key: str = ""
    patch_strategy: tuple[str, ...] = ()
    rules: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """The constraints of a CRD's schema that are not listed above, as written (pattern, minimum, anyOf, …)."""
    alternatives: int = 0
    """With how many more schemas a value is compared by ``rules`` (``kube.customresources.validationcosts``)."""
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    """What others have worked out of it, by a name of theirs: it is kept here, and so goes with the definition (DOS-03)."""

    @property
    def int_or_string(self) -> bool:
        """Whether a number and a string are both fine."""
        return self.format == "int-or-string"

    def at(self, *path: str) -> Schema | None:
        """The node at a path of field names; ``*`` enters a list's items or a map's values."""
        node: Schema | None = self
        for name in path:
            if node is None:
                return None
            node = (node.items or node.additional) if name == "*" else node.properties.get(name)
        return node

    def places_before(self, items: list[Any], old: Any) -> list[int | None]:
        """Where each item of a list stood in the old value, by its keys; of a list without keys nobody can tell."""
        places = {self._keys(item): index for index, item in enumerate(old)} if isinstance(old, list) else {}
        return [None if keys is None else places.get(keys) for keys in map(self._keys, items)]

    def _keys(self, item: Any) -> tuple[str, ...] | None:
        if self.list_type != "map" or not isinstance(item, dict):
            return None
        return tuple(repr(item.get(key)) for key in self.list_map_keys)


class Definitions:
    """The definitions of one Kubernetes minor. Reading is free of I/O; a kind is linked when first asked for."""

    def __init__(self, texts: Mapping[str, bytes], kinds: Mapping[tuple[str, str, str], str]) -> None:
        self._texts = texts
        self._kinds = kinds
        self._schemas: dict[str, Schema] = {}

    @classmethod
    def from_json(cls, document: bytes) -> Definitions:
        """Read a ``_definitions.json``. Raises ``ValueError`` when it is none."""
        try:
            definitions = orjson.loads(document)["$defs"]
        except (KeyError, TypeError) as error:
            raise ValueError("not a definitions document") from error
        texts: dict[str, bytes] = {}
        kinds: dict[tuple[str, str, str], str] = {}
        for name, definition in definitions.items():
            own = definition.get("x-kubernetes-group-version-kind", ())
            if len(own) == 1:
                kind = own[0]
                kinds.setdefault((kind["group"], kind["version"], kind["kind"]), name)
            texts[name] = orjson.dumps(_openapi(name, definition)).replace(_DEFS, _DEFINITIONS)
        return cls(texts, kinds)

    def with_definitions(self, definitions: Mapping[str, Mapping[str, Any]]) -> Definitions:
        """These definitions and more of them, in OpenAPI v2 form (own kinds)."""
        texts = dict(self._texts)
        kinds = dict(self._kinds)
        for name, definition in definitions.items():
            texts[name] = orjson.dumps(definition)
            for kind in definition.get("x-kubernetes-group-version-kind", ()):
                kinds[kind["group"], kind["version"], kind["kind"]] = name
        return Definitions(texts, kinds)

    def with_properties(self, name: str, properties: Mapping[str, Any]) -> Definitions:
        """These definitions with more properties in one of them."""
        changed = orjson.loads(self._texts[name])
        changed["properties"] = changed["properties"] | properties
        return Definitions({**self._texts, name: orjson.dumps(changed)}, self._kinds)

    def with_enums(self, enums: Iterable[Mapping[str, Any]]) -> Definitions:
        """These definitions with the values that some of their fields take, and what each means.

        Each of ``enums`` has ``values``, from value to meaning, and ``of``: the fields by definition and name, with
        ``[]`` for a list's items and ``{}`` for a map's values. Fields of other Kubernetes versions do not matter.
        """
        changed: dict[str, Any] = {}
        for enum in enums:
            for path in enum["of"]:
                definition, _, field = path.rpartition(".")
                if definition in self._texts and definition not in changed:
                    changed[definition] = orjson.loads(self._texts[definition])
                _list_values(changed.get(definition, {}).get("properties") or {}, field, enum["values"])
        return Definitions({**self._texts, **{name: orjson.dumps(body) for name, body in changed.items()}}, self._kinds)

    def name_of(self, group: str, version: str, kind: str) -> str | None:
        """The name of a kind's definition (``io.k8s.api.core.v1.Pod``), or ``None``."""
        return self._kinds.get((group, version, kind))

    def names(self) -> list[str]:
        """The names of all definitions, sorted."""
        return sorted(self._texts)

    def text(self, name: str) -> bytes:
        """One definition as OpenAPI v2 JSON with its descriptions; references are ``#/definitions/…``."""
        return self._texts[name]

    def closure(self, names: Iterable[str]) -> list[str]:
        """These definitions and everything they refer to, sorted by name."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(_references(self._texts[name]))
        return sorted(found)

    def schema(self, group: str, version: str, kind: str) -> Schema | None:
        """The linked schema of a kind, or ``None`` when there is no such definition."""
        name = self._kinds.get((group, version, kind))
        return None if name is None else self.definition(name)

    def definition(self, name: str) -> Schema:
        """The linked schema of a definition by name. Raises ``KeyError`` for an unknown one."""
        schema = self._schemas.get(name)
        if schema is None:
            schema = self._schemas[name] = Schema(definition=name)
            self._fill(schema, orjson.loads(self._texts[name]))
        return schema

    def _fill(self, schema: Schema, source: Mapping[str, Any]) -> None:
        schema.type = source.get("type", "")
        schema.format = source.get("format", "")
        schema.required = tuple(source.get("required", ()))
        schema.enum = tuple(source.get("enum", ()))
        if "properties" in source:
            schema.properties = {key: self._node(value) for key, value in source["properties"].items()}
            schema.closed = True
        if "items" in source:
            schema.items = self._node(source["items"])
        if "additionalProperties" in source:
            schema.additional = self._node(source["additionalProperties"])
        _describe(schema, source)

    def _node(self, source: Mapping[str, Any]) -> Schema:
        reference = source.get("$ref")
        if reference is None:
            schema = Schema()
            self._fill(schema, source)
            return schema
        target = self.definition(reference.rpartition("/")[2])
        if not any(key.startswith("x-kubernetes-") for key in source):
            return target
        # The extensions beside a reference belong to the field, not to the definition, which may not be
        # complete yet when it refers to itself: only leaf-like definitions are referred to this way.
        schema = Schema(
            type=target.type,
            format=target.format,
            definition=target.definition,
            properties=target.properties,
            items=target.items,
            additional=target.additional,
            closed=target.closed,
            required=target.required,
            map_type=target.map_type,
        )
        _describe(schema, source)
        return schema


def _list_values(properties: dict[str, Any], field: str, values: Mapping[str, str]) -> None:
    inner = {"[]": "items", "{}": "additionalProperties"}.get(field[-2:])
    described = properties.get(field[:-2] if inner else field)
    if described is None:
        return
    if inner:
        described[inner]["enum"] = list(values)
        return
    lines = [f' - `"{value}"`{f" {words}" if words else ""}' for value, words in values.items()]
    described["enum"] = list(values)
    described["description"] = "\n".join([f"{described.get('description', '')}\n\nPossible enum values:", *lines])


def _describe(schema: Schema, source: Mapping[str, Any]) -> None:
    if "default" in source:
        schema.default = source["default"]
    schema.list_type = source.get("x-kubernetes-list-type", schema.list_type)
    schema.list_map_keys = tuple(source.get("x-kubernetes-list-map-keys", schema.list_map_keys))
    schema.map_type = source.get("x-kubernetes-map-type", schema.map_type)
    schema.merge_key = source.get("x-kubernetes-patch-merge-key", schema.merge_key)
    strategy = source.get("x-kubernetes-patch-strategy")
    if strategy is not None:
        schema.patch_strategy = tuple(strategy.split(","))


def _openapi(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition of the JSON Schema file in the form in which Kubernetes publishes it."""
    if name == QUANTITY:
        return {"description": definition.get("description", ""), "type": "string", "format": "quantity"}
    if name == INT_OR_STRING:
        return {"description": definition.get("description", ""), "type": "string", "format": "int-or-string"}
    return {key: _openapi_value(key, value) for key, value in definition.items()}


def _openapi_value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _openapi_property(name, child) for name, child in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return {name: _openapi_value(name, child) for name, child in value.items()}
    if key == "type" and isinstance(value, list):
        return value[0]
    return value


def _openapi_property(name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    converted = {key: _openapi_value(key, value) for key, value in source.items()}
    if name in ("apiVersion", "kind"):
        # The file narrows these to the one value of the kind; the published definitions do not.
        converted.pop("enum", None)
    return converted


def _references(text: bytes) -> list[str]:
    return [part.partition(b'"')[0].decode() for part in text.split(_DEFINITIONS)[1:]]
