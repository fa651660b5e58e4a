"""Watches: who waits for which events, with bounded buffers.

An event finds its watchers by dictionary, so ten thousand idle watches cost an event nothing.

Why a watch gets every event once and in order:

1. It begins behind the revision that its client names. As long as that lies below the window's ``floor``, it reads the
   log page by page (``_catch_up``); then it takes the rest from the window and enters, without an await between. No
   event can be published in that moment, so none is missed and none comes from both.
2. ``publish`` is called in the order of the log. Each event is queued with the watches that are entered at that moment,
   and the queue is worked off in order from the loop's next turn on, before writers have their answers, ``FAN`` watches
   at a time: a watch that enters while the rest of an event's watches wait has seen that event in the window already.
3. A watch that waits with an empty buffer may take an event directly (``sink``); any other buffers it. Nothing is taken
   directly while something is buffered, so nothing overtakes.
4. The buffer is bounded. What does not fit ends the watch, with an error that makes its client list anew; an event is
   never left out silently.
5. ``delivered`` moves past an event when all its watches have it: what a bookmark claims, every watch has got.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import islice

from store.types import AllSpaces, Event, Place, Range, RevisionTooOld, SlowWatcher, Spaces, StoreError

Replay = Callable[[Range | AllSpaces | Spaces, int], Awaitable[tuple[Sequence[Event], int]]]
"""Reads a page of a selection's log above a revision: the events, and how far the page reaches."""

EVENT_BYTES = 200
"""What an event costs in a buffer besides its data."""

FAN = 64
"""Watches that get an event in one go; then others have a turn in the loop, and the rest follow."""


