"""Which limits a tenant has: those of its tiers, as the log of the store tells them to every process (AD6, AD8).

A tenant whose namespaces are of several tiers has the most generous of their limits; where no tier says anything, those
of the server's flags and settings hold. Nothing is asked of the database for a request: of which tiers a tenant's namespaces
are is learnt once from what the process holds in memory, and heard of from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import orjson

from access.requestlimits import TenantThrottle
from kube.quota import storedbytes
from kube.requests.logicalclusters import ROOT, is_tenant_space, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.ratelimits import Limits, most_generous
from store.interface import Store
from store.pace import Pace
from store.turns import Turns
from store.types import Event, EventType, Key, Range, Room
from tenants.clusters.objects import WORKSPACE_LABEL, tier_of_namespace
from tenants.policies import TIER_LIMITS, kept_limits

_NAMESPACES: Final = ("", "namespaces")
_TENANTS: Final = ("", "tenants")
_MARK: Final = WORKSPACE_LABEL.encode()
_SPACES_MAX: Final = 4_096

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


@dataclass(slots=True)
class _Namespaces:
    """Of which tiers the namespaces of a space are, ``None`` for that of the tenant's others, and how many of each."""

    tiers: dict[str, str | None] = field(default_factory=dict)
    many: Counter[str | None] = field(default_factory=Counter)
    heard: set[str] | None = field(default_factory=set)
    """Of which the log has told while the others are learnt; ``None`` once all are known."""

    def put(self, name: str, data: bytes) -> None:
        """There is this one."""
        self.drop(name)
        self.tiers[name] = tier = _own_tier(data)
        self.many[tier] += 1

    def drop(self, name: str) -> None:
        """There is none of this name."""
        if name in self.tiers:
            tier = self.tiers.pop(name)
            self.many[tier] -= 1
            if not self.many[tier]:
                del self.many[tier]


class TenantTiers:
    """The tiers of tenants, from the namespaces in the tenants' own spaces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spaces: dict[str, _Namespaces] = {}
        self._learning = Turns()
        store.subscribe(self._on_events, lost=self._spaces.clear, resources=[_NAMESPACES])

    async def said(self, tenant: str) -> list[Mapping[str, int]]:
        """What each tier of a tenant's namespaces says; nothing where no tier at all says anything."""
        listing = await self._store.list(Range(ROOT, *TIER_LIMITS), cached=True)
        said = {stored.key.name: kept_limits(stored.data) for stored in listing.items}
        if not any(said.values()):
            return []
        own = await self._of(space_of(tenant))
        owner = await self._store.get(Key(ROOT, *_TENANTS, "", tenant), cached=True)
        others = tier_of_namespace(None, orjson.loads(owner.data) if owner is not None else None)
        tiers = {others if tier is None else tier for tier in own}
        return [said.get(tier, {}) for tier in sorted(tiers - {""})]

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            found = self._spaces.get(event.key.space) if event.key[1:3] == _NAMESPACES else None
            if found is None:
                continue
            if found.heard is not None:
                found.heard.add(event.key.name)
            if event.type is EventType.DELETED:
                found.drop(event.key.name)
            else:
                found.put(event.key.name, event.data)

    async def _of(self, space: str) -> Collection[str | None]:
        while True:
            found = self._spaces.get(space)
            if found is not None and found.heard is None:
                return found.many.keys()
            async with self._learning.of(space):
                if self._spaces.get(space) is found:
                    await self._learn(space)

    async def _learn(self, space: str) -> None:
        if len(self._spaces) >= _SPACES_MAX:
            self._spaces.clear()
        found = self._spaces[space] = _Namespaces()
        listing = await self._store.list(Range(space, *_NAMESPACES), cached=True)
        async for stored in Pace().over(listing.items):
            # What has been heard of it since is newer.
            if found.heard is not None and stored.key.name not in found.heard:
                found.put(stored.key.name, stored.data)
        found.heard = None


def _own_tier(namespace: bytes) -> str | None:
    if _MARK not in namespace:
        return None
    body = orjson.loads(namespace)
    return tier_of_namespace(body, None) if WORKSPACE_LABEL in (body["metadata"].get("labels") or {}) else None


class StoredBounds:
    """How many bytes the objects of each tenant may take; ``default`` is in mebibytes, 0 for no bound (AD8)."""

    def __init__(self, tiers: TenantTiers, default: int) -> None:
        self._tiers = tiers
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
            said = await self._tiers.said(tenant)
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

    def __init__(self, tiers: TenantTiers, throttle: TenantThrottle, limits: Limits) -> None:
        self._tiers = tiers
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
        found = [self._limits.with_settings(said) for said in await self._tiers.said(tenant)]
        return most_generous(found) if found else self._limits
