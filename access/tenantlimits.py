"""Which limits a tenant has: those of its tiers, as the log of the store tells them to every process (AD6, AD8).

A tenant whose namespaces are of several tiers has the most generous of their limits; where no tier says anything, those
of the server's flags and settings hold. Nothing is asked of the database for a request: a tenant's are read once from what
the process holds in memory, and again when one of its namespaces, or a tier, was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import orjson

from access.requestlimits import TenantThrottle
from kube.quota import storedbytes
from kube.requests.logicalclusters import ROOT, is_tenant_space, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.ratelimits import Limits, most_generous
from store.interface import Reader, Store
from store.types import Event, Key, Range, Room
from tenants.clusters.objects import tier_of_namespace
from tenants.policies import TIER_LIMITS, kept_limits

_NAMESPACES: Final = ("", "namespaces")
_TENANTS: Final = ("", "tenants")

LIMITING: Final = (_NAMESPACES, _TENANTS, TIER_LIMITS)
"""The resources of which ``changed_by`` says anything."""


def changed_by(event: Event) -> str | None:
    """The tenant whose limits an event may have changed; ``None`` for all of them, empty for nobody's."""
    key = event.key
    place = key[1:3]
    if place == TIER_LIMITS:
        return None
    if place == _NAMESPACES and is_tenant_space(key.space):
        return tenant_of(key.space)
    return key.name if place == _TENANTS else ""


async def said_by_tiers(store: Reader, tenant: str) -> list[Mapping[str, int]]:
    """What each tier of a tenant's namespaces says; nothing where no tier at all says anything."""
    listing = await store.list(Range(ROOT, *TIER_LIMITS), cached=True)
    said = {stored.key.name: kept_limits(stored.data) for stored in listing.items}
    if not any(said.values()):
        return []
    owner = await store.get(Key(ROOT, *_TENANTS, "", tenant), cached=True)
    body = orjson.loads(owner.data) if owner is not None else None
    namespaces = await store.list(Range(space_of(tenant), *_NAMESPACES), cached=True)
    tiers = {tier_of_namespace(orjson.loads(stored.data), body) for stored in namespaces.items}
    return [said.get(tier, {}) for tier in sorted(tiers - {""})]


class StoredBounds:
    """How many bytes the objects of each tenant may take; ``default`` is in mebibytes, 0 for no bound (AD8)."""

    def __init__(self, store: Reader, default: int) -> None:
        self._store = store
        self._default = default
        self._known: dict[str, int] = {}
        self._changes = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Forget what the events may have changed."""
        for tenant in map(changed_by, events):
            if tenant is None:
                self.forget()
            elif tenant:
                self._changes += 1
                self._known.pop(tenant, None)

    def forget(self) -> None:
        """The store's history is another one now."""
        self._changes += 1
        self._known.clear()

    async def of(self, tenant: str) -> int:
        """A tenant's; 0 is no bound."""
        limit = self._known.get(tenant)
        if limit is None:
            before = self._changes
            said = await said_by_tiers(self._store, tenant)
            limit = storedbytes.bound((each.get(storedbytes.SETTING) for each in said), self._default)
            if before == self._changes:
                self._known[tenant] = limit
        return limit

    async def room(self, key: Key) -> Room | None:
        """What a write of an object has that its tenant has asked for; ``None`` where nothing bounds it.

        Where there is none, ``Forbidden`` says so.
        """
        tenant = tenant_of(key.space)
        limit = await self.of(tenant) if tenant != SYSTEM_TENANT else 0
        if not limit:
            return None
        return Room(tenant, limit, partial(storedbytes.no_room, key.group, key.resource, key.name, limit=limit))


class TenantLimits:
    """Tells the throttle. ``limits`` are those of the flags."""

    def __init__(self, store: Store, throttle: TenantThrottle, limits: Limits) -> None:
        self._store = store
        self._throttle = throttle
        self._limits = limits
        self._changes = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Forget what the events may have changed."""
        for tenant in map(changed_by, events):
            if tenant is None:
                self.forget()
            elif tenant:
                self._forget(tenant)

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
        limits = await self._of(tenant) if tenant is not None and tenant != SYSTEM_TENANT else self._limits
        if before == self._changes:
            self._throttle.bound(tenant, limits)

    async def _of(self, tenant: str) -> Limits:
        found = [self._limits.with_settings(said) for said in await said_by_tiers(self._store, tenant)]
        return most_generous(found) if found else self._limits
