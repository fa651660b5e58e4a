"""The quotas of tenants, as Django code reads and writes them: objects in the tenants' spaces (AD1).

What is used is counted where writes are admitted (``access/admission/tenancy/tenantquota.py``).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import orjson
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.selectors import Page
from kube.quota import storedbytes, tenantquotas
from kube.quota.placedusage import read_placed_usage
from kube.quota.podresources import add, amounts
from kube.quota.quantities import Quantity
from kube.quota.reservations import written
from kube.quota.usage import Scope, read_scopes
from kube.requests.logicalclusters import ROOT, space_of
from kube.requests.names import SYSTEM_TENANT
from store import synchronous
from store.types import Create, Key, Range, Update
from tenants.clusters.objects import tier_of_namespace
from tenants.models import Cluster, Phase, Tenant, Tier

_VERSION: Final = f"{tenantquotas.GROUP}/{tenantquotas.VERSION}"
_PORTION: Final = 500
"""Counts of namespaces that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """What may be, and what is, by resource name, of what is in all ``scopes``. ``namespace`` is empty for the tenant's."""

    hard: Mapping[str, str]
    used: Mapping[str, str]
    namespace: str = ""
    name: str = tenantquotas.NAME
    scopes: tuple[Scope, ...] = ()

    @property
    def beyond(self) -> dict[str, str]:
        """How much is used of the names of which more is used than may be: nothing more of them is admitted."""
        quota = tenantquotas.read_tenant_quota("", {"spec": {"hard": self.hard}}, ())
        return {name: used for name, (used, _) in tenantquotas.beyond(quota, amounts(self.used)).items()}


def tenant_quota(tenant: str) -> QuotaUse:
    """What a tenant may hold, and what it holds; nothing is bounded where no quota is."""
    stored = synchronous.get(tenant_quota_key(tenant))
    return _use(orjson.loads(stored.data)) if stored is not None else QuotaUse(hard={}, used={})


