"""Why a quota refuses, wherever a write came in: the amounts of the namespace and of the tenant together (AD2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from kube.quota import refusals, tenantquotas
from kube.quota.podresources import amounts
from kube.quota.quantities import InvalidQuantity
from kube.quota.refusals import Bound
from kube.quota.usage import QuotaExceeded
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden
from store.interface import Store
from store.types import Key, Range
from tenants.quotas import tenant_quota_key

NamespaceQuotas = Callable[[str, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""The ResourceQuotas of a namespace of a logical cluster, as far as whoever keeps them tells."""


class QuotaRefusals:
    """Says it. ``quotas`` are asked for only once something is refused."""

    def __init__(self, store: Store, quotas: NamespaceQuotas | None = None) -> None:
        """Without ``quotas``, those of stored namespaces."""
        self._store = store
        self._quotas = quotas or self._stored

    async def refusal(
        self,
        error: QuotaExceeded,
        place: Key,
        item: Mapping[str, Any],
        *,
        rule: str,
        known: Bound | None = None,
    ) -> Forbidden:
        """The 403 for an object at this place that a quota, the ``rule``, does not admit.

        What is ``known`` of the namespace, or of the tenant, already is not asked for.
        """
        bounds = []
        if known is not None and not known.of_tenant:
            bounds.append(known)
        elif place.namespace and error.requested:
            quotas = await self._quotas(place.space, place.namespace)
            bounds += refusals.namespace_bounds(quotas, place.group, place.resource, item)
        bounds += [known] if known is not None and known.of_tenant else await self._tenant(place.space)
        return refusals.refusal(error, place.group, place.resource, place.name, rule=rule, bounds=bounds)

    async def _tenant(self, space: str) -> list[Bound]:
        tenant = tenant_of(space)
        stored = await self._store.get(tenant_quota_key(tenant)) if tenant != SYSTEM_TENANT else None
        if stored is None:
            return []
        body = orjson.loads(stored.data)
        try:
            return [refusals.tenant_bound(amounts(body["spec"]["hard"]), tenantquotas.used_of(body))]
        except (InvalidQuantity, KeyError, TypeError):
            return []

    async def _stored(self, space: str, namespace: str) -> Sequence[Mapping[str, Any]]:
        listing = await self._store.list(Range(space, "", "resourcequotas", namespace))
        return [orjson.loads(stored.data) for stored in listing.items]
