"""What there was: the log read again for watches that begin long ago, and selections as they were at a revision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from store.cache import ListKey, ResourceCache
from store.log.follower import Follower
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

        All that has changed since is held meanwhile: of one space (or of all together) one list is made at a time.
        """
        async with self._turns.of(selection.space if isinstance(selection, Range) else ""):
            cache = await self._at(selection, revision)
            return cache.listing(selection, after, limit)

    async def _at(self, selection: Range | AllSpaces, revision: int) -> ResourceCache:
        """A selection as it was at ``revision``: what is held now, with everything that came after undone."""
        position, undone = revision, dict[Key, Event]()
        while position < self._hub.floor:
            events, position = await self.replay(selection, position)
            for event in events:
                undone.setdefault(event.key, event._replace(data=b""))
        cache = await self._present(whole(selection))
        if position < self._hub.floor:
            return await self._at(selection, revision)
        for event in self._hub.since(selection, position):
            undone.setdefault(event.key, event)
        items, _ = cache.listing(selection, None, 0)
        past = [stored for stored in items if stored.key not in undone]
        for key, event in undone.items():
            if event.previous is not None:
                past.append(Stored(key, _revision_of(event.previous), event.previous))
        return ResourceCache(past)


def whole(selection: Range | AllSpaces) -> Range | AllSpaces:
    """The selection that a cache holds: all namespaces."""
    return selection._replace(namespace=None) if isinstance(selection, Range) else selection


def _revision_of(data: bytes) -> int:
    """The revision inside kept bytes."""
    return int(orjson.loads(data)["metadata"]["resourceVersion"])
