"""What kinds of objects there are: resources as frozen data, collected in a catalog.

The catalog of a space is the built-in resources (``kube.kinds.builtins``) plus the custom ones installed there.
Resolution, discovery, OpenAPI, tables and validation all read the same value, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kube.kinds.schemas import Schema

READ_VERBS: Final = ("get", "list", "watch")
ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of an ordinary resource, in the order in which discovery names them."""


class TenantScope(Enum):
    """Who may hold objects of a resource (AD4; cluster-scoped is not the same as the system's own)."""

    TENANT = "tenant"
    """Every space holds its own; whoever is in a space reads and writes them by that space's RBAC."""

    SYSTEM = "system"
    """The system space alone holds them; in tenant spaces the resource does not exist."""

    SHOWN = "shown"
    """The operators' own: what they show of them to a space is read there, and nobody there writes any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of ``kubectl get`` computed by a JSON path (``additionalPrinterColumns`` of a CRD)."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a custom resource keeps what ``/scale`` shows, as paths of field names."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A part of a resource with an endpoint of its own; its body is ``group/version kind``."""

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a resource.

    ``columns``, ``schema``, ``openapi`` (the schema as its author wrote it), ``scale`` and ``selectable`` (the fields
    that selectors may name besides metadata's) are set for custom resources alone.
    """

    name: str
    served: bool = True
    storage: bool = False
    deprecation: str = ""
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    schema: Schema | None = None
    openapi: Mapping[str, Any] | None = None
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, or ``None``."""
        for subresource in self.subresources:
            if subresource.name == name:
                return subresource
        return None


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Resource:
    """A kind of object with its endpoint. ``versions`` begins with the preferred one.

    ``storage_group`` names the group under which objects are kept when it is not the resource's own: events
    of ``events.k8s.io`` are the core events. ``served`` is ``False`` for own kinds that a deployment has not
    switched on. ``custom`` is set for resources of CRDs, with the space and the uid of their definition, about how
    many values that one holds, a rule counted as a hundred, and whether it was ``changed`` since it was made.
    """

    group: str
    kind: str
    plural: str
    singular: str
    list_kind: str
    namespaced: bool
    versions: tuple[Version, ...]
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    tenant_scope: TenantScope = TenantScope.TENANT
    storage_group: str | None = None
    custom: bool = False
    defined_in: str = ""
    definition: str = ""
    weight: int = 0
    changed: bool = False
    storage_key: tuple[str, str] = field(init=False, repr=False, compare=False)
    """(group, plural) of what is stored: one for all views of one storage."""
    place: tuple[str, str] = field(init=False, repr=False, compare=False)
    """(group, resource) in the store's keys.

    Custom objects are kept under the identity of their definition, so that another definition of the same name
    (a tenant's own beside a published one, a later one) never shows them (TS10 to TS12).
    """
    storage_version: Version = field(init=False, repr=False, compare=False)
    """The version in which objects are kept."""
    kept: dict[Any, Any] = field(init=False, default_factory=dict, repr=False, compare=False)
    """What others have worked out of it, by a name of theirs: it is kept here, and so goes with the definition.

    ``dataclasses.replace`` leaves it behind: what is served otherwise elsewhere is another resource.
    """

    def __post_init__(self) -> None:
        group = self.group if self.storage_group is None else self.storage_group
        object.__setattr__(self, "storage_key", (group, self.plural))
        kept = f"{self.plural}:{self.definition}" if self.definition else self.plural
        object.__setattr__(self, "place", (group, kept))
        storing = next((version for version in self.versions if version.storage), self.versions[0])
        object.__setattr__(self, "storage_version", storing)

    @property
    def persistent(self) -> bool:
        """Whether objects are records that can be read back; reviews and token requests are answers only."""
        return "get" in self.verbs

    @property
    def preferred(self) -> Version:
        """The first served version."""
        return next(version for version in self.versions if version.served)

    @property
    def qualified_name(self) -> str:
        """``deployments.apps``; ``pods`` for the core group. What messages and RBAC name."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def version(self, name: str) -> Version | None:
        """The served version of that name, or ``None``."""
        for version in self.versions:
            if version.name == name and version.served:
                return version
        return None


def api_version(group: str, version: str) -> str:
    """``apps/v1``; ``v1`` for the core group."""
    return f"{group}/{version}" if group else version


def parse_api_version(text: str) -> tuple[str, str]:
    """The (group, version) of an ``apiVersion``. Raises ``ValueError`` for a malformed one."""
    parts = text.split("/")
    if len(parts) > 2 or not all(parts):
        raise ValueError(f"unexpected GroupVersion string: {text}")
    return ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


class Catalog:
    """An immutable collection of resources: those of one space.

    Later resources with the same group and plural take the place of earlier ones (a tenant's own CRD wins
    over a published one, TS12).
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._by_place = {(resource.group, resource.plural): resource for resource in resources}
        self._resources = tuple(self._by_place.values())
        self._by_plural: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._by_version: dict[tuple[str, str], list[Resource]] = {}
        for resource in self._resources:
            for version in resource.versions:
                if version.served:
                    self._by_plural[resource.group, version.name, resource.plural] = resource
                    self._by_kind.setdefault((resource.group, version.name, resource.kind), resource)
                    self._by_version.setdefault((resource.group, version.name), []).append(resource)
        for found in self._by_version.values():
            found.sort(key=lambda resource: resource.plural)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources)

    def __len__(self) -> int:
        return len(self._resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource served under this group, version and plural name, or ``None``."""
        return self._by_plural.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource served with this group, version and kind, or ``None``."""
        return self._by_kind.get((group, version, kind))

    def by_group_kind(self, group: str, kind: str) -> Resource | None:
        """The resource of a kind whatever its version (owner references, quota scopes), or ``None``."""
        return next((r for r in self._resources if r.kind == kind and r.group == group), None)

    def by_group_resource(self, group: str, plural: str) -> Resource | None:
        """The resource of that plural name whatever its version (RBAC, quota), or ``None``."""
        return self._by_place.get((group, plural))

    @cached_property
    def _groups(self) -> dict[str, tuple[str, ...]]:
        groups: dict[str, dict[str, int]] = {}
        for resource in self._resources:
            versions = groups.setdefault(resource.group, {})
            for version in resource.versions:
                if version.served:
                    versions.setdefault(version.name, len(versions))
        return {group: tuple(sorted(groups[group], key=version_order)) for group in sorted(groups, key=_group_order)}

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group → served versions, both in the real server's order, the preferred version first."""
        return self._groups

    def in_version(self, group: str, version: str) -> list[Resource]:
        """The resources served under ``group/version``, sorted by plural name."""
        return list(self._by_version.get((group, version), ()))

    def extended(self, resources: Iterable[Resource]) -> Catalog:
        """A catalog with these resources as well (a space's CRDs)."""
        return Catalog((*self._resources, *resources))

    def for_tenants(self) -> Catalog:
        """What a tenant space holds or shows: the rest does not exist there, in discovery or otherwise (TS13, AD4)."""
        shown = {TenantScope.TENANT: None, TenantScope.SHOWN: READ_VERBS}
        return Catalog(
            replace(r, verbs=verbs) if (verbs := shown[r.tenant_scope]) else r
            for r in self._resources
            if r.tenant_scope in shown
        )


_GROUP_PRIORITY: Final = {
    group: priority
    for priority, group in enumerate(
        (
            "",
            "apiregistration.k8s.io",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "resource.k8s.io",
            "flowcontrol.apiserver.k8s.io",
        )
    )
}


def _group_order(group: str) -> tuple[int, str]:
    return (_GROUP_PRIORITY.get(group, len(_GROUP_PRIORITY)), group)


def version_order(name: str) -> tuple[int, int, int, str]:
    """A sort key for Kubernetes' version order: v2, v1, v1beta2, v1beta1, v1alpha1, then other names."""
    found = _VERSION.fullmatch(name)
    if found is None:
        return (0, 0, 0, name)
    major, level, minor = found.groups()
    return ({None: -3, "beta": -2, "alpha": -1}[level], -int(major), -int(minor or 0), name)


_VERSION: Final = re.compile("v([1-9][0-9]{0,8})(?:(alpha|beta)([1-9][0-9]{0,8}))?")
