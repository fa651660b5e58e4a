"""What writes will take in a placed namespace, one reservation for each, and their sum (AD1, AD2).

There may be thousands, and every write asks about them: so nothing here looks at all of them, nor adds them up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from kube.quota.podresources import Amounts, amounts

_BEGINNING: Final = ("*",)
_DONE: Final = ("done",)

NOTHING: Final[Amounts] = MappingProxyType({})

_Handle = tuple[str, ...]


class Reservation(NamedTuple):
    """What one write will take; after ``until``, in Unix seconds, its cluster has done it or never will.

    ``what`` is the object that it makes: group, plural and name; a name that ends in ``*`` is the beginning of one that
    the cluster makes up. ``version`` is the one that it replaces, empty for none. Where the cluster has asked about the
    write, ``uid`` is the object's. ``done`` says that the cluster has done it, ``seen`` what of it is there already and is
    not counted beside it.
    """

    amounts: Amounts
    until: float
    what: str = ""
    uid: str = ""
    version: str = ""
    done: bool = False
    seen: Amounts = NOTHING

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """What is kept of one. Raises ``InvalidQuantity``."""
        said = {name: body[name] for name in ("until", "what", "uid", "version", "done") if name in body}
        return cls(amounts=amounts(body["amounts"]), seen=amounts(body.get("seen")), **said)

    def body(self) -> dict[str, Any]:
        """As it is kept; what says nothing is left out."""
        body: dict[str, Any] = {"amounts": written(self.amounts), "until": self.until, "what": self.what}
        said = {"uid": self.uid, "version": self.version, "done": self.done, "seen": written(self.seen)}
        return body | {name: value for name, value in said.items() if value}

    def is_done_of(self, before: Reservation) -> bool:
        """Whether nothing is another than ``before`` but that the cluster has done it since."""
        return self.done and not before.done and before._replace(done=True) == self

    @property
    def asked(self) -> str:
        """The request that it is of, where the cluster has asked about the write and nobody knows whose it is."""
        return f"{self.uid}/{self.version}"

    def makes(self, what: str) -> bool:
        """Whether it is for this object, by its name."""
        return self.what == what or (self.what.endswith("*") and what.startswith(self.what.removesuffix("*")))

    def is_seen(self, versions: Mapping[str, str]) -> bool:
        """Whether the write is done, by the versions of what was there."""
        return self.uid in versions and versions[self.uid] != self.version

    def is_about(self, write: Reservation) -> bool:
        """Whether a cluster has asked about this write before."""
        return (self.uid, self.version) == (write.uid, write.version)

    def handles(self) -> Iterator[_Handle]:
        """What it is found by."""
        yield self.uid, self.version
        yield _BEGINNING if self.what.endswith("*") else (self.what,)
        if self.done:
            yield _DONE


class OpenReservations:
    """Those of one namespace as they are kept, by request: changed in place by whoever follows what is written."""

    __slots__ = ("by_request", "found", "total")

    def __init__(self) -> None:
        self.by_request: dict[str, Reservation] = {}
        self.found: dict[_Handle, dict[str, None]] = {}
        self.total: Amounts = {}

    def put(self, request: str, reservation: Reservation | None) -> None:
        """Another one for a request, or none any more."""
        before = self.by_request.pop(request, None)
        for handle in before.handles() if before is not None else ():
            names = self.found[handle]
            names.pop(request, None)
            if not names:
                del self.found[handle]
        if reservation is not None:
            self.by_request[request] = reservation
            for handle in reservation.handles():
                self.found.setdefault(handle, {})[request] = None
        self.total = _replaced(self.total, before, reservation)

    def confirm(self, request: str) -> None:
        """The cluster has done what a request is for; nothing where none is open."""
        known = self.by_request.get(request)
        if known is not None and not known.done:
            self.put(request, known._replace(done=True))


class Reservations(Mapping[str, Reservation]):
    """A value: ``kept``, and over it what is changed; while it is in use nobody changes what is kept."""

    __slots__ = ("_changed", "_kept", "total")

    def __init__(
        self,
        kept: OpenReservations | None = None,
        changed: Mapping[str, Reservation | None] | None = None,
        total: Amounts | None = None,
    ) -> None:
        self._kept = kept or OpenReservations()
        self._changed = changed or {}
        self.total: Amounts = self._kept.total if total is None else total
        """What all of them take together."""

    def put(self, request: str, reservation: Reservation | None) -> Reservations:
        """With another one for a request, or none any more."""
        return self.with_changes({request: reservation})

    def with_changes(self, changes: Mapping[str, Reservation | None]) -> Reservations:
        """With another one for each of these requests, or none any more."""
        if not changes:
            return self
        changed, total = {**self._changed, **changes}, self.total
        for request, reservation in changes.items():
            if reservation is None and request not in self._kept.by_request:
                del changed[request]
            total = _replaced(total, self.of(request), reservation)
        return Reservations(self._kept, changed, total)

    def copied(self) -> Reservations:
        """The same, whatever becomes of what is kept."""
        return Reservations(None, dict(self.each()), self.total)

    def of(self, request: str) -> Reservation | None:
        """As ``get``: most that is asked for is not there, and costs no exception."""
        return self._changed[request] if request in self._changed else self._kept.by_request.get(request)

    def each(self) -> Iterator[tuple[str, Reservation]]:
        """As ``items``, for whoever goes through all of them."""
        changed = self._changed
        for name, reservation in self._kept.by_request.items():
            if name not in changed:
                yield name, reservation
        for name, other in changed.items():
            if other is not None:
                yield name, other

    def changes_of(self, kept: OpenReservations) -> dict[str, Reservation | None]:
        """What is another one than is kept there, or is there no more (``None``)."""
        before = kept.by_request
        changed = self._changed if kept is self._kept else dict.fromkeys(before) | dict(self.each())
        return {name: each for name, each in changed.items() if each is not before.get(name)}

    def about(self, write: Reservation) -> Iterator[tuple[str, Reservation]]:
        """Those for a write that a cluster asks about."""
        return self._found((write.uid, write.version), lambda each: each.is_about(write))

    def creating(self, uid: str) -> Iterator[tuple[str, Reservation]]:
        """Those for the creation of an object."""
        return self._found((uid, ""), lambda each: each.uid == uid and not each.version)

    def making(self, what: str) -> Iterator[tuple[str, Reservation]]:
        """Those for an object, by its name."""
        yield from self._found((what,), lambda each: each.what == what)
        yield from self._found(_BEGINNING, lambda each: each.what != what and each.makes(what))

    def done(self) -> Iterator[tuple[str, Reservation]]:
        """Those that their cluster has done."""
        return self._found(_DONE, lambda each: each.done)

    @property
    def done_at_most(self) -> int:
        """No more than this are done, without a look at them."""
        return len(self._kept.found.get(_DONE, ())) + len(self._changed)

    def _found(self, handle: _Handle, matches: Callable[[Reservation], bool]) -> Iterator[tuple[str, Reservation]]:
        by_request = self._kept.by_request
        for name in self._kept.found.get(handle, ()):
            if name not in self._changed and matches(by_request[name]):
                yield name, by_request[name]
        for name, each in self._changed.items():
            if each is not None and matches(each):
                yield name, each

    def __getitem__(self, request: str) -> Reservation:
        found = self.of(request)
        if found is None:
            raise KeyError(request)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.each())

    def __len__(self) -> int:
        kept = self._kept.by_request
        gone = sum(1 for name in self._changed if name in kept)
        return len(kept) - gone + sum(1 for each in self._changed.values() if each is not None)


def written(values: Amounts) -> dict[str, str]:
    """As amounts are kept."""
    return {name: str(amount) for name, amount in sorted(values.items())}


def _replaced(total: Amounts, before: Reservation | None, after: Reservation | None) -> Amounts:
    if before is not None and after is not None and before.amounts is after.amounts:
        return total  # It is about the same, such as that it is done.
    replaced = dict(total)
    if before is not None:
        for name, amount in before.amounts.items():
            replaced[name] = replaced[name] - amount if name in replaced else -amount
    if after is not None:
        for name, amount in after.amounts.items():
            replaced[name] = replaced[name] + amount if name in replaced else amount
    return {name: amount for name, amount in replaced.items() if amount}
