"""What a space serves: its catalog of resources, and each kind with its schema, structure and columns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import orjson

from kube.cel.rules import compilation
from kube.customresources.definitions import CRDS
from kube.customresources.validationcosts import reading_cost
from kube.kinds.builtins import BUILTINS, KUBERNETES_MINOR, TENANT_BUILTINS
from kube.kinds.mergestrategies import DEDUCED, Structure, structure_of
from kube.kinds.resources import Catalog, Resource, Subresource, Version, api_version
from kube.kinds.reststrategies import DEPRECATED
from kube.kinds.schemas import Definitions, Schema
from kube.kinds.tenantry import with_own_kinds
from kube.objects.columns import TableConvertor
from kube.objects.tables import convertor_of
from kube.requests.caches import Cache, CacheBudget
from kube.requests.logicalclusters import BOOTSTRAP, ROOT
from kube.requests.requestinfo import RequestInfo, not_found
from kube.requests.status import MethodNotAllowed, NoSuchPage, NotFound
from kube.workspaces.apiexports import SCHEMAS

_HEAVY: Final = 8_000
RULE: Final = 100
"""Values whose reading takes as long as that of a rule."""

_DEFINING: Final = frozenset({CRDS, SCHEMAS})

_SHOWN: Final = CacheBudget(32 * 1024 * 1024, parts=4)
"""Objects in other versions than they are kept in, of all kinds: as many bytes as the log that all watches share."""


@lru_cache(maxsize=1)
def definitions() -> Definitions:
    """The built-in kinds' definitions, read once from the installed package."""
    import kubernetes_validate

    package = Path(kubernetes_validate.__file__).parent
    folder = package / "kubernetes-json-schema" / f"v{KUBERNETES_MINOR}.0-local"
    published = Definitions.from_json((folder / "_definitions.json").read_bytes())
    # The package leaves them out, as Kubernetes' own published documents do; its servers show them.
    enums = orjson.loads(resources.files("kube.kinds").joinpath("enums.json").read_bytes())
    return with_own_kinds(published.with_enums(enums))


@dataclass(frozen=True, eq=False)
class Kind:
    """One served version of a resource, with everything that reading and writing it needs."""

    resource: Resource
    served: Version

    @cached_property
    def name(self) -> str:
        """The kind's name: ``ConfigMap``."""
        return self.resource.kind

    @cached_property
    def version(self) -> str:
        """The version's name: ``v1``."""
        return self.served.name

    @cached_property
    def api_version(self) -> str:
        """``apps/v1``; what objects carry in this version."""
        return api_version(self.resource.group, self.served.name)

    @cached_property
    def deprecation(self) -> str:
        """What is to be warned of with every answer; empty for nothing."""
        return DEPRECATED.get((self.resource.group, self.version, self.resource.plural), self.served.deprecation)

    @cached_property
    def schema(self) -> Schema | None:
        """The schema, or ``None`` for kinds that accept anything."""
        if self.resource.custom:
            return self.served.schema
        return definitions().schema(self.resource.group, self.served.name, self.resource.kind)

    @cached_property
    def structure(self) -> Structure:
        """How values of the kind merge."""
        return structure_of(self.schema) if self.schema is not None else DEDUCED

    @cached_property
    def table_convertor(self) -> TableConvertor:
        """The columns of ``kubectl get``."""
        return convertor_of(self.resource, self.served.name)

    @cached_property
    def has_status(self) -> bool:
        """Whether the status is written through a subresource of its own."""
        return self.served.subresource("status") is not None

    @cached_property
    def is_stored_version(self) -> bool:
        """Whether objects are kept in this version, so that their bytes can be served as they are.

        Not those of a definition that was changed: its schema may know no longer what it did when they were written.
        """
        resource = self.resource
        stored = resource.storage_group in (None, resource.group) and resource.storage_version.name == self.served.name
        return stored and not self.has_defaults and not resource.changed

    @cached_property
    def shown(self) -> Cache[bytes, bytes]:
        """Objects in this version by the bytes that they are kept as: one for all who look at the resource."""
        known: Cache[bytes, bytes] = self.resource.kept.setdefault(("shown", self.version), Cache(_SHOWN))
        return known

    @property
    def is_heavy(self) -> bool:
        """Whether to read all of its schema, or to compile one of its rules, would hold the loop."""
        return self.resource.weight > _HEAVY

    async def compile(self) -> None:
        """Make the rules of its objects ready, one a turn of the loop."""
        if self.resource.custom and self.schema is not None:
            for _ in compilation(self.schema):
                await asyncio.sleep(0)

    def defines(self, body: dict[str, Any]) -> int:
        """Values of other objects that take as long as what an object of this kind defines: schemas, patterns, rules."""
        return reading_cost(body.get("spec")) if self.resource.storage_key in _DEFINING else 0

    @cached_property
    def has_defaults(self) -> bool:
        """Whether the kind is custom and its schema has defaults, which objects written before them get when read."""
        return self.resource.custom and self.served.openapi is not None and _has_defaults(self.served.openapi)

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, or ``None``."""
        return self.served.subresource(name)

    def part(self, name: str) -> Kind:
        """The kind that a subresource takes where that is not the object's own: ``Scale``. Raises ``NotFound``."""
        part = self.subresource(name)
        if part is None:
            raise not_found()
        return _part_kind(part, namespaced=self.resource.namespaced)

    def list_prefix(self) -> dict[str, Any]:
        """The ``kind`` and ``apiVersion`` of a list."""
        return {"kind": self.resource.list_kind, "apiVersion": self.api_version}


