"""The quota of the tenant where objects live on a cluster: reserved before, settled after, counted all the while (AD1, AD2).

``placedledger.py`` commits what is decided here. No unit is over among what comes in here, whatever becomes of the process
or the cluster in between; and what a crash leaves reserved is given back by the next count after its end. A count waits
for nobody, and nobody for it: what is reserved is known again among what is there (``kube/quota/placedusage.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.quotarefusals import NamespaceQuotas, QuotaRefusals
from access.admission.tenancy.placedledger import Count, LockOf, Page, PlacedLedger
from access.admission.tenancy.tenantquota import RULE
from kube.quota import tenantquotas
from kube.quota.placedusage import Counted, PlacedUsage
from kube.quota.podresources import Amounts
from kube.quota.quantities import InvalidQuantity
from kube.quota.refusals import read_exceeded
from kube.quota.reservations import Reservation
from kube.quota.tenantquotas import PLACED_USAGES, TenantQuota, UsageRule, difference
from kube.quota.usage import QuotaExceeded
from kube.requests.status import BadRequest, Forbidden, StatusError
from store.interface import Store
from store.types import Key, Operation

logger = logging.getLogger(__name__)

RESERVED_SECONDS: Final = 180.0
"""Longer than a write waits at the door, and a cluster works at it then."""

ASKED_SECONDS: Final = 75.0
"""Longer than a cluster works at what it has asked about: its ``--request-timeout``, a minute, and the difference of clocks."""

_GONE_SECONDS: Final = 0.2
"""So long after its deletion was asked about an object is mostly gone: who looks sooner may find it still."""

_ENDING_SECONDS: Final = 1.0
"""How long what ends waits to be noted with what is taken in its namespace; then it is noted by itself."""

_TURN_SECONDS: Final = 0.05

_ENDING_MOST: Final = 128
"""More that ended in one namespace is noted in the next turn: what holds the loop is bounded, whoever deletes how much."""

_LONGEST: Final = 1024
"""Characters of what clusters call objects and their versions: more than Kubernetes' own have."""

COUNTED: Final = frozenset({"", "resize", "scale", "status"})
"""Subresources by which an object may come to take more: of what is written there, what ``tenantquotas.wished`` says."""

Demand = Callable[[TenantQuota], Amounts]


