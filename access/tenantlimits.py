"""Which limits on requests a tenant has: those of its tiers, as the log of the store tells them to every process (AD6).

A tenant whose namespaces are of several tiers has the most generous of their limits; where no tier says anything, those
of the server's flags hold. Nothing is asked of the database for a request: a tenant's are read once from what the
process holds in memory, and again when one of its namespaces, or a tier, was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from access.requestlimits import TenantThrottle
from kube.requests.logicalclusters import ROOT, is_tenant_space, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.ratelimits import Limits, most_generous
from store.interface import Store
from store.types import Event, Key, Range
from tenants.clusters.objects import tier_of_namespace
from tenants.policies import TIER_LIMITS, kept_limits

_NAMESPACES: Final = ("", "namespaces")
_TENANTS: Final = ("", "tenants")


class TenantLimits:
    """Tells the throttle. ``limits`` are those of the flags, for all ``processes`` of a server together."""

    def __init__(self, store: Store, throttle: TenantThrottle, limits: Limits, processes: int) -> None:
        self._store = store
        self._throttle = throttle
        self._limits = limits
        self._processes = processes
        self._changes = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Forget what the events may have changed."""
        for event in events:
            key = event.key
            place = key[1:3]
            if place == TIER_LIMITS:
                self.forget()
            elif place == _NAMESPACES and is_tenant_space(key.space):
                self._forget(tenant_of(key.space))
            elif place == _TENANTS:
                self._forget(key.name)

    def forget(self) -> None:
        """The store's history is another one now."""
        self._changes += 1
        self._throttle.forget()

    def _forget(self, tenant: str) -> None:
        self._changes += 1
        self._throttle.forget(tenant)

    async def ensure(self, tenant: str | None) -> None:
        """Have the throttle know a tenant's limits."""
        before = self._changes
        limits = await self._of(tenant) if tenant not in (None, SYSTEM_TENANT) else self._limits
        if before == self._changes:
            self._throttle.bound(tenant, limits.shared_by(self._processes))

    async def _of(self, tenant: str | None) -> Limits:
        listing = await self._store.list(Range(ROOT, *TIER_LIMITS), cached=True)
        said = {stored.key.name: self._limits.with_settings(kept_limits(stored.data)) for stored in listing.items}
        if not said:
            return self._limits
        assert tenant is not None  # noqa: S101 - of whom nothing is asked
        owner = await self._store.get(Key(ROOT, *_TENANTS, "", tenant), cached=True)
        body = orjson.loads(owner.data) if owner is not None else None
        namespaces = await self._store.list(Range(space_of(tenant), *_NAMESPACES), cached=True)
        tiers = {tier_of_namespace(orjson.loads(stored.data), body) for stored in namespaces.items}
        found = [said.get(tier, self._limits) for tier in sorted(tiers - {""})]
        return most_generous(found) if found else self._limits
