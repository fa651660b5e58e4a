"""What a tenant holds in a placed namespace: counted there, and on its way to be there (AD1, AD2).

A write is reserved before its cluster sees it, and stays beside what is counted until a look that began after it was done
has seen what came of it. So one may look at any time, whoever is writing: what is counted and reserved at once is known
by the object, and every reservation has an end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kube.quota.podresources import Amounts, add, amounts, larger, subtract
from kube.quota.quantities import Quantity
from kube.quota.reservations import NOTHING, Reservation, Reservations, written

_DONE_MOST: Final = 64
"""More that is done than this is counted without another look."""


class Counted(NamedTuple):
    """An object that is there: group, plural and name, its UID and version, and what it takes."""

    what: str
    uid: str
    version: str
    used: Amounts


class PlacedUsage(NamedTuple):
    """``counted`` was there when somebody looked; ``reserved`` is on its way, or done since, by request.

    Each time that what was counted is replaced is another ``turn``: what was seen in the one before says nothing any more.
    """

    counted: Amounts = NOTHING
    reserved: Reservations = Reservations()
    turn: int = 0
    objects: int = 0
    """How many objects the last look found, of the kinds that the quota counts."""

    @property
    def total(self) -> dict[str, Quantity]:
        """Both together: what the tenant's quota bounds."""
        return add(self.counted, self.reserved.total)

    @property
    def ends(self) -> float:
        """When the first of what is on its way is over, in Unix seconds."""
        return min((each.until for _, each in self.reserved.each()), default=math.inf)

    def with_reservation(self, request: str, reservation: Reservation) -> PlacedUsage:
        """One more write is on its way."""
        return self._replace(reserved=self.reserved.put(request, reservation))

    def asked_again(self, write: Reservation) -> PlacedUsage | None:
        """With what is taken for a write that a cluster has asked about before; ``None`` where it has not.

        Of several that change one version of an object at most one is made: the most of them counts, until the last one's
        end. Nobody knows whose request makes it, so none gives it back.
        """
        for name, each in self.reserved.about(write):
            amounts = larger(each.amounts, write.amounts)
            taken = each._replace(amounts=amounts, until=max(each.until, write.until))
            own = write.asked if write.version else name
            return self._replace(reserved=self.reserved.put(name, None).put(own, taken))
        return None

    def under_way(self, write: Reservation) -> str | None:
        """A request that has taken as much for what a cluster asks about now, and was not asked about; ``None`` for none."""
        return next(
            (
                name
                for name, each in self.reserved.making(write.what)
                if not each.uid
                and bool(each.version) == bool(write.version)
                and all(name in each.amounts and each.amounts[name] >= taken for name, taken in write.amounts.items())
            ),
            None,
        )

    def passed_on(self, request: str, write: Reservation) -> PlacedUsage:
        """What a request has taken is for this write, which a cluster asks about: it may be settled and seen.

        Of a name that the cluster makes up nobody knows whose it is: others make objects whose names begin so. That is
        over when it is seen, or at its end, whatever comes of the request.
        """
        before = self.reserved[request]
        taken = before._replace(until=write.until, what=write.what, uid=write.uid, version=write.version)
        own = request if before.what == write.what else write.asked
        return self._replace(reserved=self.reserved.put(request, None).put(own, taken))

    def untied(self, write: Reservation) -> PlacedUsage:
        """Where a cluster asks about several objects of one name, nobody knows whose request makes which.

        Their reservations are over when they are seen, or at their end, whatever comes of the requests.
        """
        reserved = self.reserved
        for name, each in list(self.reserved.making(write.what)):
            if each.uid and each.uid != write.uid:
                reserved = reserved.put(name, None).put(each.asked, each)
        return self._replace(reserved=reserved)

    def without(self, request: str) -> PlacedUsage:
        """A write has come to nothing: what was seen by its name is another's.

        Of a change that its cluster was asked about nobody knows whether it was the request's: two of one version ask for
        the same, and one of them may be made. It is over when it is seen, or at its end.
        """
        found = self.reserved.of(request)
        if found is None:
            return self
        if found.uid and found.version:
            return self._replace(reserved=self.reserved.put(request, None).put(found.asked, found))
        return self._replace(counted=add(self.counted, found.seen), reserved=self.reserved.put(request, None))

    def confirmed(self, *requests: str) -> PlacedUsage:
        """Writes are done: the total stays."""
        known = ((request, self.reserved.of(request)) for request in requests)
        changes = {request: each._replace(done=True) for request, each in known if each is not None}
        if not changes:
            return self
        reserved = self.reserved.with_changes(changes)
        done = dict(reserved.done()) if reserved.done_at_most > _DONE_MOST else {}
        if len(done) <= _DONE_MOST:
            return self._replace(reserved=reserved)
        counted = add(self.counted, _sum(*(each.amounts for each in done.values())))
        reserved = reserved.with_changes(dict.fromkeys(done))
        return self._replace(counted=counted, reserved=reserved, turn=self.turn + 1)

    def found(self, *uids: str) -> PlacedUsage:
        """Objects are there, so their creations are done; a change of one may still be on its way. The total stays."""
        return self.confirmed(
            *(name for uid in uids if uid for name, each in self.reserved.creating(uid) if not each.done)
        )

    def recounted(self, found: Iterable[Counted], before: PlacedUsage, began: float) -> PlacedUsage:
        """After a look at what is there, which began at this time, when this was ``before``, in the same turn.

        What was done before is all there, or is gone again; of what a cluster has asked about, the UID tells; and what
        makes an object by a name takes as much as whichever of that name is there, or what it takes itself, if that is
        more. What changes an object, or makes one by a name that nobody knows, counts beside it until it is done: rather
        too much for a moment than too little.
        """
        there = list(found)
        versions = {each.uid: each.version for each in there}
        named = {each.what: each.used for each in there}
        done = {request for request, _ in before.reserved.done()}
        changes: dict[str, Reservation | None] = {}
        for request, each in self.reserved.each():
            if request in done or each.until < began or each.is_seen(versions):
                changes[request] = None
                continue
            of_that_name = {} if each.uid or each.version else named.pop(each.what, {})
            seen = _both(each.amounts, of_that_name) if of_that_name else {}
            if seen != each.seen:
                changes[request] = each._replace(seen=seen)
        reserved = self.reserved.with_changes(changes)
        counted = subtract(
            _sum(*(each.used for each in there)), _sum(*(each.seen for _, each in reserved.each() if each.seen))
        )
        taken = {name: amount for name, amount in counted.items() if amount}
        return self._replace(counted=taken, reserved=reserved, objects=len(there))


def read_placed_usage(body: Mapping[str, Any]) -> PlacedUsage:
    """What is kept of a namespace; what is on its way there is kept apart. Raises ``InvalidQuantity``.

    Where it was kept by a version that wrote both together, it is read as that has left it.
    """
    reserved = Reservations()
    for request, each in body.get("reserved", {}).items():
        reserved = reserved.put(request, Reservation.read(each))
    return PlacedUsage(
        counted=amounts(body.get("counted")),
        reserved=reserved,
        turn=body.get("turn", 0),
        objects=body.get("objects", 0),
    )


def placed_usage_body(namespace: str, usage: PlacedUsage) -> dict[str, Any]:
    """As it is kept, without what is on its way."""
    return {
        "metadata": {"name": namespace},
        "counted": written(usage.counted),
        "turn": usage.turn,
        "objects": usage.objects,
    }


def _sum(*parts: Amounts) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for each in parts:
        total = add(total, each)
    return total


def _both(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    """What is in both: of each name the less."""
    return {name: min(amount, other[name]) for name, amount in one.items() if name in other}
