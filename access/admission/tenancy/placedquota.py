"""The quota of the tenant where objects live on a cluster: reserved before, settled after, counted now and then (AD1, AD2).

One row of the store keeps what a placed namespace holds, and every change of its total replaces the ``TenantQuota`` object
in the same commit, on the revision that was counted from: writes to stored and to placed namespaces, in whichever process,
meet there. So no unit is over among what comes in here, whatever becomes of the process or the cluster in between; and
what a crash leaves reserved is given back by the next count after its end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from access.admission.tenancy.tenantquota import quota_key
from kube.quota import tenantquotas
from kube.quota.placedusage import PlacedUsage, Reservation, placed_usage_body, read_placed_usage
from kube.quota.podresources import Amounts
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import PLACED_USAGES, TenantQuota, UsageRule
from kube.requests.logicalclusters import tenant_of
from kube.requests.status import ServiceUnavailable
from store.interface import Store
from store.types import Create, Delete, Key, Operation, PreconditionFailed, Stored, Update

RESERVED_SECONDS: Final = 180.0
"""Longer than a cluster works at a request."""

FRESH_SECONDS: Final = 60.0
"""Within them a write is settled, unless something went away: nobody counts what may be seen and reserved at once."""

_ATTEMPTS: Final = 256
"""Every lost round means that another writer won."""

Demand = Callable[[TenantQuota], Amounts]


class PlacedQuotas:
    """What tenants hold in their placed namespaces. ``rules`` count what Kubernetes does not."""

    def __init__(self, store: Store, rules: tuple[UsageRule, ...]) -> None:
        self._store = store
        self._rules = rules

    async def quota(self, space: str) -> TenantQuota | None:
        """The quota that holds in a space; ``None`` while its tenant is being made."""
        stored = await self._store.get(quota_key(tenant_of(space)))
        return self._read(stored) if stored is not None else None

    async def reserve(self, place: Key, request: str, demand: Demand, *, now: float, dry_run: bool) -> bool:
        """Take what a write needs; whether it needed anything, and has to be settled.

        Raises ``QuotaExceeded``, ``InvalidQuantity``, and ``ServiceUnavailable`` before anybody has counted.
        """
        for attempt in range(_ATTEMPTS):
            stored = await self._store.get(quota_key(tenant_of(place.space)))
            if stored is None:
                return False
            quota, body = self._read(stored), orjson.loads(stored.data)
            grown = {name: amount for name, amount in demand(quota).items() if amount.nanos > 0}
            if not grown:
                return False
            used = tenantquotas.used_of(body)
            if not quota.hard.keys() <= used.keys():
                raise ServiceUnavailable("what the tenant holds is being counted, please try again", retry_after=1)
            quota.check(grown, used)
            if dry_run:
                return False
            row, usage = await self._row(place)
            reserved = usage.with_reservation(request, Reservation(amounts=grown, until=now + RESERVED_SECONDS))
            settled = tenantquotas.with_used(body, tenantquotas.after(used, grown))
            if await self._commit(_kept(place, row, reserved), Update(stored.key, stored.revision, settled)):
                return True
            await _pause(attempt)
        raise ServiceUnavailable("the tenant's quota is asked by many at once, please try again", retry_after=1)

    async def settle(self, place: Key, request: str, *, made: bool) -> None:
        """A write is done, or has come to nothing."""
        for attempt in range(_ATTEMPTS):
            row, usage = await self._row(place)
            found = usage.reserved.get(request)
            if found is None:
                return
            operations = [_kept(place, row, usage.confirmed(request) if made else usage.without(request))]
            if not made and (given_back := await self._changed(place, _given_back(found.amounts))) is not None:
                operations.append(given_back)
            if await self._commit(*operations):
                return
            await _pause(attempt)

    async def touch(self, place: Key) -> None:
        """Have it counted again soon."""
        row, usage = await self._row(place)
        if row is not None:
            await self._commit(_kept(place, row, usage))

    async def recount(
        self, place: Key, count: Callable[[TenantQuota], Awaitable[Sequence[Amounts]]], now: float
    ) -> bool:
        """Put what is there in place of what was counted before; whether nobody was writing meanwhile."""
        row, usage = await self._row(place)
        if any(each.until > now + RESERVED_SECONDS - FRESH_SECONDS for each in usage.reserved.values()):
            return False
        quota = await self.quota(place.space)
        if quota is None:
            return True
        counted = usage.recounted(await count(quota), now)
        if counted == usage:
            return True
        change = {
            name: counted.total.get(name, Quantity()) - usage.total.get(name, Quantity())
            for name in {**counted.total, **usage.total}
        }
        operations: list[Operation] = [_kept(place, row, counted)]
        if (
            any(amount.nanos for amount in change.values())
            and (update := await self._changed(place, change)) is not None
        ):
            operations.append(update)
        return await self._commit(*operations)

    async def forget(self, place: Key) -> None:
        """The namespace is gone, with what was in it."""
        row, usage = await self._row(place)
        if row is not None:
            update = await self._changed(place, _given_back(usage.total))
            await self._commit(Delete(row.key, row.revision, orjson.loads(row.data)), *([update] if update else []))

    async def _changed(self, place: Key, change: Amounts) -> Update | None:
        """The tenant's quota with so much more used, of what it bounds."""
        stored = await self._store.get(quota_key(tenant_of(place.space)))
        if stored is None:
            return None
        body = orjson.loads(stored.data)
        used = tenantquotas.used_of(body)
        known = {name: amount for name, amount in change.items() if name in used}
        return Update(stored.key, stored.revision, tenantquotas.with_used(body, tenantquotas.after(used, known)))

    async def _row(self, place: Key) -> tuple[Stored | None, PlacedUsage]:
        stored = await self._store.get(place)
        return stored, read_placed_usage(orjson.loads(stored.data)) if stored is not None else PlacedUsage()

    async def _commit(self, *operations: Operation) -> bool:
        try:
            await self._store.commit(*operations)
        except PreconditionFailed:
            return False
        return True

    def _read(self, stored: Stored) -> TenantQuota:
        return tenantquotas.read_tenant_quota(tenant_of(stored.key.space), orjson.loads(stored.data), self._rules)


def usage_key(space: str, namespace: str) -> Key:
    """Where it is kept what a placed namespace holds."""
    return Key(space, *PLACED_USAGES, "", namespace)


def _kept(place: Key, row: Stored | None, usage: PlacedUsage) -> Operation:
    body = placed_usage_body(place.name, usage)
    return Create(place, body) if row is None else Update(place, row.revision, body)


def _given_back(taken: Amounts) -> dict[str, Quantity]:
    return {name: -amount for name, amount in taken.items()}


async def _pause(attempt: int) -> None:
    await asyncio.sleep(random.random() * 0.002 * min(attempt, 10))  # noqa: S311 - jitter