class WatchBroadcaster:
    """The recent events of all spaces, and the watches that are up to date."""

    def __init__(self, *, window_events: int, window_bytes: int, buffer_events: int, buffer_bytes: int) -> None:
        self._window_events = window_events
        self._window_bytes = window_bytes
        self.buffer_events = buffer_events
        self.buffer_bytes = buffer_bytes
        self._window: list[Event] = []
        self._bytes = 0
        self.floor = 0
        """The window holds every event above this revision."""
        self.revision = 0
        self.delivered = 0
        """Every event up to this revision has reached the watches that were open when it was published."""
        self._fan: deque[tuple[Event, Iterator[Watch]]] = deque()
        self._fanning = False
        self._open: dict[Place, dict[Watch, None]] = {}

    def restart(self, revision: int) -> None:
        """Continuity is lost: begin anew behind ``revision`` and end all watches."""
        self._window, self._bytes = [], 0
        self.floor = self.revision = self.delivered = revision
        self._fan.clear()
        for watches in list(self._open.values()):
            for watch in list(watches):
                watch.end(RevisionTooOld("the history was replaced"))

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events, which follow the last ones without a gap, to the watches they concern."""
        self._window += events
        self.revision = events[-1].revision
        for event in events:
            self._bytes += weight(event)
            space, group, resource, namespace, _ = event.key
            selections: tuple[Place, ...] = (
                (space, group, resource, None),
                (space, group, resource, namespace),
                (group, resource),
            )
            for selection in selections:
                watches = self._open.get(selection)
                if watches:
                    self._fan.append((event, iter(tuple(watches))))
        if self._fan and not self._fanning:
            self._fanning = True
            # Before whoever wrote is answered, as kube-apiserver's watches mostly are: a controller that looks again at
            # once takes what it has not heard of yet for a cache that is behind.
            asyncio.get_running_loop().call_soon(self._fan_out)
        elif not self._fan:
            self.delivered = self.revision
        if len(self._window) > self._window_events or self._bytes > self._window_bytes:
            self._forget()

    def _fan_out(self) -> None:
        """Hand what was published to the next few watches, in order."""
        left = FAN
        while self._fan and left:
            event, watches = self._fan[0]
            for watch in islice(watches, left):
                watch.push(event)
                left -= 1
            if left:
                self._fan.popleft()
                self.delivered = max(self.delivered, event.revision - 1)
        self._fanning = bool(self._fan)
        if self._fanning:
            asyncio.get_running_loop().call_soon(self._fan_out)
        else:
            self.delivered = self.revision

    def since(self, selection: Range | AllSpaces | Spaces, revision: int, until: int | None = None) -> list[Event]:
        """The events of a selection above ``revision``, which must not lie below ``floor``, and no further than ``until``."""
        matching = matcher(selection)
        begin, end = max(revision - self.floor, 0), None if until is None else max(until - self.floor, 0)
        return [event for event in self._window[begin:end] if matching(event)]

    def enter(self, watch: Watch) -> None:
        """Deliver to ``watch`` from the next event on."""
        for place in _places(watch.selection):
            self._open.setdefault(place, {})[watch] = None

    def leave(self, watch: Watch) -> None:
        """Deliver nothing more to ``watch``."""
        for place in _places(watch.selection):
            watches = self._open.get(place)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._open[place]

    def progress(self) -> None:
        """Wake the idle watches, so that their clients learn how far they are (bookmarks)."""
        for watches in list(self._open.values()):
            for watch in watches:
                watch.wake()

    def __len__(self) -> int:
        return len(set().union(*self._open.values()))

    def _forget(self) -> None:
        # A quarter more than needed at a time, so that forgetting costs little for each event.
        events, room = self._window_events * 3 // 4, self._window_bytes * 3 // 4
        cut, size = max(len(self._window) - events, 0), self._bytes
        size -= sum(weight(event) for event in self._window[:cut])
        while size > room:
            size -= weight(self._window[cut])
            cut += 1
        del self._window[:cut]
        self.floor += cut
        self._bytes = size


class Watch:
    """One open watch (``store.interface.Watch``): first what the log remembers, then what happens."""

    def __init__(
        self,
        hub: WatchBroadcaster,
        selection: Range | AllSpaces | Spaces,
        since: int,
        reach: Callable[[int], Awaitable[None]],
        replay: Replay,
    ) -> None:
        self.selection = selection
        self._hub = hub
        self._reach = reach
        self._replay = replay
        self._position = since
        self._live = False
        self._ended: StoreError | None = None
        self._closed = False
        self._buffer: list[Event] = []
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._interrupted = False
        self.sink: Callable[[Event], bool] | None = None
        """Takes an event while the reader waits and has missed nothing; false when it must be buffered after all."""

    def __aiter__(self) -> AsyncIterator[tuple[Sequence[Event], int]]:
        return self

    async def __anext__(self) -> tuple[Sequence[Event], int]:
        """The next batch and the revision it reaches; see ``store.interface.Watch``."""
        if not self._live and not self._closed and self._ended is None:
            batch = await self._catch_up()
            if batch is not None:
                return batch
        while not self._buffer and self._ended is None and not self._closed and not self._interrupted:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
            if not self._buffer and self._hub.delivered > self._position:
                break
        if self._closed:
            raise StopAsyncIteration
        if self._ended is not None:
            raise self._ended
        self._interrupted = False
        events, self._buffer, self._bytes = self._buffer, [], 0
        seen = events[-1].revision if events else 0
        self._position = max(self._position, self._hub.delivered, seen)
        return events, self._position

    async def aclose(self) -> None:
        """End the watch and free what it holds; a reader that waits gets the end of the iteration."""
        self._closed = True
        self._hub.leave(self)
        self._buffer = []
        self.wake()

    def push(self, event: Event) -> None:
        """Take an event in, or end as too slow."""
        if self._closed or self._ended is not None:
            return
        waiter = self._waiter
        idle = waiter is not None and not waiter.done() and not self._buffer
        if idle and self.sink is not None and self.sink(event):
            self._position = event.revision
            return
        self._bytes += weight(event)
        if len(self._buffer) >= self._hub.buffer_events or (self._buffer and self._bytes > self._hub.buffer_bytes):
            self.end(SlowWatcher("the watcher did not keep up"))
            return
        self._buffer.append(event)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, reason: StoreError) -> None:
        """End the watch with an error."""
        self._ended = reason
        self._hub.leave(self)
        self._buffer, self._bytes = [], 0
        self.wake()

    def interrupt(self) -> None:
        """Let the reader have a batch now, empty if need be."""
        self._interrupted = True
        self.wake()

    def wake(self) -> None:
        """Let a waiting reader look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _catch_up(self) -> tuple[Sequence[Event], int] | None:
        """One batch from the past, or ``None`` when there is none and the watch has become live."""
        await self._reach(self._position)
        if self._position < self._hub.floor:
            events, self._position = await self._replay(self.selection, self._position)
            return events, self._position
        if self._closed:
            return None
        # No await from here on: nothing can happen between the look back and the entry.
        events = self._hub.since(self.selection, self._position)
        self._live = True
        self._hub.enter(self)
        moved = self._hub.revision > self._position
        self._position = self._hub.revision
        return (events, self._position) if events or moved else None


def weight(event: Event) -> int:
    """The bytes that an event keeps in memory."""
    return len(event.data) + (len(event.previous) if event.previous is not None else 0) + EVENT_BYTES


def _places(selection: Range | AllSpaces | Spaces) -> Sequence[Place]:
    """What an event is looked up by, of which each event has one at most."""
    if isinstance(selection, Spaces):
        return [(space, selection.group, selection.resource, None) for space in selection.spaces]
    return (selection,)


def matcher(selection: Range | AllSpaces | Spaces) -> Callable[[Event], bool]:
    """Whether an event belongs to a selection."""
    if isinstance(selection, Spaces):
        places = frozenset(_places(selection))
        return lambda event: (*event.key[:3], None) in places
    if isinstance(selection, AllSpaces):
        wanted = tuple(selection)
        return lambda event: event.key[1:3] == wanted
    if selection.namespace is None:
        resource = tuple(selection[:3])
        return lambda event: event.key[:3] == resource
    namespace = tuple(selection)
    return lambda event: event.key[:4] == namespace
