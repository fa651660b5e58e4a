"""Which objects of a resource, of all spaces, bear which mark: each read once, and again when it changes (DOS-03)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from store.interface import Reader
from store.pace import Pace
from store.types import AllSpaces, Event, EventType, Key

M = TypeVar("M", bound=Hashable)

_PAGE: Final = 500


class Noted(NamedTuple):
    """What is known of an object without reading it: its revision, and its size in bytes."""

    revision: int
    size: int


_NONE: Final[Mapping[Key, Noted]] = MappingProxyType({})


class ObjectIndex(Generic[M]):
    """The objects by what ``mark`` says of each; ``None`` is for one that nobody asks for.

    Nothing is read before the first question. Of an object its key, its mark, its revision and its size are kept, which is
    less than it takes in the store itself.
    """

    def __init__(self, store: Reader, resource: tuple[str, str], mark: Callable[[Mapping[str, Any]], M | None]) -> None:
        self._store = store
        self._resource = resource
        self._mark = mark
        self._marks: dict[Key, M] = {}
        self._noted: dict[M, dict[Key, Noted]] = {}
        self._lock = asyncio.Lock()
        self._complete = False
        self._heard: dict[Key, int] | None = None
        """What the log has brought while all of them are read, with its revisions."""

    async def bearing(self, mark: M) -> Mapping[Key, Noted]:
        """The objects with a mark: to be read, not kept."""
        while not self._complete:
            async with self._lock:
                await self._load()
        return self._noted.get(mark, _NONE)

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep what is known right; called by the store with every batch of its log."""
        if not self._complete and self._heard is None:
            return
        for event in events:
            if event.key[1:3] == self._resource:
                if self._heard is not None:
                    self._heard[event.key] = event.revision
                gone = event.type is EventType.DELETED
                noted = Noted(event.revision, len(event.data))
                self._take(event.key, noted, None if gone else self._mark(orjson.loads(event.data)))

    def forget(self) -> None:
        """Read all of them anew: the log does not continue where this process stopped."""
        self._complete, self._heard = False, None
        self._marks.clear()
        self._noted.clear()

    def _take(self, key: Key, noted: Noted, mark: M | None) -> None:
        before = self._marks.pop(key, None)
        if before is not None:
            known = self._noted[before]
            del known[key]
            if not known:
                del self._noted[before]
        if mark is not None:
            self._marks[key] = mark
            self._noted.setdefault(mark, {})[key] = noted

    async def _load(self) -> None:
        if self._complete:
            return
        self.forget()
        heard = self._heard = {}
        after, pace = None, Pace()
        try:
            while self._heard is heard:
                listing = await self._store.list(AllSpaces(*self._resource), cached=True, after=after, limit=_PAGE)
                async for key, revision, data in pace.over(listing.items):
                    # What has been heard of it since is newer.
                    if self._heard is heard and heard.get(key, 0) < revision:
                        self._take(key, Noted(revision, len(data)), self._mark(orjson.loads(data)))
                if not listing.remaining:
                    self._complete = self._heard is heard
                    return
                last = listing.items[-1].key
                after = (last.space, last.namespace, last.name)
                await asyncio.sleep(0)
        finally:
            if self._heard is heard:
                self._heard = None
