"""What merging needs to know about each place of an object: its kind, how its list items are told apart.

Strategic merge patches and server-side apply ask the same questions of built-in kinds (OpenAPI definitions), of
custom resources (structural schemas) and of values nobody described. This is the one answer to all of them.
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ATOMIC: Final = "atomic"
SET: Final = "set"
MAP: Final = "map"

_KEY_DEFAULTS: Final = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}
"""Defaults of list-map keys. The published definitions leave defaults out, but the keys depend on them."""

_SCALARS: Final = {"string": "string", "integer": "numeric", "number": "numeric", "boolean": "boolean"}

_STRUCTS: Final = frozenset({"metadata", "spec", "status", "template", "strategy", "updateStrategy", "jobTemplate"})
"""Struct fields that an empty Go object always carries, so that no manager is ever recorded as owning them."""


class Structure:
    """One place of a typed tree.

    ``is_map``, ``is_list`` and ``is_scalar`` say what may stand here; an untyped place is all three. ``scalar`` is
    string, numeric, boolean or untyped.
    ``atomic`` maps and lists of ``list_type`` atomic are replaced as a whole; lists of type ``set`` hold scalars,
    those of type ``map`` hold maps told apart by ``keys``. ``strategy`` (``merge``, ``replace`` or empty) and
    ``merge_key`` are those of strategic merge patches. ``default`` is the value of a list-map key left out.
    ``fields`` are the declared members, ``element`` is every other member (``None``: there is none),
    ``item`` a list's element. Children are built when first asked for and shared by definition, so memory is
    bounded by the schema, not by what clients send.
    """

    __slots__ = (
        "_element",
        "_fields",
        "_item",
        "_registry",
        "_schema",
        "_zero",
        "atomic",
        "default",
        "is_list",
        "is_map",
        "is_scalar",
        "keys",
        "list_type",
        "merge_key",
        "name",
        "required",
        "scalar",
        "strategy",
    )

    def __init__(self, registry: Structures, schema: Mapping[str, Any], outer: Mapping[str, Any], name: str) -> None:
        self._registry = registry
        self._schema = schema
        self._fields: dict[str, Structure] | None = None
        self._element: Structure | bool | None = False
        self._item: Structure | None = None
        self._zero: dict[str, Any] | None = None
        self.name = name
        kind = _type(schema)
        untyped = kind == ""
        self.is_map = untyped or kind == "object"
        self.is_list = untyped or kind == "array"
        self.is_scalar = untyped or not (self.is_map or self.is_list)
        if "oneOf" in schema or schema.get("x-kubernetes-int-or-string") is True:
            self.is_map, self.is_list, self.is_scalar = False, False, True
        self.scalar = _SCALARS.get(kind, "untyped") if self.is_scalar else ""
        map_type = outer.get("x-kubernetes-map-type", schema.get("x-kubernetes-map-type"))
        self.atomic = map_type == "atomic"
        self.required = frozenset(schema.get("required") or ())
        self.default = outer.get("default", schema.get("default"))
        self.merge_key: str = outer.get("x-kubernetes-patch-merge-key", "")
        strategies = [part for part in outer.get("x-kubernetes-patch-strategy", "").split(",") if part]
        self.strategy = next((part for part in strategies if part != "retainKeys"), "")
        self.list_type, self.keys = _list_type(outer if "x-kubernetes-list-type" in outer else schema, outer)

    @property
    def fields(self) -> Mapping[str, Structure]:
        """The declared members by name."""
        if self._fields is None:
            properties: Mapping[str, Any] = self._schema.get("properties") or {}
            fields = {name: self._registry.at(schema) for name, schema in properties.items()}
            for (definition, name), default in _KEY_DEFAULTS.items():
                if definition == self.name and name in fields:
                    fields[name] = self._registry.at({**properties[name], "default": default})
            if self._registry.meta is not None and self._schema.get("x-kubernetes-embedded-resource") is True:
                fields["metadata"] = self._registry.meta
            self._fields = fields
        return self._fields

    @property
    def element(self) -> Structure | None:
        """The members that are not declared."""
        if isinstance(self._element, bool):
            additional = self._schema.get("additionalProperties")
            preserve = self._schema.get("x-kubernetes-preserve-unknown-fields") is True
            if isinstance(additional, Mapping):
                self._element = self._registry.at(additional)
            elif additional is True or preserve or (additional is None and not self._schema.get("properties")):
                self._element = DEDUCED
            else:
                self._element = None
        return self._element

    @property
    def item(self) -> Structure:
        """A list's element."""
        if self._item is None:
            items = self._schema.get("items")
            self._item = self._registry.at(items) if isinstance(items, Mapping) else DEDUCED
        return self._item

    def child(self, name: str) -> Structure | None:
        """The member ``name``, or ``None`` when the schema knows no such member."""
        return self.fields.get(name) or self.element

    @property
    def zero(self) -> dict[str, Any]:
        """What an object of this kind holds before anybody set a field: its structs and its required members."""
        if self._zero is None:
            names = self.required | (self.fields.keys() & _STRUCTS if self.name else frozenset())
            self._zero = {
                name: child.zero if child.is_map and child.fields else None
                for name, child in self.fields.items()
                if name in names and not child.is_scalar
            }
        return self._zero


