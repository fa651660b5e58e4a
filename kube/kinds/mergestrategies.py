"""What merging needs to know about each place of an object: its kind, how its list items are told apart.

Strategic merge patches and server-side apply ask the same questions of built-in kinds, of custom resources and of
values nobody described. This is the one answer to all of them, read from a ``Schema``.
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from kube.kinds.schemas import MISSING, Schema

ATOMIC: Final = "atomic"
_STRUCTURE: Final = "structure"
SET: Final = "set"
MAP: Final = "map"

_KEY_DEFAULTS: Final = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}
"""Defaults of list-map keys. The definitions' source leaves defaults out, but the keys depend on them."""

_SCALARS: Final = {"string": "string", "integer": "numeric", "number": "numeric", "boolean": "boolean"}

_EMPTY: Final[Mapping[str, Any]] = {"string": "", "numeric": 0, "boolean": False, "untyped": None}

_STRUCTS: Final = frozenset(
    {"metadata", "spec", "status", "template", "strategy", "updateStrategy", "jobTemplate", "resources"}
)
"""Struct fields that an empty Go object always carries, so that no manager is ever recorded as owning them."""

_CORE: Final = "io.k8s.api.core.v1"
_MORE_STRUCTS: Final = frozenset(
    {
        ("io.k8s.api.resource.v1.ResourceClaimSpec", "devices"),
        (f"{_CORE}.Event", "source"),
        (f"{_CORE}.NodeDaemonEndpoints", "kubeletEndpoint"),
        (f"{_CORE}.NodeStatus", "daemonEndpoints"),
        (f"{_CORE}.NodeStatus", "nodeInfo"),
        (f"{_CORE}.ServiceStatus", "loadBalancer"),
        ("io.k8s.api.events.v1.Event", "deprecatedSource"),
        ("io.k8s.api.events.v1.Event", "regarding"),
        ("io.k8s.api.networking.v1.IngressStatus", "loadBalancer"),
        ("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector"),
    }
)
_POINTERS: Final = frozenset(
    {
        (f"{_CORE}.PodSpec", "resources"),
        (f"{_CORE}.ReplicationControllerSpec", "template"),
        ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions"),
        ("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
    }
)
"""Fields of those names that are pointers, hence absent from an empty object."""

_WRITTEN_SCALARS: Final = frozenset({(f"{_CORE}.Event", "reportingComponent"), (f"{_CORE}.Event", "reportingInstance")})
"""Optional scalars that Go writes even when they are empty; it does so with all required ones."""

_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"


class Structure:
    """One place of a typed tree.

    ``is_map``, ``is_list`` and ``is_scalar`` say what may stand here; an untyped place is all three. ``scalar`` is
    string, numeric, boolean or untyped. ``atomic`` maps and lists of ``list_type`` atomic are replaced as a whole;
    lists of type ``set`` hold scalars, those of type ``map`` hold maps told apart by ``keys``. ``strategy``
    (``merge``, ``replace`` or empty) and ``merge_key`` are those of strategic merge patches. ``defaults`` are the
    values of list-map keys left out. Children are built when first asked for and shared by schema, so memory is
    bounded by the schema, not by what clients send.
    """

    def __init__(self, schema: Schema, known: dict[int, Structure] | None = None) -> None:
        self._schema = schema
        self._known = {} if known is None else known
        self._known[id(schema)] = self
        untyped = schema.type == ""
        self.name = schema.definition
        self.is_map = untyped or schema.type == "object"
        self.is_list = untyped or schema.type == "array"
        self.is_scalar = untyped or not (self.is_map or self.is_list)
        self.scalar = _SCALARS.get(schema.type, "untyped")
        if schema.format in ("int-or-string", "quantity"):
            self.is_map, self.is_list, self.is_scalar, self.scalar = False, False, True, "untyped"
        self.atomic = schema.map_type == "atomic" or schema.definition == _RAW
        self.merge_key = schema.merge_key
        self.strategy = next((part for part in schema.patch_strategy if part != "retainKeys"), "")
        self.list_type, self.keys = _list_type(schema)

    @cached_property
    def fields(self) -> Mapping[str, Structure]:
        """The declared members by name."""
        return {name: self._at(schema) for name, schema in self._schema.properties.items()}

    @cached_property
    def element(self) -> Structure | None:
        """The members that are not declared; ``None``: there are none."""
        if self._schema.additional is not None:
            return self._at(self._schema.additional)
        return None if self._schema.closed else DEDUCED

    @cached_property
    def item(self) -> Structure:
        """A list's element."""
        return DEDUCED if self._schema.items is None else self._at(self._schema.items)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The values of fields left out, where lists are keyed by them."""
        declared = {
            name: schema.default
            for name, schema in self._schema.properties.items()
            if schema.default is not MISSING and schema.default is not None
        }
        known = {field: value for (definition, field), value in _KEY_DEFAULTS.items() if definition == self.name}
        # Go has no absent scalar: a required one that is left out is the empty one.
        required = self._schema.required if self.name else ()
        scalars = {name: _EMPTY[self.fields[name].scalar] for name in required if self.fields[name].is_scalar}
        return {**scalars, **known, **declared}

    @cached_property
    def zero(self) -> dict[str, Any]:
        """What a built-in object holds before anybody set a field: its structs and its required members."""
        if not self.name:
            return {}
        required = {name for name in self._schema.required if (self.name, name) not in _POINTERS}
        return {
            name: child.empty
            for name, child in self.fields.items()
            if name in required or self._is_struct(name) or (self.name, name) in _WRITTEN_SCALARS
        }

    @cached_property
    def empty(self) -> Any:
        """What stands here in an object that nobody filled in."""
        if self.is_scalar:
            return _EMPTY[self.scalar]
        return self.zero if self.is_map and self.fields else None

    def _is_struct(self, name: str) -> bool:
        place = (self.name, name)
        return (name in _STRUCTS and place not in _POINTERS) or place in _MORE_STRUCTS

    def child(self, name: str) -> Structure | None:
        """The member ``name``, or ``None`` when the schema knows no such member."""
        return self.fields.get(name) or self.element

    def _at(self, schema: Schema) -> Structure:
        return self._known.get(id(schema)) or Structure(schema, self._known)


def structure_of(schema: Schema) -> Structure:
    """The structure of a kind, from the schema of a built-in or of a custom resource; it is kept as long as the schema."""
    structure = schema.kept.get(_STRUCTURE)
    if not isinstance(structure, Structure):
        structure = schema.kept[_STRUCTURE] = Structure(schema)
    return structure


def _list_type(schema: Schema) -> tuple[str, tuple[str, ...]]:
    if schema.list_type == MAP:
        return MAP, schema.list_map_keys
    if schema.list_type in (SET, ATOMIC):
        return schema.list_type, ()
    if "merge" in schema.patch_strategy:
        return (MAP, (schema.merge_key,)) if schema.merge_key else (SET, ())
    return ATOMIC, ()


DEDUCED: Final = Structure(Schema())
"""A place nobody described: maps merge, lists are replaced as a whole."""
