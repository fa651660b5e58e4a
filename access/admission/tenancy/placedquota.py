"""The quota of the tenant where objects live on a cluster: reserved before, settled after, counted all the while (AD1, AD2).

One row of the store keeps what a placed namespace holds, and every change of its total replaces the ``TenantQuota`` object
in the same commit, on the revision that was counted from: writes to stored and to placed namespaces, in whichever process,
meet there. So no unit is over among what comes in here, whatever becomes of the process or the cluster in between; and
what a crash leaves reserved is given back by the next count after its end. A count waits for nobody, and nobody for it:
what is reserved is known again among what is there (``kube/quota/placedusage.py``).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.quotarefusals import NamespaceQuotas, QuotaRefusals
from access.admission.tenancy.tenantquota import RULE
from kube.quota import tenantquotas
from kube.quota.placedusage import Counted, PlacedUsage, Reservation, placed_usage_body, read_placed_usage
from kube.quota.podresources import Amounts
from kube.quota.quantities import InvalidQuantity, Quantity
from kube.quota.refusals import read_exceeded
from kube.quota.tenantquotas import PLACED_USAGES, TenantQuota, UsageRule
from kube.quota.usage import QuotaExceeded
from kube.requests.logicalclusters import space_of, tenant_of
from kube.requests.status import BadRequest, Forbidden, ServiceUnavailable, StatusError
from store.interface import Store
from store.types import Create, Delete, Key, Operation, PreconditionFailed, Stored, Update
from tenants.quotas import tenant_quota_key

RESERVED_SECONDS: Final = 180.0
"""Longer than a write waits at the door, and a cluster works at it then."""

ASKED_SECONDS: Final = 75.0
"""Longer than a cluster works at what it has asked about: its ``--request-timeout``, a minute, and the difference of clocks."""

_COUNTED: Final = frozenset({"", "resize"})
"""Subresources by which an object may come to take more."""

_ATTEMPTS: Final = 256
"""Every lost round means that a writer of another process won."""

_KNOWN_MAX: Final = 10_000

Demand = Callable[[TenantQuota], Amounts]

Turns = Callable[[str], AbstractAsyncContextManager[None]]
"""One writer at a time of what is used of the quota in a tenant's space, among those of this process."""

Count = Callable[[str, TenantQuota, float], Awaitable[Amounts]]
"""What a tenant holds, by the name of its space and its quota."""


