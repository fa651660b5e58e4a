"""The quota of the tenant, settled in the same transaction as the object's write, so never one unit over (AD1 to AD3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.quotarefusals import QuotaRefusals
from access.admission.tally import LOOKS_MAX, Tally
from access.admission.tenancy.placedbooks import read_book
from kube.objects.strategies import finished
from kube.quota import tenantquotas
from kube.quota.quantities import InvalidQuantity, Quantity
from kube.quota.refusals import Bound, tenant_bound
from kube.quota.tenantquotas import TENANT_QUOTAS, TenantQuota, UsageRule
from kube.quota.usage import UNTIL_GONE, QuotaExceeded
from kube.requests.logicalclusters import is_tenant_space, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import BadRequest, Forbidden
from kube.workspaces.types import WORKSPACES
from store.interface import Store
from store.pace import Pace
from store.types import Create, Key, Operation, Range, Stored, Update
from tenants.quotas import tenant_quota_key

_NONE: Final = Quantity()
_KNOWN_MAX: Final = 4096
_CONCERNS_MAX: Final = 256
"""Resources of which it is remembered whether a quota concerns them: there are fewer, but tenants may define any."""
RULE: Final = f"TenantQuota {tenantquotas.NAME}"
"""What the trace of a request that it refuses calls it."""

Served = Callable[[str], Awaitable[Sequence[tuple[str, str, str]]]]
"""The (group, plural, name in the store) of whatever a logical cluster keeps objects of."""


class _Known(NamedTuple):
    """A quota that has been read: at which revision, what it says, and which resources it concerns, as far as that was asked.

    Most writes ask only that; those that count change what is used, and leave the rest as it is.
    """

    revision: int
    body: Mapping[str, Any]
    quota: TenantQuota
    concerns: dict[tuple[str, str], bool]


class TenantQuotaAdmission(NoopPlugin):
    """Counts every write in a tenant's space, and in the workspaces below it, against the tenant's quota.

    Each write that changes what is used also replaces the ``TenantQuota`` object, on the revision that it counted from:
    when another write was faster, the store refuses all of it and the request is admitted anew. ``line_up`` is told of
    the resources that are counted, so that writers of one process take turns instead of colliding. What is used of a
    name that nobody has counted yet is counted first.

    It is the last plug-in: what the others keep together with the object counts as well.
    """

    name = "TenantQuota"
    changes = frozenset({TENANT_QUOTAS})

    def __init__(
        self,
        store: Store,
        served: Served,
        rules: tuple[UsageRule, ...],
        line_up: Callable[[str, str, str], None],
    ) -> None:
        self._store = store
        self._served = served
        self._rules = rules
        self._line_up = line_up
        self._refusals = QuotaRefusals(store)
        self._known: dict[str, _Known] = {}
        """By space: the newest that was read."""

    async def admit(self, attributes: Attributes) -> None:
        """Fill in the status of a quota that is changed: what is limited, and what is used already."""
        body = attributes.object
        if attributes.place != TENANT_QUOTAS or body is None or attributes.operation != UPDATE:
            return
        try:
            quota = self._read(attributes.cluster, body)
            used = await self.count(attributes.cluster, quota)
        except (InvalidQuantity, KeyError, TypeError, AttributeError):
            return  # Validation says what is wrong.
        body["status"] = tenantquotas.with_used(body, used)["status"]
        for name, (taken, limit) in tenantquotas.beyond(quota, used).items():
            attributes.warnings.append(
                f"{name}: {taken} used, {limit} allowed: nothing is taken away, and nothing more is admitted"
            )

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what exceeds the quota, or changes it; otherwise returns its new status."""
        if attributes.place == TENANT_QUOTAS:
            _protect(attributes)
            return ()
        tenant = tenant_of(attributes.cluster)
        if tenant == SYSTEM_TENANT:
            return ()
        key = tenant_quota_key(tenant)
        stored = self._store.peek(key) or await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            return ()  # The tenant is being made, or is gone: its own plug-in refuses what comes in.
        try:
            return await self._settle(attributes, stored)
        except Forbidden:
            # What refuses must be the newest state: others may have given back what is missing here.
            newest = await self._store.get(key)
            if newest is None or newest.revision == stored.revision:
                raise
            return await self._settle(attributes, newest)

    async def _settle(self, attributes: Attributes, stored: Stored) -> Sequence[Operation]:
        bound: Bound | None = None
        try:
            known = self._find(stored)
            if self._concerns(known, *attributes.resource.storage_key):
                self._line_up(stored.key.space, *attributes.resource.place)
            elif Create not in map(type, attributes.together):
                return ()
            body, quota = known.body, known.quota
            change = _change(attributes, quota, attributes.object)
            if not change:
                return ()
            used = tenantquotas.used_of(body)
            if not quota.hard.keys() <= used.keys():
                used = await self.count(stored.key.space, quota)
            bound = tenant_bound(quota.hard, used)
            if attributes.operation != DELETE:
                # What a status tells is so: it counts, and is not refused.
                new, written = attributes.object, (*attributes.resource.storage_key, attributes.subresource)
                wished = tenantquotas.wished(*written, attributes.old, new)
                asked = change if wished is new else _change(attributes, quota, wished)
                quota.check({name: amount for name, amount in asked.items() if amount.nanos > 0}, used)
        except QuotaExceeded as error:
            key = Key(attributes.cluster, *attributes.resource.place, attributes.namespace, attributes.name)
            raise await self._refusals.refusal(error, key, attributes.object or {}, rule=RULE, known=bound) from None
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None
        settled = tenantquotas.with_used(body, tenantquotas.after(used, change))
        return (Update(stored.key, stored.revision, settled),)

    def _find(self, stored: Stored) -> _Known:
        space = stored.key.space
        known = self._known.get(space)
        if known is None or known.revision != stored.revision:
            body = orjson.loads(stored.data)
            if known is not None and known.body.get("spec") == body.get("spec"):
                known = _Known(stored.revision, body, known.quota, known.concerns)
            else:
                known = _Known(stored.revision, body, self._read(space, body), {})
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[space] = known
        return known

    def _concerns(self, known: _Known, group: str, plural: str) -> bool:
        concerned = known.concerns.get((group, plural))
        if concerned is None:
            concerned = known.quota.concerns(group, plural)
            if len(known.concerns) < _CONCERNS_MAX:
                known.concerns[group, plural] = concerned
        return concerned

    def _read(self, cluster: str, body: dict[str, Any]) -> TenantQuota:
        return tenantquotas.read_tenant_quota(tenant_of(cluster), body, self._rules)

    async def count(self, space: str, quota: TenantQuota) -> dict[str, Quantity]:
        """What the tenant has in its space, in every workspace below it and in placed namespaces, and was not published."""
        tally = _tally(quota)
        for _ in range(LOOKS_MAX):
            used, others = await self.look(space, quota, tally)
            if not others:
                break
        return used

    async def look(self, space: str, quota: TenantQuota, tally: Tally) -> tuple[dict[str, Quantity], bool]:
        """As ``count``, with what was looked at before; and whether others have had turns, and may have written meanwhile."""
        book, pace = await read_book(self._store, space), Pace()
        # Before anybody else has a turn, in which the book goes on.
        placed = list(book.totals())
        async for cluster in self._clusters(space):
            for group, plural, kept in await self._served(cluster):
                if quota.concerns(group, plural):
                    place = Range(cluster, group, kept)
                    await tally.look(place, plural, (await self._store.list(place)).items, pace)
        return quota.total([*placed, tally.used]), pace.turns > 0

    async def _clusters(self, space: str) -> AsyncIterator[str]:
        # Asked for first: with it everything is known that was defined there, which says what has to be counted.
        below_it = (await self._store.list(Range(space, *WORKSPACES))).items
        yield space
        for item in below_it:
            async for below in self._clusters(f"{space}:{item.key.name}"):
                yield below

    async def recount(self, tenant: str) -> bool:
        """Count a tenant's use afresh: what controllers make and remove is not settled on its way.

        Whether another amount is written now: what went while it was counted may be in it.
        """
        quota: TenantQuota | None = None
        tally: Tally | None = None
        try:
            for _ in range(LOOKS_MAX):
                # What counts is what it is before it is looked at what is there: whoever writes meanwhile replaces it.
                stored = await self._store.get(tenant_quota_key(tenant))
                if stored is None:
                    return False
                body = orjson.loads(stored.data)
                read = self._read(stored.key.space, body)
                if tally is None or read != quota:
                    quota, tally = read, _tally(read)
                used, others = await self.look(stored.key.space, read, tally)
                if not others:
                    break
        except InvalidQuantity:
            return False
        counted = tenantquotas.with_used(body, used)
        if stored is None or counted == body:
            return False
        await self._store.commit(Update(stored.key, stored.revision, counted))
        return True

    async def concerns(self, key: Key) -> bool:
        """Whether a tenant's quota bounds anything of what a key is of."""
        stored = await self._store.get(tenant_quota_key(tenant_of(key.space)), cached=True)
        try:
            return stored is not None and self._concerns(self._find(stored), key.group, key.resource.partition(":")[0])
        except InvalidQuantity:
            return False


