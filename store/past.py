"""What there was: the log read again for watches that begin long ago, and selections as they were at a revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from typing import Final

import orjson

from store.cache import ListKey, ResourceCache
from store.log.follower import Follower
from store.pace import Pace
from store.postgresql.dedicatedconnection import ConnectionPool
from store.postgresql.results import text_of
from store.postgresql.statements import REPLAY_BYTES, replay
from store.turns import Turns
from store.types import AllSpaces, Event, EventType, Key, Range, RevisionTooOld, Spaces, Stored
from store.watches import WatchBroadcaster, matcher

REPLAY_PAGE = 500
"""Events of a page of the log."""

REPLAY_SECONDS = 10.0
"""How long one may take."""

_UNREAD: Final = 0
"""The revision of an object whose bytes have not been asked for it yet."""


class Past:
    """The past of one engine. ``present`` gives what is held of a whole resource now."""

    def __init__(
        self,
        pool: ConnectionPool,
        hub: WatchBroadcaster,
        follower: Follower,
        present: Callable[[Range | AllSpaces], Awaitable[ResourceCache]],
    ) -> None:
        self._pool = pool
        self._hub = hub
        self._follower = follower
        self._present = present
        self._turns = Turns()

    async def replay(self, selection: Range | AllSpaces | Spaces, after: int) -> tuple[Sequence[Event], int]:
        """A page of a selection's log above ``after``, and the revision that it reaches. Raises ``RevisionTooOld``."""
        statement, parameters = replay(selection)
        upper = self._follower.revision
        # The mark is of the same moment as the log: one that is not beyond ``after`` has taken nothing away.
        result = await self._pool.ask(statement, (after, upper, *parameters, REPLAY_PAGE), patience=REPLAY_SECONDS)
        get = result.get_value
        if not result.ntuples or int.from_bytes(get(0, 0) or b"") > after:
            raise RevisionTooOld(f"the log no longer reaches back to revision {after}")
        events = [
            Event(
                EventType(text_of(get(row, 2))),
                Key(*(text_of(get(row, column)) for column in range(3, 8))),
                int.from_bytes(get(row, 1) or b""),
                get(row, 8) or b"",
                get(row, 9),
            )
            for row in range(result.ntuples)
            if get(row, 1) is not None
        ]
        full = (
            len(events) == REPLAY_PAGE
            or sum(len(each.data) + len(each.previous or b"") for each in events) >= REPLAY_BYTES
        )
        reached = events[-1].revision if full else max(upper, after)
        matching = matcher(selection)
        return [event for event in events if matching(event)], reached

    async def listing(
        self, selection: Range | AllSpaces, revision: int, after: ListKey | None, limit: int
    ) -> tuple[Sequence[Stored], int]:
        """As ``ResourceCache.listing``, at a revision. Raises ``RevisionTooOld``.

        What has changed since behind ``after`` is held meanwhile: of one space (or of all together) one list is made at
        a time. Others get their turns on the way: what is done in one grows with what is listed alone (DOS-03).
        """
        async with self._turns.of(selection.space if isinstance(selection, Range) else ""):
            undone, cache = await self._undone(selection, revision, after)
            items, remaining = undone.listing(cache, selection, limit)
            pace = Pace()
            for number, stored in enumerate(items):
                if stored.revision == _UNREAD:
                    await pace.step(len(stored.data))
                    items[number] = stored._replace(revision=_revision_of(stored.data))
            return items, remaining

    async def _undone(
        self, selection: Range | AllSpaces, revision: int, after: ListKey | None
    ) -> tuple[_Undone, ResourceCache]:
        """What has changed of a selection since ``revision``, and what is held now: of one moment, this one."""
        undone, cache = _Undone(after), None
        while cache is None or revision < self._hub.revision:
            if revision < self._hub.floor:
                events, revision = await self.replay(selection, revision)
            else:
                since, revision = revision, min(revision + REPLAY_PAGE, self._hub.revision)
                events = self._hub.since(selection, since, revision)
            undone.take(events)
            if revision < self._hub.revision:
                await asyncio.sleep(0)
            else:
                # If it is not held, more comes while it is waited for.
                cache = await self._present(whole(selection))
        return undone, cache


class _Undone:
    """The changes of a selection behind a place, and each object that they met as it was before the first of them."""

    def __init__(self, after: ListKey | None) -> None:
        self._after = after
        self._met: dict[ListKey, Stored | None] = {}
        self._there: list[ListKey] = []
        """Where one was: a heap, for a page needs the first ones alone."""
        self._grown = 0
        """How many more there are now."""

    def take(self, events: Iterable[Event]) -> None:
        """Take the next changes in, in order."""
        for event in events:
            place = event.key.space, event.key.namespace, event.key.name
            if self._after is not None and place <= self._after:
                continue
            self._grown += (event.type is EventType.ADDED) - (event.type is EventType.DELETED)
            if place in self._met:
                continue
            self._met[place] = None
            if event.previous is not None:
                self._met[place] = Stored(event.key, _UNREAD, event.previous)
                heappush(self._there, place)

    def listing(self, cache: ResourceCache, selection: Range | AllSpaces, limit: int) -> tuple[list[Stored], int]:
        """As ``ResourceCache.listing``, of what there was; once. ``cache`` holds what the last change has left."""
        places, count = cache.places(selection, self._after)
        count -= self._grown
        unchanged = (place for place in places if place not in self._met)
        was = (heappop(self._there) for _ in range(len(self._there)))
        page = islice(merge(unchanged, was), min(limit or count, count))
        items = [self._met.get(place) or cache.items[place] for place in page]
        return items, count - len(items)


def whole(selection: Range | AllSpaces) -> Range | AllSpaces:
    """The selection that a cache holds: all namespaces."""
    return selection._replace(namespace=None) if isinstance(selection, Range) else selection


def _revision_of(data: bytes) -> int:
    """The revision inside kept bytes."""
    return int(orjson.loads(data)["metadata"]["resourceVersion"])
