"""What is known of tenants' placed namespaces: a row for each, and a row for each write on its way there (AD1, AD2).

Both are objects of the store that no API serves, in the tenant's own space. The row of a namespace says what was counted;
it is written when that is counted anew. A reservation is one small object: a commit writes what is new, and removes what
is over, however many others are open. Objects of the store and no table of their own, for they have to be kept in one
commit with the ``TenantQuota`` object, on its revision, and with whatever else an admission keeps; and as all processes
follow the log, each knows them, and their sum, at the revision of the quota that it judges by, without a question to the
database.

1. A book holds what the log has brought, and nothing else: what is committed here comes by the log as well.
2. Whoever judges lays changes over it, and lets go of them before anything is awaited.
3. That others are done is said by a reservation that is new in the same commit: most end while others begin, and to write
   each anew for that would be a third of all that is written. Whoever reads the book when that one has gone, or changed,
   takes them for under way until their end: that is too much for a while, and never too little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import orjson

from kube.quota.placedusage import PlacedUsage, placed_usage_body, read_placed_usage
from kube.quota.podresources import Amounts, add
from kube.quota.quantities import InvalidQuantity
from kube.quota.reservations import OpenReservations, Reservation, Reservations
from kube.quota.tenantquotas import PLACED_RESERVATIONS, PLACED_USAGES
from store.interface import Store
from store.types import Create, Delete, Event, EventType, Key, Operation, Range, Update

_BOOKS_MAX: Final = 10_000
_KEPT: Final = (PLACED_RESERVATIONS, PLACED_USAGES)

_TOLD_LONGEST: Final = 128
"""Characters of a request that another reservation tells of, which is to stay small: more than clusters' own have."""


@dataclass(slots=True)
class _Place:
    """A namespace: its row, and the reservations there with the revisions of their objects."""

    revision: int = 0
    row: PlacedUsage = field(default_factory=PlacedUsage)
    kept: OpenReservations = field(default_factory=OpenReservations)
    revisions: dict[str, int] = field(default_factory=dict)
    in_row: bool = False
    """Whether an earlier version has kept reservations in the row: those that have no revision."""


class Book:
    """The placed namespaces of one tenant."""

    def __init__(self, space: str) -> None:
        self._space = space
        self._places: dict[str, _Place] = {}

    def usage(self, place: Key) -> PlacedUsage | None:
        """What a namespace holds; ``None`` where nobody has noted anything. Good until something is awaited."""
        found = self._places.get(place.name)
        if found is None or not (found.revision or found.revisions):
            return None
        return found.row._replace(reserved=Reservations(found.kept))

    def totals(self) -> Iterator[Amounts]:
        """What each namespace holds."""
        for name in self._places:
            usage = self.usage(Key(self._space, *PLACED_USAGES, "", name))
            if usage is not None:
                yield usage.total

    def operations(self, place: Key, usage: PlacedUsage | None) -> Iterator[Operation]:
        """What has to be written, at the revisions that are known here, to let a namespace hold this, or nothing.

        The row is written where it says something else, and where nothing else is: then whoever counts is told to look.
        """
        known = self._places.get(place.name) or _Place()
        reserved = usage.reserved if usage is not None else Reservations()
        changes = reserved.changes_of(known.kept)
        # What an earlier version has left in the row goes out of it with whatever is written first.
        inside = known.kept.by_request.keys() - known.revisions.keys() if known.in_row else frozenset[str]()
        written = {name: reserved.get(name) for name in inside} | changes
        telling, ended = _told(known, written)
        for request, each in written.items():
            if request not in ended:
                operation = self._operation(known, place, request, each, ended if request == telling else ())
                if operation is not None:
                    yield operation
        body = placed_usage_body(place.name, usage) if usage is not None else {"metadata": {"name": place.name}}
        if usage is None:
            if known.revision:
                yield Delete(place, known.revision, body)
        elif not known.revision:
            yield Create(place, body)
        elif not changes or inside or placed_usage_body(place.name, known.row) != body:
            yield Update(place, known.revision, body)

    def _operation(
        self, known: _Place, place: Key, request: str, each: Reservation | None, ended: Collection[str]
    ) -> Operation | None:
        # Requests are called by what clusters say: as long as they like, of whatever characters.
        name = f"{place.name}/{hashlib.blake2b(request.encode(), digest_size=16).hexdigest()}"
        key = Key(self._space, *PLACED_RESERVATIONS, "", name)
        body = {"metadata": {"name": name}, "request": request}
        revision = known.revisions.get(request)
        if each is None:
            return Delete(key, revision, body) if revision is not None else None
        body |= each.body()
        if ended:
            body["ended"] = sorted(ended)
        return Update(key, revision, body) if revision is not None else Create(key, body)

    def apply(self, key: Key, revision: int, data: bytes, *, gone: bool = False) -> None:
        """Take in what was written. Raises ``InvalidQuantity``."""
        body = orjson.loads(data)
        namespace = key.name.partition("/")[0]
        place = self._places.setdefault(namespace, _Place())
        if key[1:3] == PLACED_RESERVATIONS:
            place.kept.put(body["request"], None if gone else Reservation.read(body))
            if gone:
                place.revisions.pop(body["request"], None)
            else:
                place.revisions[body["request"]] = revision
                for request in body.get("ended", ()):
                    place.kept.confirm(request)
        else:
            for request in place.kept.by_request.keys() - place.revisions.keys() if place.in_row else ():
                place.kept.put(request, None)
            read = read_placed_usage({} if gone else body)
            for request, each in read.reserved.items():
                if request in place.revisions:  # Both versions have reserved for it.
                    read = read._replace(counted=add(read.counted, each.amounts))
                else:
                    place.kept.put(request, each)
            place.revision, place.in_row = 0 if gone else revision, bool(read.reserved)
            place.row = read._replace(reserved=Reservations())
        if not place.revision and not place.revisions:
            del self._places[namespace]