@lru_cache(maxsize=64)
def _part_kind(part: Subresource, *, namespaced: bool) -> Kind:
    served = Version(name=part.version, storage=True)
    resource = Resource(
        group=part.group,
        kind=part.kind,
        plural=f"{part.kind.lower()}s",
        singular=part.kind.lower(),
        list_kind="",
        namespaced=namespaced,
        versions=(served,),
    )
    return Kind(resource, served)


def _has_defaults(source: Mapping[str, Any]) -> bool:
    """Whether a structural schema, as it was written, has defaults below its root; found without reading it all."""
    waiting = [source]
    while waiting:
        node = waiting.pop()
        below = [*(node.get("properties") or {}).values(), node.get("items"), node.get("additionalProperties")]
        parts = [part for part in below if isinstance(part, Mapping)]
        if any("default" in part for part in parts):
            return True
        waiting += parts
    return False


_SYSTEM_ONLY: Final = frozenset((r.group, r.plural) for r in BUILTINS) - {(r.group, r.plural) for r in TENANT_BUILTINS}


class Catalogs:
    """The catalogs of all spaces: the built-in one, extended by what is installed in a space (TS10 to TS12)."""

    def __init__(self) -> None:
        self._custom: dict[str, Catalog] = {}
        self._tenants = TENANT_BUILTINS
        self._kinds: dict[tuple[int, str, str, str], Kind | None] = {}

    def of(self, cluster: str) -> Catalog:
        """What this logical cluster serves."""
        own = self._custom.get(cluster)
        if own is not None:
            return own
        return BUILTINS if cluster in (ROOT, BOOTSTRAP) else self._tenants

    def extend(self, cluster: str, catalog: Catalog | None) -> None:
        """Let a space serve ``catalog`` from now on; ``None`` takes it back to the built-in one."""
        if self._custom.pop(cluster, None) is not None:
            self._kinds.clear()
        if catalog is not None:
            self._custom[cluster] = catalog

    def publish(self, catalog: Catalog | None) -> None:
        """Let all spaces without CRDs of their own serve ``catalog``; ``None`` takes them back (TS11)."""
        self._tenants = catalog or TENANT_BUILTINS
        self._kinds.clear()

    def kind(self, cluster: str, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a path, or ``None``."""
        catalog = self.of(cluster)
        key = (id(catalog), group, version, plural)
        try:
            return self._kinds[key]
        except KeyError:
            resource = catalog.find(group, version, plural)
            served = resource.version(version) if resource else None
            kind = Kind(resource, served) if resource is not None and served is not None else None
            if kind is not None:
                self._kinds[key] = kind
            return kind

    def require(self, info: RequestInfo) -> Kind:
        """The kind that a request names. Raises ``NotFound`` in kubectl's words, and for the wrong scope."""
        kind = self.kind(info.cluster, info.group, info.version, info.resource)
        if kind is None and info.group and self._is_nowhere(info):
            raise NoSuchPage
        if kind is None:
            raise not_found()
        if info.subresource and kind.subresource(info.subresource) is None:
            if not kind.resource.custom:
                raise not_found()
            # The path of a custom resource is one for all parts, so it is the object that is not found.
            resource = kind.resource
            words = f'{resource.qualified_name} "{info.name}" not found'
            raise NotFound(words, group=resource.group, kind=resource.plural, name=info.name)
        if info.namespace and not kind.resource.namespaced and info.resource != "namespaces":
            raise not_found()
        if kind.resource.namespaced and not info.namespace and info.verb not in ("list", "watch", "deletecollection"):
            if info.verb != "create":
                raise not_found()
            if kind.resource.persistent:
                raise MethodNotAllowed("the server does not allow this method on the requested resource")
        return kind

    def _is_nowhere(self, info: RequestInfo) -> bool:
        """Whether nobody answers for the group, or, for a group of custom resources, for the version."""
        catalog = self.of(info.cluster)
        versions = catalog.groups().get(info.group)
        if versions is None or info.version in versions:
            return versions is None
        return all(resource.custom for resource in catalog.in_version(info.group, versions[0]))

    def is_system_only(self, group: str, plural: str) -> bool:
        """Whether the resource belongs to the system space alone (AD4)."""
        return (group, plural) in _SYSTEM_ONLY