def _tally(quota: TenantQuota) -> Tally:
    return Tally(lambda group, plural, body: quota.counted(group, plural, body, now=UNTIL_GONE))


def _change(attributes: Attributes, quota: TenantQuota, new: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """What is used more, and, below zero, less, by a write of ``new`` and what is kept together with it.

    What is there counts until it is gone, so that whoever takes it away gives back what whoever looks finds: once.
    """
    group, plural = attributes.resource.storage_key
    old = attributes.old
    if attributes.operation == DELETE or (new is not None and finished(new)):
        new = None
    change: dict[str, Quantity] = {}
    if attributes.operation in (CREATE, UPDATE, DELETE):
        change = quota.change(group, plural, old, new, now=UNTIL_GONE)
    for made in _made(attributes.together):
        counted = quota.counted(made.key.group, made.key.resource, made.body, now=UNTIL_GONE)
        change = {name: change.get(name, _NONE) + counted.get(name, _NONE) for name in {**change, **counted}}
    return {name: amount for name, amount in change.items() if amount.nanos}


def _made(operations: Sequence[Operation]) -> Iterator[Create]:
    return (operation for operation in operations if isinstance(operation, Create))


def _protect(attributes: Attributes) -> None:
    """The only one of a tenant is made with it and goes with it, and the system tenant alone changes it (AD1)."""
    if attributes.operation == CREATE:
        own = is_tenant_space(attributes.cluster)
        raise attributes.forbidden(
            f"every tenant has one quota, {tenantquotas.NAME}, which operators change"
            if own
            else "quotas of tenants are in the tenants' own spaces"
        )
    if attributes.operation == DELETE:
        raise attributes.forbidden("a tenant's quota cannot be removed, only changed, by operators")
    if not attributes.principal.is_system:
        raise attributes.forbidden("a tenant's quota is changed by operators alone")