class Structures:
    """The structures of a set of definitions, shared by name.

    ``definitions`` maps names to JSON schemas or OpenAPI v2/v3 schemas; a ``$ref`` is followed by what stands
    behind its last slash. ``meta`` is the structure of ``metadata`` of embedded resources.
    """

    def __init__(self, definitions: Mapping[str, Any], meta: Structure | None = None) -> None:
        self.definitions = definitions
        self.meta = meta
        self._known: dict[tuple[object, ...], Structure] = {}

    def of(self, name: str) -> Structure:
        """The structure of a definition. Raises ``KeyError`` when there is none of that name."""
        if name not in self.definitions:
            raise KeyError(name)
        return self.at({"$ref": name})

    def at(self, schema: Mapping[str, Any]) -> Structure:
        """The structure of a schema, following references."""
        name = _reference(schema)
        if not name:
            return Structure(self, schema, schema, "")
        key = (
            name,
            schema.get("x-kubernetes-map-type"),
            schema.get("x-kubernetes-patch-strategy"),
            schema.get("x-kubernetes-patch-merge-key"),
            schema.get("x-kubernetes-list-type"),
            str(schema.get("default", "")),
        )
        known = self._known.get(key)
        if known is None:
            target = self.definitions.get(name, {})
            known = self._known[key] = Structure(self, target, schema, name)
        return known


def custom(schema: Mapping[str, Any], meta: Structure | None = None) -> Structure:
    """The structure of a custom resource from its structural schema (apiextensions/v1 ``openAPIV3Schema``).

    ``meta`` is the structure of ``ObjectMeta``; without it metadata is deduced.
    """
    registry = Structures({}, meta)
    root = registry.at({"type": "object", **schema})
    fields = dict(root.fields)
    scalar = registry.at({"type": "string"})
    fields.update(apiVersion=scalar, kind=scalar, metadata=meta or DEDUCED)
    root._fields = fields
    return root


def _reference(schema: Mapping[str, Any]) -> str:
    ref = schema.get("$ref")
    if ref is None:
        parts = schema.get("allOf")
        if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], Mapping):
            ref = parts[0].get("$ref")
    return ref.rsplit("/", 1)[-1] if isinstance(ref, str) else ""


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((part for part in kind if part != "null"), "")
    return kind if isinstance(kind, str) else ""


def _list_type(schema: Mapping[str, Any], outer: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    kind = schema.get("x-kubernetes-list-type")
    if kind == MAP:
        return MAP, tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if kind in (SET, ATOMIC):
        return kind, ()
    if "merge" in outer.get("x-kubernetes-patch-strategy", "").split(","):
        key = outer.get("x-kubernetes-patch-merge-key")
        return (MAP, (key,)) if key else (SET, ())
    return ATOMIC, ()


DEDUCED: Final = Structure(Structures({}), {}, {}, "")
"""A place nobody described: maps merge, lists are replaced as a whole."""
