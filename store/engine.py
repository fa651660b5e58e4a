"""The store of one process (``store.port.Store``) over PostgreSQL.

Writes go through ``store.committer``, what any process wrote comes back through ``store.follower``, reads are served
from ``store.cache`` and watches from ``store.watches``. This module joins them and keeps one promise of its own: a
read that is not ``cached`` sees every write that was confirmed, by any process, before the read began.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

import orjson
from psycopg.pq.abc import PGresult

from store.arrays import Blobs
from store.cache import Cache, Place, Shelf
from store.committer import Committer
from store.connections import AWAY, Connection, open_pool, persist
from store.follower import Follower, read_state
from store.statements import MENTIONING, RESOURCES, STATE, event_of, load, replay
from store.types import (
    Event,
    Everywhere,
    Key,
    Listing,
    Operation,
    Range,
    RevisionTooNew,
    RevisionTooOld,
    Stored,
    StoreError,
    Unavailable,
)
from store.watches import Hub, Watch, matcher
from store.wire import Wire

logger = logging.getLogger(__name__)

FUTURE_SECONDS = 3.0
"""How long a reader waits for a revision from the future, as in Kubernetes."""

COLD_MAX = 1024
"""Resources of spaces that are remembered to have been written to without being held."""

LOAD_PAGE = 2000
REPLAY_PAGE = 500


@dataclass(frozen=True, slots=True)
class Options:
    """The bounds of an engine. Sizes in bytes, times in seconds."""

    cache_bytes: int = 256 * 1024 * 1024
    cache_idle_seconds: float = 600.0
    window_events: int = 16_384
    window_bytes: int = 32 * 1024 * 1024
    watch_events: int = 4_096
    watch_bytes: int = 8 * 1024 * 1024
    progress_seconds: float = 10.0
    """How often an idle watch yields an empty batch when the revision has moved (bookmarks)."""
    poll_seconds: float = 0.5
    look_back_events: int = 2_048
    write_seconds: float = 10.0
    connections: int = 8


class Engine:
    """Use as ``async with Engine(conninfo) as store`` or with ``start`` and ``stop``, in one event loop."""

    def __init__(self, conninfo: str, options: Options | None = None) -> None:
        self._conninfo = conninfo
        self._options = options = options or Options()
        self._pool = open_pool(conninfo, options.connections)
        self._cache = Cache(options.cache_bytes)
        self._hub = Hub(
            window_events=options.window_events,
            window_bytes=options.window_bytes,
            buffer_events=options.watch_events,
            buffer_bytes=options.watch_bytes,
        )
        self._follower = Follower(
            conninfo,
            self._pool,
            on_events=self._apply,
            on_lost=self._forget,
            poll_seconds=options.poll_seconds,
        )
        self._committer = Committer(conninfo, self._pool, self._follower, self._peek, patience=options.write_seconds)
        self._wire = Wire(conninfo, "tenantry-reader")
        self._listeners: dict[object, tuple[Callable[[Sequence[Event]], None], Callable[[], None] | None]] = {}
        self._loads: dict[Range | Everywhere, asyncio.Task[None]] = {}
        self._cold: set[Range] = set()
        self._readers: list[asyncio.Future[None]] = []
        self._barrier_task: asyncio.Task[None] | None = None
        self._care: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect and follow the log; raises ``Unavailable`` when the database cannot be reached."""
        await self._pool.open()
        try:
            await self._follower.start(look_back=self._options.look_back_events)
        except BaseException:
            await self._pool.close()
            raise
        self._committer.start()
        self._care = asyncio.create_task(self._tend())

    async def stop(self) -> None:
        """Finish the writes under way, end all watches, disconnect."""
        await self._committer.stop()
        tasks = [task for task in (self._care, self._barrier_task, *self._loads.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._follower.stop()
        self._wire.close()
        self._hub.restart(self._hub.revision)
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def revision(self) -> int:
        """See ``store.port.Store``."""
        return self._follower.revision

    @property
    def healthy(self) -> bool:
        """See ``store.port.Store``."""
        return self._follower.healthy

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """See ``store.port.Store``."""
        if not cached:
            await self._barrier()
        shelf = await self._shelf(Range(key.space, key.group, key.resource))
        return shelf.items.get((key.space, key.namespace, key.name))

    async def list(
        self,
        selection: Range | Everywhere,
        *,
        at_least: int | None = None,
        exact: int | None = None,
        after: Place | None = None,
        limit: int = 0,
        cached: bool = False,
    ) -> Listing:
        """See ``store.port.Store``."""
        wanted = exact if exact is not None else at_least
        if wanted is not None:
            await self._await_revision(wanted)
        elif not cached:
            await self._barrier()
        shelf = await self._shelf(_whole(selection))
        if exact is not None and exact != self.revision:
            shelf = await self._shelf_at(selection, exact)
        items, remaining = shelf.listing(selection, after, limit)
        return Listing(items, self.revision if exact is None else exact, remaining)

    async def commit(self, *operations: Operation) -> Sequence[Stored]:
        """See ``store.port.Store``."""
        return await self._committer.commit(operations)

    def watch(self, selection: Range | Everywhere, *, since: int) -> Watch:
        """See ``store.port.Store``."""
        return Watch(self._hub, selection, since, self._await_revision, self._replay)

    def subscribe(
        self, listener: Callable[[Sequence[Event]], None], *, lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """See ``store.port.Store``."""
        token = object()
        self._listeners[token] = (listener, lost)

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def resources(self, space: str, namespace: str | None = None) -> Sequence[tuple[str, str]]:
        """See ``store.port.Store``."""

        async def ask(connection: Connection) -> Sequence[tuple[str, str]]:
            cursor = await connection.execute(RESOURCES, (space, namespace, namespace), prepare=True)
            return [(group, resource) for group, resource in await cursor.fetchall()]

        return await persist(self._pool, ask)

    async def mentioning(self, *texts: bytes) -> Sequence[Key]:
        """The keys, in every space, of the objects whose JSON contains one of the texts: a scan of everything."""

        async def ask(connection: Connection) -> Sequence[Key]:
            cursor = await connection.execute(MENTIONING, (Blobs(texts),))
            return [Key(*row) for row in await cursor.fetchall()]

        return await persist(self._pool, ask)

    # What the log brings.

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self._cache.apply(event)
        for listener, _ in list(self._listeners.values()):
            try:
                listener(events)
            except Exception:
                logger.exception("a listener of the change log failed")
        self._hub.publish(events)

    def _forget(self, revision: int) -> None:
        self._cache.clear()
        for _, lost in list(self._listeners.values()):
            if lost is not None:
                lost()
        self._hub.restart(revision)

    # Consistent reads: one question to the database serves everybody who arrived before it was asked.

    async def _barrier(self) -> None:
        reader = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        if self._barrier_task is None or self._barrier_task.done():
            self._barrier_task = asyncio.create_task(self._ask())
        await reader

    async def _ask(self) -> None:
        while self._readers:
            readers, self._readers = self._readers, []
            try:
                await self._see_everything()
            except StoreError as error:
                _answer(readers, error)
            except BaseException:
                _answer(readers + self._readers, Unavailable("the store is closed"))
                raise
            else:
                _answer(readers, None)

    async def _see_everything(self) -> None:
        known = None
        while known != self._follower.epoch:
            # What was asked before somebody else noticed that the history was replaced may be of the old one.
            floor, known = self.revision, self._follower.epoch
            try:
                revision, epoch = _counter(await self._wire.ask(STATE))
            except AWAY:
                state = await persist(self._pool, read_state)
                revision, epoch = state.revision, state.epoch
        if not self._follower.compare(revision, epoch, floor):
            self._follower.lose(revision, epoch)
        await self._follower.reach(revision)

    async def _await_revision(self, revision: int) -> None:
        """Wait for a revision that a client named; ``RevisionTooNew`` when it does not come in time."""
        if revision <= self.revision:
            return
        try:
            async with asyncio.timeout(FUTURE_SECONDS):
                await self._barrier()
                while revision > self.revision:
                    await self._follower.reach(revision)
        except TimeoutError:
            raise RevisionTooNew(revision, self.revision) from None

    # Filling shelves.

    def _peek(self, keys: Sequence[Key]) -> dict[Key, Stored] | None:
        """What is held of ``keys``. A shelf that is written to again is loaded, so that the next write finds it."""
        found = self._cache.peek(keys)
        if found is None:
            for selection in {Range(key.space, key.group, key.resource) for key in keys}:
                if selection not in self._cold:
                    if len(self._cold) >= COLD_MAX:
                        self._cold.clear()
                    self._cold.add(selection)
                elif not self._cache.holds(selection):
                    self._cold.discard(selection)
                    self._loading(selection)
        return found

    def _loading(self, selection: Range | Everywhere) -> asyncio.Task[None]:
        task = self._loads.get(selection)
        if task is None:
            task = self._loads[selection] = asyncio.create_task(self._load(selection))
            task.add_done_callback(lambda _: self._loads.pop(selection, None))
        return task

    async def _shelf(self, selection: Range | Everywhere) -> Shelf:
        while True:
            shelf = self._cache.find(selection, monotonic())
            if shelf is not None:
                return shelf
            task = self._loading(selection)
            # A reader that goes must not take the load away from the others.
            await asyncio.shield(task)

    async def _load(self, selection: Range | Everywhere) -> None:
        """Page through a selection and bring the pages, which are of different moments, to one revision.

        Every event above the first page's revision is applied to all of it: an older state that this puts in
        place for a moment is followed by the newer one, because the log is complete and in order.
        """
        missed = self._cache.expect(selection)
        try:
            objects = deque[Stored]()
            first, revision = None, 0
            after: Place = ("", "", "")
            full = True
            while full:
                page, revision = await self._load_page(selection, after)
                first = revision if first is None else first
                objects += page
                full = len(page) == LOAD_PAGE
                if full:
                    key = page[-1].key
                    after = (key.space, key.namespace, key.name)
            await self._follower.reach(revision)
            if self._cache.expect(selection) is not missed:
                return  # Everything was forgotten meanwhile; whoever waits starts over.
            shelf = Shelf(objects)
            for event in missed:
                if first is not None and event.revision > first:
                    shelf.apply(event)
            self._cache.put(selection, shelf, monotonic())
        finally:
            self._cache.unexpect(selection)

    async def _load_page(self, selection: Range | Everywhere, after: Place) -> tuple[Sequence[Stored], int]:
        statement, parameters = load(selection)
        group, resource = selection.group, selection.resource

        async def ask(connection: Connection) -> tuple[Sequence[Stored], int]:
            cursor = await connection.execute(statement, (*parameters, *after, LOAD_PAGE), prepare=True, binary=True)
            rows = await cursor.fetchall()
            return [
                Stored(Key(space, group, resource, namespace, name), revision, data)
                for _, space, namespace, name, revision, data in rows
                if space is not None
            ], rows[0][0]

        return await persist(self._pool, ask)

    # The past.

    async def _shelf_at(self, selection: Range | Everywhere, revision: int) -> Shelf:
        """A selection as it was at ``revision``: what is held now, with everything that came after undone."""
        position, undone = revision, dict[Key, Event]()
        while position < self._hub.floor:
            events, position = await self._replay(selection, position)
            for event in events:
                undone.setdefault(event.key, event)
        shelf = await self._shelf(_whole(selection))
        if position < self._hub.floor:
            return await self._shelf_at(selection, revision)
        for event in self._hub.since(selection, position):
            undone.setdefault(event.key, event)
        items, _ = shelf.listing(selection, None, 0)
        past = [stored for stored in items if stored.key not in undone]
        for key, event in undone.items():
            if event.previous is not None:
                past.append(Stored(key, _revision_of(event.previous), event.previous))
        return Shelf(past)

    async def _replay(self, selection: Range | Everywhere, after: int) -> tuple[Sequence[Event], int]:
        """A page of a selection's log above ``after``, and the revision that it reaches."""
        statement, parameters = replay(selection)
        upper = self.revision

        async def ask(connection: Connection) -> tuple[Sequence[Event], int]:
            async with connection.pipeline():
                log = await connection.execute(
                    statement, (after, upper, *parameters, REPLAY_PAGE), prepare=True, binary=True
                )
                # Read after the log: a mark that is not beyond ``after`` now was not while the log was read.
                state = await connection.execute(STATE, prepare=True, binary=True)
            row = await state.fetchone()
            if row is None or row[2] > after:
                raise RevisionTooOld(f"the log no longer reaches back to revision {after}")
            return [event_of(entry) for entry in await log.fetchall()], row[0]

        events, _ = await persist(self._pool, ask)
        reached = events[-1].revision if len(events) == REPLAY_PAGE else max(upper, after)
        matching = matcher(selection)
        return [event for event in events if matching(event)], reached

    async def _tend(self) -> None:
        options = self._options
        while True:
            await asyncio.sleep(options.progress_seconds)
            self._hub.progress()
            self._cache.drop_idle(monotonic() - options.cache_idle_seconds)


def _answer(readers: Sequence[asyncio.Future[None]], error: StoreError | None) -> None:
    for reader in readers:
        if reader.done():
            continue
        if error is None:
            reader.set_result(None)
        else:
            reader.set_exception(error)


def _counter(result: PGresult) -> tuple[int, str]:
    """The revision and the epoch of ``STATE`` in text form."""
    revision, epoch = result.get_value(0, 0), result.get_value(0, 1)
    if revision is None or epoch is None:
        raise Unavailable("the store has no counter row: migrate first")
    return int(revision), epoch.decode()


def _whole(selection: Range | Everywhere) -> Range | Everywhere:
    """The selection that a shelf holds: all namespaces."""
    return selection._replace(namespace=None) if isinstance(selection, Range) else selection


def _revision_of(data: bytes) -> int:
    """The revision inside kept bytes."""
    return int(orjson.loads(data)["metadata"]["resourceVersion"])