class PlacedQuotas:
    """What tenants hold in their placed namespaces.

    ``rules`` count what Kubernetes does not; ``quotas`` are those of the namespaces on their clusters; ``count`` is asked
    for what nobody has counted yet; ``turns`` are those of who writes to stored namespaces.
    """

    def __init__(
        self, store: Store, rules: tuple[UsageRule, ...], quotas: NamespaceQuotas, count: Count, turns: LockOf
    ) -> None:
        self._ledger = PlacedLedger(store, rules, count, turns)
        self._refusals = QuotaRefusals(store, quotas)
        self._ending: dict[Key, dict[str, float]] = {}
        """The UIDs of what ends in each namespace, the first first, until it is noted; and since when, by the loop's clock."""
        self._touching: asyncio.Task[None] | None = None

    async def quota(self, space: str) -> TenantQuota | None:
        """The quota that holds in a space as this process knows it; ``None`` while its tenant is being made."""
        return await self._ledger.quota(space)

    async def has_room(self, space: str) -> bool:
        """Whether its tenant uses no more than half of anything that its quota bounds, as far as this process knows."""
        return await self._ledger.has_room(space)

    async def reserve(
        self,
        place: Key,
        request: str,
        demand: Demand,
        write: Reservation,
        *,
        from_door: bool = False,
        dry_run: bool = False,
        together: Sequence[Operation] = (),
    ) -> bool:
        """Take what a write needs, and note it with that; whether it needed anything, and has to be settled.

        What a cluster asks about again is taken once, the most of it; so is what the door has taken already, where the
        write may come ``from_door``. What is taken is kept ``together`` with other things, or not at all. Raises
        ``QuotaExceeded``, ``InvalidQuantity``, ``PreconditionFailed`` for those, ``TooManyRequests`` and
        ``ServiceUnavailable``.
        """
        request = _short(request)
        write = write._replace(what=_short(write.what), uid=_short(write.uid), version=_short(write.version))
        known = await self.quota(place.space)
        try:
            taken = _grown(demand, known)
        except QuotaExceeded:
            taken = None  # What refuses must be the newest.
        if taken == {}:
            return False

        noted: Collection[str] = ()

        def put(page: Page, usage: PlacedUsage) -> None:
            nonlocal noted
            noted = self._gone(place)
            page.put(place, usage.found(*noted))

        def judge(page: Page) -> bool:
            grown = taken if page.quota is known and taken is not None else _grown(demand, page.quota)
            if page.quota is None or not grown:
                return False
            usage = page.usage(place) or PlacedUsage()
            asked = write._replace(amounts=grown)
            again = usage.asked_again(asked) if asked.uid else None
            if again is not None:
                more = difference(again.total, usage.total)
                page.quota.check({name: amount for name, amount in more.items() if amount.nanos > 0}, page.used)
                if not dry_run:
                    put(page, again)
                return True
            passed_on = usage.under_way(asked) if from_door and not dry_run else None
            if passed_on is not None:
                put(page, usage.passed_on(passed_on, asked))
                return True
            if asked.uid and not dry_run:
                usage = usage.untied(asked)
                # Who is refused has been asked about all the same: its door hears of that alone.
                page.put(place, usage)
            page.quota.check(grown, page.used)
            if dry_run:
                return False
            put(page, usage.with_reservation(request, asked))
            return True

        settles = await self._ledger.change(place, judge, together=together)
        self._noted(place, noted)
        return settles

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

        def judge(page: Page) -> None:
            usage = page.usage(place)
            if usage is not None and request in usage.reserved:
                page.put(place, usage.confirmed(request) if made else usage.without(request))

        await self._ledger.change(place, judge)

    async def touch(self, place: Key, *ending: str) -> None:
        """Have it counted again soon. What was taken for objects of UIDs ``ending`` goes with the next look: they were there."""

        def judge(page: Page) -> None:
            usage = page.usage(place)
            if usage is not None:
                page.put(place, usage.found(*ending))

        await self._ledger.change(place, judge)

    def touch_soon(self, place: Key, ending: str) -> None:
        """As ``touch``, and nobody waits: with what is taken there next, or soon. What is lost stays taken until its end."""
        self._ending.setdefault(place, {}).setdefault(_short(ending), asyncio.get_running_loop().time())
        if self._touching is None or self._touching.done():
            self._touching = asyncio.create_task(self._touch())

    def _gone(self, place: Key) -> Collection[str]:
        """What has ended in a namespace, and is not noted, the first first."""
        latest = asyncio.get_running_loop().time() - _GONE_SECONDS
        first = islice(self._ending.get(place, {}).items(), _ENDING_MOST)
        return [uid for uid, since in first if since <= latest]

    def _noted(self, place: Key, ended: Collection[str]) -> None:
        left = self._ending.get(place, {})
        for uid in ended:
            left.pop(uid, None)
        if not left:
            self._ending.pop(place, None)

    async def _touch(self) -> None:
        while self._ending:
            await asyncio.sleep(_TURN_SECONDS)
            # Each namespace when it is due: all at once would be in the way of whoever waits for an answer.
            latest = asyncio.get_running_loop().time() - _ENDING_SECONDS
            due = [place for place, ending in self._ending.items() if next(iter(ending.values())) <= latest]
            touched = list[Awaitable[None]]()
            for place in due:
                touched.append(self.touch(place, *(gone := self._gone(place))))
                self._noted(place, gone)
            for failed in await asyncio.gather(*touched, return_exceptions=True):
                if isinstance(failed, Exception):
                    logger.info("what ends in a placed namespace stays taken until its end: %s", failed)

    async def recount(
        self, place: Key, count: Callable[[TenantQuota], Awaitable[Sequence[Counted]]], now: float
    ) -> float:
        """Put what is there in place of what was counted before; when to look again at the latest, in Unix seconds.

        Whoever writes meanwhile loses nothing by it, and does not keep it from being counted. What was done before the look
        is what this process knew of then: what it did not know yet waits for the next one.
        """
        before = await self._ledger.usage(place) or PlacedUsage()
        quota = await self.quota(place.space)
        if quota is None:
            return math.inf
        found = await count(quota)

        def judge(page: Page) -> float:
            usage = page.usage(place) or PlacedUsage()
            if usage.turn != before.turn:
                return now
            counted = usage.recounted(found, before, now)
            # Thousands may be open: whether any of them is another one, nobody has to compare.
            if counted.reserved is not usage.reserved or counted != usage:
                page.put(place, counted._replace(turn=usage.turn + 1))
            return counted.ends

        return await self._ledger.change(place, judge)

    async def forget(self, place: Key) -> None:
        """The namespace is gone, with what was in it."""

        def judge(page: Page) -> None:
            if page.usage(place) is not None:
                page.put(place, None)

        await self._ledger.change(place, judge)