def namespace_quotas_page(tenant: str, *, after: str = "", limit: int = 50) -> Page[QuotaUse]:
    """The quotas of the namespaces of a tenant's space, by namespace and name, behind the cursor ``after``."""
    namespace, _, name = after.partition("/")
    selection = Range(space_of(tenant), "", "resourcequotas")
    found, more = synchronous.page(selection, limit=limit, after=(namespace, name))
    rows = [_use(orjson.loads(stored.data)) for stored in found]
    return Page(rows, f"{rows[-1].namespace}/{rows[-1].name}" if more else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedUse:
    """What a namespace on a cluster takes of the tenant's quota, as of the last look; nothing before there was one."""

    cluster: str
    namespace: str
    workspace: str
    used: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse:
    """What a tenant takes of its quota on one cluster: the sum of its namespaces there.

    ``namespaces`` are the first of them, ``more`` is how many others there are.
    """

    cluster: str
    used: Mapping[str, str]
    namespaces: tuple[PlacedUse, ...]
    more: int


def placed_use(tenant: Tenant, *, limit: int) -> list[ClusterUse]:
    """Which of a tenant's placed namespaces uses what, cluster by cluster: of each ``limit``, by name, and the sum of all."""
    rows = tenant.workspaces.filter(cluster__kind=Cluster.Kind.EXTERNAL).exclude(phase=Phase.DELETED)
    there: dict[str, dict[str, str]] = {}
    for cluster, namespace, name in rows.order_by("cluster__name", "k8s_namespace").values_list(
        "cluster__name", "k8s_namespace", "name"
    ):
        there.setdefault(cluster, {})[namespace] = name
    shown = {namespace for places in there.values() for namespace in islice(places, limit)}
    used: dict[str, Mapping[str, str]] = {}
    sums: dict[str, dict[str, Quantity]] = {cluster: {} for cluster in there}
    counts = Range(space_of(tenant.name), *tenantquotas.PLACED_USAGES)
    for stored in synchronous.objects_of(counts, portion=_PORTION):
        namespace, counted = stored.key.name, read_placed_usage(orjson.loads(stored.data)).counted
        for cluster, places in there.items():
            if namespace in places:
                sums[cluster] = add(sums[cluster], counted)
        if namespace in shown:
            used[namespace] = written(counted)
    return [
        ClusterUse(
            cluster=cluster,
            used=written(sums[cluster]),
            namespaces=tuple(
                PlacedUse(cluster=cluster, namespace=namespace, workspace=name, used=used.get(namespace, {}))
                for namespace, name in islice(places.items(), limit)
            ),
            more=max(0, len(places) - limit),
        )
        for cluster, places in there.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUse:
    """How many bytes a tenant's objects take, and may; ``hard`` is 0 where nothing bounds them."""

    used: int
    hard: int

    @property
    def amounts(self) -> tuple[dict[str, str], dict[str, str]]:
        """What may be, and what is, as a quota says it; neither where nothing bounds it."""
        if not self.hard:
            return {}, {}
        return {storedbytes.NAME: str(self.hard)}, {storedbytes.NAME: str(self.used)}


def stored_use(tenant: str) -> StoredUse:
    """What a tenant's objects take, as the API servers count and bound it (AD8)."""
    owner = synchronous.get(Key(ROOT, "", "tenants", "", tenant))
    body = orjson.loads(owner.data) if owner is not None else None
    namespaces = synchronous.objects_of(Range(space_of(tenant), "", "namespaces"), portion=_PORTION)
    names = {tier_of_namespace(orjson.loads(stored.data), body) for stored in namespaces}
    said = Tier.objects.filter(name__in=names).values_list("stored_mebibytes", flat=True)
    return StoredUse(used=synchronous.bytes_of(tenant), hard=storedbytes.bound(said, settings.TENANT_STORED_MEBIBYTES))


def tenant_quota_object(tenant: str, hard: Mapping[str, str]) -> tuple[Key, dict[str, Any]]:
    """A new tenant's quota. What is used is not known before somebody counts."""
    metadata = {
        "name": tenantquotas.NAME,
        "uid": str(uuid.uuid4()),
        "creationTimestamp": timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "selfLink": f"/apis/{_VERSION}/tenants/{tenant}/{tenantquotas.TENANT_QUOTAS[1]}/{tenantquotas.NAME}",
        "tenant": tenant,
    }
    body = {"apiVersion": _VERSION, "kind": "TenantQuota", "metadata": metadata}
    return tenant_quota_key(tenant), tenantquotas.with_hard(body, hard)


def tenant_quota_write(tenant: str, hard: Mapping[str, str]) -> None:
    """Bound what a tenant may hold, in the caller's transaction and last. Raises ``PreconditionFailed``."""
    stored = synchronous.get(tenant_quota_key(tenant))
    if stored is None:
        synchronous.commit([Create(*tenant_quota_object(tenant, hard))])
    else:
        body = tenantquotas.with_hard(orjson.loads(stored.data), hard)
        synchronous.commit([Update(stored.key, stored.revision, body)])


@transaction.atomic
def missing_tenant_quotas_create(hard: Mapping[str, str]) -> None:
    """Give tenants this quota that have none, for they are older than quotas of tenants (AD1)."""
    for name in Tenant.objects.exclude(name=SYSTEM_TENANT).values_list("name", flat=True):
        if synchronous.get(tenant_quota_key(name)) is None:
            synchronous.commit([Create(*tenant_quota_object(name, hard))])


@lru_cache(maxsize=4096)
def tenant_quota_key(tenant: str) -> Key:
    """Where a tenant's quota is kept."""
    return Key(space_of(tenant), *tenantquotas.TENANT_QUOTAS, "", tenantquotas.NAME)


def _use(body: Mapping[str, Any]) -> QuotaUse:
    status, metadata = body.get("status") or {}, body["metadata"]
    return QuotaUse(
        hard=(body.get("spec") or {}).get("hard") or {},
        used=status.get("used") or {},
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        scopes=read_scopes(body.get("spec") or {}),
    )