class PlacedQuotas:
    """What tenants hold in their placed namespaces.

    ``rules`` count what Kubernetes does not; ``quotas`` are those of the namespaces on their clusters; ``count`` is asked
    for what nobody has counted yet. In their ``turns`` the writers of this process need one commit each, however many
    there are: those who fought for the same revision would lose all but one of each round, and some of them every round.
    """

    def __init__(
        self, store: Store, rules: tuple[UsageRule, ...], quotas: NamespaceQuotas, count: Count, turns: Turns
    ) -> None:
        self._store = store
        self._rules = rules
        self._count = count
        self._turns = turns
        self._refusals = QuotaRefusals(store, quotas)
        self._known: dict[Key, tuple[int, PlacedUsage]] = {}
        """What the rows say, by their revisions: most are read by whoever has written them."""

    async def quota(self, space: str) -> TenantQuota | None:
        """The quota that holds in a space; ``None`` while its tenant is being made."""
        stored = await self._store.get(tenant_quota_key(tenant_of(space)))
        return self._read(stored) if stored is not None else None

    async def reserve(
        self,
        place: Key,
        request: str,
        demand: Demand,
        write: Reservation,
        now: float,
        *,
        from_door: bool = False,
        dry_run: bool = False,
    ) -> bool:
        """Take what a write needs, and note it with that; whether it needed anything, and has to be settled.

        What a cluster asks about again is taken once; so is what the door has taken already, where the write may come
        ``from_door``. Raises ``QuotaExceeded``, ``InvalidQuantity``, and ``ServiceUnavailable``.
        """
        tenant = tenant_of(place.space)
        async with self._turns(space_of(tenant)):
            for attempt in range(_ATTEMPTS):
                # Nobody else of this process writes meanwhile, so what it knows is mostly the newest.
                newest = attempt > 0
                stored = await self._store.get(tenant_quota_key(tenant), cached=not newest)
                if stored is None:
                    return False
                quota, body = self._read(stored), orjson.loads(stored.data)
                try:
                    grown = {name: amount for name, amount in demand(quota).items() if amount.nanos > 0}
                    if not grown:
                        return False
                    row, usage = await self._row(place, newest=newest)
                    asked = replace(write, amounts=grown)
                    if asked.uid and usage.asked(asked):
                        return True
                    passed_on = usage.under_way(asked) if from_door else None
                    if passed_on is not None and not dry_run:
                        if await self._keep(place, row, usage.passed_on(passed_on, asked)):
                            return True
                        await _pause(attempt)
                        continue
                    used: Amounts = tenantquotas.used_of(body)
                    if not quota.hard.keys() <= used.keys():
                        used = await self._count(stored.key.space, quota, now)
                    quota.check(grown, used)
                except QuotaExceeded:
                    # What refuses must be the newest state: others may have given back what is missing here.
                    if newest:
                        raise
                    continue
                if dry_run:
                    return False
                reserved = (usage.untied(asked) if asked.uid else usage).with_reservation(request, asked)
                # One more than there were is this one; where names fell together, the sums tell.
                added = len(reserved.reserved) == len(usage.reserved) + 1
                more = grown if added else _difference(reserved.total, usage.total)
                settled = tenantquotas.with_used(body, tenantquotas.after(used, more))
                if await self._keep(place, row, reserved, Update(stored.key, stored.revision, settled)):
                    return True
                await _pause(attempt)
        raise ServiceUnavailable("the tenant's quota is asked by many at once, please try again", retry_after=1)

    async def refusal(self, error: QuotaExceeded, place: Key, item: Mapping[str, Any]) -> Forbidden:
        """The 403 for an object that the tenant's quota does not admit; ``place`` is the object's."""
        return await self._refusals.refusal(error, place, item, rule=RULE)

    async def explained(self, refused: StatusError, place: Key) -> StatusError:
        """What a cluster refuses, with the tenant's amounts beside those of the namespace where its quota is full."""
        exceeded = read_exceeded(refused.message)
        if exceeded is None:
            return refused
        error, bound = exceeded
        return await self._refusals.refusal(error, place, {}, rule=refused.rule, known=bound)

    async def settle(self, place: Key, request: str, *, made: bool) -> None:
        """A write is done, or has come to nothing: then it is given back at once."""
        async with self._turns(space_of(tenant_of(place.space))):
            for attempt in range(_ATTEMPTS):
                row, usage = await self._row(place)
                if request not in usage.reserved:
                    return
                settled = usage.confirmed(request) if made else usage.without(request)
                if await self._replace(place, row, usage, settled):
                    return
                await _pause(attempt)

    async def touch(self, place: Key, ending: str = "") -> None:
        """Have it counted again soon. What was taken for the object of UID ``ending`` goes with the next look: it was there."""
        async with self._turns(space_of(tenant_of(place.space))):
            for attempt in range(_ATTEMPTS):
                row, usage = await self._row(place)
                if row is None or await self._keep(place, row, usage.found(ending)):
                    return
                await _pause(attempt)

    async def recount(
        self, place: Key, count: Callable[[TenantQuota], Awaitable[Sequence[Counted]]], now: float
    ) -> float:
        """Put what is there in place of what was counted before; when to look again at the latest, in Unix seconds.

        Whoever writes meanwhile loses nothing by it, and does not keep it from being counted.
        """
        _, before = await self._row(place)
        quota = await self.quota(place.space)
        if quota is None:
            return math.inf
        found = await count(quota)
        async with self._turns(space_of(tenant_of(place.space))):
            for attempt in range(_ATTEMPTS):
                row, usage = await self._row(place)
                if usage.turn != before.turn:
                    return now
                counted = usage.recounted(found, before, now)
                if counted == usage or await self._replace(place, row, usage, replace(counted, turn=usage.turn + 1)):
                    return counted.ends
                await _pause(attempt)
        return now

    async def forget(self, place: Key) -> None:
        """The namespace is gone, with what was in it."""
        row, usage = await self._row(place)
        if row is not None:
            update = await self._changed(place, _difference({}, usage.total))
            await self._commit(Delete(row.key, row.revision, orjson.loads(row.data)), *([update] if update else []))

    async def _replace(self, place: Key, row: Stored | None, usage: PlacedUsage, other: PlacedUsage) -> bool:
        """Keep another usage, and, where its total is another, what the tenant's quota has of it; whether nobody was faster."""
        change = _difference(other.total, usage.total)
        update = await self._changed(place, change) if change else None
        return await self._keep(place, row, other, *([update] if update is not None else []))

    async def _changed(self, place: Key, change: Amounts) -> Update | None:
        """The tenant's quota with so much more used, of what it bounds."""
        stored = await self._store.get(tenant_quota_key(tenant_of(place.space)))
        if stored is None:
            return None
        body = orjson.loads(stored.data)
        used = tenantquotas.used_of(body)
        known = {name: amount for name, amount in change.items() if name in used}
        return Update(stored.key, stored.revision, tenantquotas.with_used(body, tenantquotas.after(used, known)))

    async def _row(self, place: Key, *, newest: bool = True) -> tuple[Stored | None, PlacedUsage]:
        stored = await self._store.get(place, cached=not newest)
        if stored is None:
            return None, PlacedUsage()
        known = self._known.get(place)
        if known is None or known[0] != stored.revision:
            known = stored.revision, read_placed_usage(orjson.loads(stored.data))
            self._note(place, *known)
        return stored, known[1]

    async def _keep(self, place: Key, row: Stored | None, usage: PlacedUsage, *more: Operation) -> bool:
        """Keep what a placed namespace holds, and more with it; whether nobody was faster."""
        try:
            kept, *_ = await self._store.commit(_kept(place, row, usage), *more)
        except PreconditionFailed:
            return False
        self._note(place, kept.revision, usage)
        return True

    def _note(self, place: Key, revision: int, usage: PlacedUsage) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[place] = revision, usage

    async def _commit(self, *operations: Operation) -> bool:
        try:
            await self._store.commit(*operations)
        except PreconditionFailed:
            return False
        return True

    def _read(self, stored: Stored) -> TenantQuota:
        return tenantquotas.read_tenant_quota(tenant_of(stored.key.space), orjson.loads(stored.data), self._rules)