def _grown(demand: Demand, quota: TenantQuota | None) -> Amounts:
    """What a write takes more of a quota, of names of which it takes any. Raises what ``demand`` does."""
    if quota is None:
        return {}
    return {name: amount for name, amount in demand(quota).items() if amount.nanos > 0}


def _short(text: str) -> str:
    """What a cluster says, as it is kept: of what is longer than any of Kubernetes' names, what tells it from others."""
    if len(text) <= _LONGEST:
        return text
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def version_of(body: Any) -> str:
    """That of an object which a write replaces; empty where there is none."""
    return str(((body or {}).get("metadata") or {}).get("resourceVersion") or "")


class ClusterQuotaAdmission(NoopPlugin):
    """The quota over what a cluster asks about, whoever writes it there (GW17). ``line_up`` as for stored namespaces.

    It is the last plug-in: what the others keep, or hold, is kept and held in the commit of what is taken.
    """

    name = "TenantQuota"

    def __init__(self, quotas: PlacedQuotas, line_up: Callable[[str, str, str], None]) -> None:
        self._quotas = quotas
        self._line_up = line_up

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what exceeds the quota; what is admitted is taken, unless it is a dry run."""
        place, body, old = usage_key(attributes.cluster, attributes.namespace), attributes.object, attributes.old
        of = attributes.resource.storage_key
        quota = await self._quotas.quota(attributes.cluster)
        if quota is None or not quota.concerns(*of, attributes.subresource):
            return ()
        if attributes.operation == DELETE and not attributes.dry_run:
            self._quotas.touch_soon(place, str(((old or {}).get("metadata") or {}).get("uid") or ""))
        if body is None or attributes.operation not in (CREATE, UPDATE) or attributes.subresource not in COUNTED:
            return ()
        wished = tenantquotas.wished(*of, attributes.subresource, old, body)
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
            taken = await self._quotas.reserve(
                place,
                write.asked,
                lambda quota: quota.change(*of, old, wished, now=moment),
                write,
                from_door=attributes.principal.name.startswith(f"system:serviceaccount:{attributes.namespace}:"),
                dry_run=attributes.dry_run,
                together=() if attributes.dry_run else tuple(attributes.together),
            )
        except QuotaExceeded as error:
            key = Key(attributes.cluster, *of, attributes.namespace, attributes.name)
            raise await self._quotas.refusal(error, key, body) from None
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None
        if taken:
            attributes.together.clear()
        return ()


def usage_key(space: str, namespace: str) -> Key:
    """Where it is kept what a placed namespace holds."""
    return Key(space, *PLACED_USAGES, "", namespace)
