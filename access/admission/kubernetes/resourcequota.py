"""ResourceQuotas: used amounts are settled in the same transaction as the object's write, so never one unit over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.quotarefusals import QuotaRefusals
from access.admission.rulesinforce import RULES_MAX, require_room, require_short
from access.admission.tally import LOOKS_MAX, Tally
from kube.objects.strategies import finished
from kube.quota import usage
from kube.quota.podresources import add, amounts
from kube.quota.quantities import InvalidQuantity, Quantity
from kube.quota.usage import ONCE_MARKED, Quota, QuotaExceeded
from kube.requests.status import BadRequest
from store.interface import Store
from store.pace import Pace
from store.types import Key, Operation, Range, Stored, Update

_NONE: Final = Quantity()
_QUOTAS: Final = ("", "resourcequotas")

Resources = Callable[[str], Sequence[tuple[str, str, str]]]
"""The namespaced (group, plural) pairs that a logical cluster serves."""


class ResourceQuota(NoopPlugin):
    """Counts every write against the namespace's quotas.

    Each write that changes what is used also replaces the quota objects, on the revisions that it counted from: when
    another write was faster, the store refuses all of it and the request is admitted anew. ``line_up`` is told which
    namespaces have quotas, so that writers of one process take turns instead of colliding.

    As in Kubernetes a pod that waits for nothing but its finalizers takes its place in the store alone, from its mark on
    (``ONCE_MARKED``): what it gives back by that is counted afresh (``recount``), never settled.
    """

    name = "ResourceQuota"
    changes = frozenset({_QUOTAS})

    def __init__(self, store: Store, resources: Resources, line_up: Callable[[str, str], None]) -> None:
        self._store = store
        self._resources = resources
        self._line_up = line_up
        self._refusals = QuotaRefusals(store)

    async def admit(self, attributes: Attributes) -> None:
        """Fill in the status of a quota that is written: what is limited, and what is used already."""
        body, resource = attributes.object, attributes.resource
        if resource.group or resource.plural != "resourcequotas" or body is None:
            return
        if attributes.subresource == "status" and not attributes.principal.is_system:
            body["status"] = (attributes.old or {}).get("status") or {}
        try:
            quota = usage.read_quota(body)
            tally = _tally([quota])
            for _ in range(LOOKS_MAX):
                if not await self._look(attributes.cluster, attributes.namespace, [quota], tally):
                    break
        except (InvalidQuantity, KeyError, TypeError, AttributeError):
            return  # Validation says what is wrong.
        used = [_part(tally, quota)]
        if attributes.operation == CREATE and _concerns(quota, "", "resourcequotas"):
            used.append(_counted(quota, "", "resourcequotas", body))
        body["status"] = _status(body, usage.total(used, quota))

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what exceeds a quota; otherwise returns the quotas' new status."""
        resource = attributes.resource
        if not attributes.namespace:
            return ()
        own = ""
        if attributes.place == _QUOTAS:
            require_short(attributes, "resourcequotas", "hard")
            await require_room(self._store, attributes, "", "resourcequotas", RULES_MAX)
            own = attributes.name
        place = Range(attributes.cluster, "", "resourcequotas", attributes.namespace)
        listing = await self._store.list(place, cached=True)
        if not listing.items:
            return ()
        self._line_up(attributes.cluster, attributes.namespace)
        operations: list[Operation] = []
        for stored in listing.items:
            if stored.key.name == own:
                continue  # It is what is written: what it counts of itself is settled with it.
            try:
                operation = self._settle(attributes, stored)
            except QuotaExceeded as error:
                key = Key(attributes.cluster, *resource.place, attributes.namespace, attributes.name)
                rule = f"ResourceQuota {stored.key.namespace}/{stored.key.name}"
                raise await self._refusals.refusal(error, key, attributes.object or {}, rule=rule) from None
            if operation is not None:
                operations.append(operation)
        return operations

    def _settle(self, attributes: Attributes, stored: Stored) -> Operation | None:
        """The quota's new status. Raises ``QuotaExceeded``, ``BadRequest``."""
        body = orjson.loads(stored.data)
        try:
            quota = usage.read_quota(body)
            used = amounts((body.get("status") or {}).get("used"))
            change = self._change(attributes, quota, attributes.object)
            if not change:
                return None
            if attributes.operation != DELETE:
                # What a status tells is so: it counts, and is not refused.
                new = attributes.object
                wished = usage.wished(attributes.subresource, attributes.old, new)
                asked = change if wished is new else self._change(attributes, quota, wished)
                usage.check(quota, {name: amount for name, amount in asked.items() if amount.nanos > 0}, used)
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None
        body["status"] = _status(body, add(used, change))
        return Update(stored.key, stored.revision, body)

    @staticmethod
    def _change(attributes: Attributes, quota: Quota, new: Mapping[str, Any] | None) -> dict[str, Any]:
        """What is used more, and, below zero, less: of what ends by the write, be it a change, all that it took."""
        group, plural = attributes.resource.storage_key
        old = attributes.old
        if attributes.operation == CREATE and new is not None:
            return usage.demand(quota, group, plural, new, now=ONCE_MARKED)
        if attributes.operation not in (UPDATE, DELETE) or old is None:
            return {}
        if attributes.operation == DELETE or (new is not None and finished(new)):
            new = None
        after = _counted(quota, group, plural, new) if new is not None else {}
        return _difference(after, _counted(quota, group, plural, old))

    async def _look(self, cluster: str, namespace: str, quotas: Collection[Quota], tally: Tally) -> bool:
        """Count what is there; whether others have had turns, and may have written meanwhile."""
        pace = Pace()
        for group, plural, kept in self._resources(cluster):
            if any(_concerns(quota, group, plural) for quota in quotas):
                place = Range(cluster, group, kept, namespace)
                await tally.look(place, plural, (await self._store.list(place)).items, pace)
        return pace.turns > 0

    async def recount(self, space: str, namespace: str, lost: Collection[tuple[str, str]] | None) -> bool:
        """Count afresh what is used of the quotas of a namespace that count any of the ``lost`` (group and name in the store).

        What the garbage collector removes is not settled on its way, nor are the marks of pods. ``None`` is for all. Whether
        another amount is written now: what went while it was counted may be in it.
        """
        place = Range(space, *_QUOTAS, namespace)
        known: list[Quota] = []
        tally = _tally(known)
        kept: list[tuple[Stored, dict[str, Any], Quota]] = []
        try:
            for _ in range(LOOKS_MAX):
                # What counts is what they are before it is looked at what is there: whoever writes meanwhile replaces them.
                kept = [each for each in map(_read, (await self._store.list(place)).items) if _counts(each[2], lost)]
                quotas = [quota for _, _, quota in kept]
                if quotas != known:
                    known, tally = quotas, _tally(quotas)
                if not quotas or not await self._look(space, namespace, quotas, tally):
                    break
        except InvalidQuantity:
            return False
        written: list[Operation] = []
        for stored, body, quota in kept:
            status = _status(body, usage.total([_part(tally, quota)], quota))
            if body.get("status") != status:
                written.append(Update(stored.key, stored.revision, {**body, "status": status}))
        if written:
            await self._store.commit(*written)
        return bool(written)