def _told(known: _Place, changes: Mapping[str, Reservation | None]) -> tuple[str, Collection[str]]:
    """The new reservation that tells of others that they are done, and those; none where none is new."""
    new = (request for request, each in changes.items() if each is not None and request not in known.revisions)
    if not (telling := next(new, "")):
        return "", ()
    kept = known.kept.by_request
    return telling, {
        request
        for request, each in changes.items()
        if request in known.revisions
        and len(request) <= _TOLD_LONGEST
        and each is not None
        and each.is_done_of(kept[request])
    }


class Books:
    """Those that this process has opened, kept right by the log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._books: dict[str, Book] = {}
        store.subscribe(self._on_events, lost=self._books.clear, resources=_KEPT)

    async def of(self, space: str) -> Book:
        """The book of a tenant as this process has followed it. Raises ``InvalidQuantity``."""
        book = self._books.get(space)
        if book is None:
            book = await read_book(self._store, space, cached=True)
            if len(self._books) >= _BOOKS_MAX:
                self._books.clear()
            self._books[space] = book
        return book

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.key
            if key[1:3] not in _KEPT:
                continue
            book = self._books.get(key.space)
            if book is None:
                continue
            try:
                book.apply(key, event.revision, event.data, gone=event.type is EventType.DELETED)
            except (InvalidQuantity, KeyError, TypeError):
                del self._books[key.space]  # Whoever asks is told.


async def read_book(store: Store, space: str, *, cached: bool = False) -> Book:
    """The book of a tenant at one revision, the newest unless ``cached``. Raises ``InvalidQuantity``."""
    ranges = Range(space, *PLACED_USAGES), Range(space, *PLACED_RESERVATIONS)
    await store.list(ranges[0], cached=cached)
    while True:
        # What this process holds already, it says at once: then both are of one moment.
        listings = [await store.list(each, cached=True) for each in ranges]
        if listings[0].revision == listings[1].revision:
            break
    book = Book(space)
    for listing in reversed(listings):
        # One tells of others that were there before it.
        for stored in sorted(listing.items, key=attrgetter("revision")):
            book.apply(stored.key, stored.revision, stored.data)
    return book