def demand_of(quota: TenantQuota, place: tuple[str, str], old: Any, new: Any, now: datetime) -> dict[str, Quantity]:
    """What a write of an object takes more. Raises ``QuotaExceeded`` for a new one that does not state what it must."""
    if old is None:
        return quota.demand(*place, new, now=now)
    before, after = (quota.counted(*place, body, now=now) for body in (old, new))
    return _difference(after, before)


def version_of(body: Any) -> str:
    """That of an object which a write replaces; empty where there is none."""
    return str(((body or {}).get("metadata") or {}).get("resourceVersion") or "")


class ClusterQuotaAdmission(NoopPlugin):
    """The quota over what a cluster asks about, whoever writes it there (GW17). ``line_up`` as for stored namespaces."""

    name = "TenantQuota"

    def __init__(self, quotas: PlacedQuotas, line_up: Callable[[str, str, str], None]) -> None:
        self._quotas = quotas
        self._line_up = line_up

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what exceeds the quota; what is admitted is taken, unless it is a dry run."""
        place, body, old = usage_key(attributes.cluster, attributes.namespace), attributes.object, attributes.old
        of = attributes.resource.storage_key
        quota = await self._quotas.quota(attributes.cluster)
        if quota is None or not quota.concerns(*of):
            return ()
        if attributes.operation == DELETE and not attributes.dry_run:
            await self._quotas.touch(place, str(((old or {}).get("metadata") or {}).get("uid") or ""))
        if body is None or attributes.operation not in (CREATE, UPDATE) or attributes.subresource not in _COUNTED:
            return ()
        self._line_up(place.space, *of)
        moment = datetime.fromtimestamp(attributes.now, UTC)
        write = Reservation(
            amounts={},
            until=attributes.now + ASKED_SECONDS,
            what="/".join((*of, attributes.name)),
            uid=str((body.get("metadata") or {}).get("uid") or attributes.name),
            version=version_of(old),
        )
        try:
            await self._quotas.reserve(
                place,
                f"{write.uid}/{write.version}",
                lambda quota: demand_of(quota, of, old, body, moment),
                write,
                attributes.now,
                from_door=attributes.principal.name.startswith(f"system:serviceaccount:{attributes.namespace}:"),
                dry_run=attributes.dry_run,
            )
        except QuotaExceeded as error:
            key = Key(attributes.cluster, *of, attributes.namespace, attributes.name)
            raise await self._quotas.refusal(error, key, body) from None
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None
        return ()


def usage_key(space: str, namespace: str) -> Key:
    """Where it is kept what a placed namespace holds."""
    return Key(space, *PLACED_USAGES, "", namespace)


def _kept(place: Key, row: Stored | None, usage: PlacedUsage) -> Operation:
    body = placed_usage_body(place.name, usage)
    return Create(place, body) if row is None else Update(place, row.revision, body)


def _difference(new: Amounts, old: Amounts) -> dict[str, Quantity]:
    """What is more, and, below zero, less."""
    change = {name: new.get(name, Quantity()) - old.get(name, Quantity()) for name in {**new, **old}}
    return {name: amount for name, amount in change.items() if amount}


async def _pause(attempt: int) -> None:
    await asyncio.sleep(random.random() * 0.002 * min(attempt, 10))  # noqa: S311 - jitter