def _read(stored: Stored) -> tuple[Stored, dict[str, Any], Quota]:
    body = orjson.loads(stored.data)
    return stored, body, usage.read_quota(body)


def _counts(quota: Quota, lost: Collection[tuple[str, str]] | None) -> bool:
    return lost is None or any(_concerns(quota, group, kept.partition(":")[0]) for group, kept in lost)


def _tally(quotas: Collection[Quota]) -> Tally:
    """One for several quotas, so that what is there is read once."""

    def count(group: str, plural: str, body: Mapping[str, Any]) -> dict[str, Quantity]:
        return {
            f"{quota.name}/{name}": amount
            for quota in quotas
            for name, amount in _counted(quota, group, plural, body).items()
        }

    return Tally(count)


def _part(tally: Tally, quota: Quota) -> dict[str, Quantity]:
    """What is used of one of them."""
    split = ((name.partition("/"), amount) for name, amount in tally.used.items())
    return {name: amount for (of, _, name), amount in split if of == quota.name}


def _status(body: dict[str, Any], used: Mapping[str, Quantity]) -> dict[str, Any]:
    hard = dict((body.get("spec") or {}).get("hard") or {})
    return {"hard": hard, "used": {name: str(used[name]) for name in sorted(used) if name in hard}}


def _concerns(quota: Quota, group: str, plural: str) -> bool:
    """Whether the quota limits anything about the resource."""
    return usage.counts(replace(quota, scopes=()), group, plural, {})


def _difference(after: Mapping[str, Quantity], before: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What is more, and, below zero, what is less."""
    names = {**after, **before}
    changes = {name: after.get(name, _NONE) - before.get(name, _NONE) for name in names}
    return {name: amount for name, amount in changes.items() if amount.nanos}


def _counted(quota: Quota, group: str, plural: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object counts against the quota."""
    if not usage.counts(quota, group, plural, body):
        return {}
    consumed = usage.held(group, plural, body, now=ONCE_MARKED)
    return {name: amount for name, amount in consumed.items() if name in quota.hard}
