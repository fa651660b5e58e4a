"""The store of one process (``store.interface.Store``) over PostgreSQL.

Writes go through ``store.log.committer``, what any process wrote comes back through ``store.log.follower``, reads are served
from ``store.cache``, the past from ``store.past`` and watches from ``store.watches``. This module joins them and keeps one
promise of its own: a read that is not ``cached`` sees every write to what it reads that was confirmed, by any process,
before the read began.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from store.cache import Cache, ListKey, ResourceCache
from store.listeners import Listeners
from store.log.committer import Committer
from store.log.follower import Follower, clock, position_of, settle
from store.log.leases import Leases, Terms
from store.log.preconditions import key_parameters, rows_of
from store.past import Past, whole
from store.postgresql.arrays import Blobs
from store.postgresql.connections import AWAY, PATIENCE_SECONDS
from store.postgresql.dedicatedconnection import ConnectionPool, DedicatedConnection
from store.postgresql.results import keys_of, objects_of, text_of
from store.postgresql.statements import (
    CURRENT,
    MENTIONING,
    NAMESPACES_LACKING,
    PAGE_BYTES,
    RESOURCES,
    STATE,
    load,
)
from store.sizes import TenantSizes
from store.supervision import Supervised
from store.types import (
    AllSpaces,
    Event,
    HistoryReplaced,
    Key,
    Listing,
    Operation,
    Range,
    RevisionTooNew,
    Room,
    Spaces,
    Stored,
    StoreError,
    Unavailable,
)
from store.watches import Watch, WatchBroadcaster

logger = logging.getLogger(__name__)

FUTURE_SECONDS = 3.0
"""How long a reader waits for a revision from the future, as in Kubernetes."""

LOAD_PAGE = 2000

LOAD_SECONDS = 10.0
"""How long a page of objects may take."""

SPACES_TOGETHER = 64
"""Spaces of one list that are looked at before others get a turn."""

SCAN_SECONDS = 60.0
"""How long a scan of every object may take."""


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
    leases: Terms = field(default_factory=Terms)


class Engine:
    """Use as ``async with Engine(conninfo) as store`` or with ``start`` and ``stop``, in one event loop."""

    def __init__(self, conninfo: str, options: Options | None = None) -> None:
        self._conninfo = conninfo
        self._options = options = options or Options()
        self._pool = ConnectionPool(conninfo, "tenantry-store", options.connections)
        self._cache = Cache(options.cache_bytes)
        self._hub = WatchBroadcaster(
            window_events=options.window_events,
            window_bytes=options.window_bytes,
            buffer_events=options.watch_events,
            buffer_bytes=options.watch_bytes,
        )
        self._follower = Follower(
            conninfo, on_events=self._apply, on_lost=self._forget, poll_seconds=options.poll_seconds
        )
        self.leases = Leases(conninfo, self._follower, self._pool, options.leases)
        self._committer = Committer(conninfo, self._follower, self.leases, patience=options.write_seconds)
        self._sizes = TenantSizes(self._pool, partial(self.get, cached=True))
        self._past = Past(self._pool, self._hub, self._follower, self._resource)
        self._connection = DedicatedConnection(conninfo, "tenantry-reader")
        self._listeners = Listeners()
        self._loads: dict[Range | AllSpaces, asyncio.Task[None]] = {}
        self._readers: list[asyncio.Future[None]] = []
        self._barrier_task: asyncio.Task[None] | None = None
        self._open = False
        self._care = Supervised("store-care", self._tend)

    async def start(self) -> None:
        """Connect and follow the log; raises ``Unavailable`` when the database cannot be reached."""
        await self._follower.start(look_back=self._options.look_back_events)
        self.leases.start()
        self._committer.start()
        self._care.start()
        self._open = True

    async def stop(self) -> None:
        """Finish the writes under way, end all watches, disconnect."""
        await self._committer.stop()
        self._open = False
        await self.leases.stop()
        await self._care.stop()
        tasks = [task for task in (self._barrier_task, *self._loads.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._follower.stop()
        self._connection.close()
        self._hub.restart(self._hub.revision)
        self._pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def revision(self) -> int:
        """See ``store.interface.Store``."""
        return self._follower.revision

    @property
    def healthy(self) -> bool:
        """See ``store.interface.Store``."""
        return self._follower.healthy

    @property
    def silence(self) -> float:
        """See ``store.interface.Store``."""
        return self._follower.silence

    @property
    def histories_replaced(self) -> int:
        """See ``store.interface.Store``."""
        return self._follower.replaced

    def peek(self, key: Key) -> Stored | None:
        """See ``store.interface.Store``."""
        now = clock()
        if now >= self._follower.silent_from:
            return None
        space, group, resource, namespace, name = key
        cache = self._cache.find((space, group, resource, None), now)
        return None if cache is None else cache.items.get((space, namespace, name))

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """See ``store.interface.Store``."""
        now = clock()
        if cached:
            if now >= self._follower.silent_from:
                await self._verify_history()
        elif not self.leases.cover(key.space, now):
            await self._barrier()
        cache = self._cache.find((key.space, key.group, key.resource, None), now) or await self._resource(
            Range(key.space, key.group, key.resource)
        )
        return cache.items.get((key.space, key.namespace, key.name))

    async def list(
        self,
        selection: Range | AllSpaces | Spaces,
        *,
        at_least: int | None = None,
        exact: int | None = None,
        after: ListKey | None = None,
        limit: int = 0,
        cached: bool = False,
    ) -> Listing:
        """See ``store.interface.Store``. Of ``Spaces`` nobody counts how many ``remaining`` there are."""
        wanted = exact if exact is not None else at_least
        now = clock()
        if wanted is not None:
            await self._await_revision(wanted)
        elif cached:
            if now >= self._follower.silent_from:
                await self._verify_history()
        elif not (isinstance(selection, Range) and self.leases.cover(selection.space, now)):
            await self._barrier()
        if isinstance(selection, Spaces):
            return await self._across(selection, self.revision if exact is None else exact, after, limit)
        place = (*selection[:3], None) if isinstance(selection, Range) else selection
        cache = self._cache.find(place, now) or await self._resource(whole(selection))
        if exact is not None and exact != self.revision:
            items, remaining = await self._past.listing(selection, exact, after, limit)
        else:
            items, remaining = cache.listing(selection, after, limit)
        return Listing(items, self.revision if exact is None else exact, remaining)

    async def _across(self, selection: Spaces, revision: int, after: ListKey | None, limit: int) -> Listing:
        """Space by space, each as it was at the revision, until there are enough."""
        group, resource, spaces = selection
        items: list[Stored] = []
        remaining, replaced = 0, self.histories_replaced
        begin = 0 if after is None else bisect_left(spaces, after[0])
        for number, space in enumerate(spaces[begin:], 1):
            if remaining or (limit and len(items) >= limit):
                remaining = remaining or 1
                break
            if number % SPACES_TOGETHER == 0:
                await asyncio.sleep(0)
            part, behind = Range(space, group, resource), after if after is not None and after[0] == space else None
            cache, room = await self._resource(part), limit and limit - len(items)
            if cache.changed > revision:
                found, remaining = await self._past.listing(part, revision, behind, room)
            else:
                found, remaining = cache.listing(part, behind, room)
            items += found
        if replaced != self.histories_replaced:
            raise HistoryReplaced("the history was replaced")
        return Listing(items, revision, remaining)

    async def commit(self, *operations: Operation, room: Room | None = None) -> Sequence[Stored]:
        """See ``store.interface.Store``."""
        rows = rows_of(operations)
        commit = self._committer.commit
        return await (commit(rows) if room is None else self._sizes.within(room, rows, commit))

    async def bytes_of(self, tenant: str) -> int:
        """See ``store.interface.Store``."""
        return await self._sizes.of(tenant)

    def watch(self, selection: Range | AllSpaces | Spaces, *, since: int) -> Watch:
        """See ``store.interface.Store``."""
        return Watch(self._hub, selection, since, self._await_revision, self._past.replay)

    def subscribe(
        self,
        listener: Callable[[Sequence[Event]], None],
        *,
        lost: Callable[[], None] | None = None,
        resources: Collection[tuple[str, str]] | None = None,
    ) -> Callable[[], None]:
        """See ``store.interface.Store``."""
        return self._listeners.add(listener, lost, resources)

    async def resources(self, space: str, namespace: str | None = None) -> Sequence[tuple[str, str]]:
        """See ``store.interface.Store``."""
        result = await self._pool.ask(RESOURCES, (space, namespace, namespace))
        get = result.get_value
        return [(text_of(get(row, 0)), text_of(get(row, 1))) for row in range(result.ntuples)]

    async def current(self, keys: Sequence[Key]) -> dict[Key, Stored]:
        """Those of the objects that are there, from the database itself: for who looks once at objects of many spaces."""
        found = objects_of(await self._pool.ask(CURRENT, key_parameters(keys)))
        return {stored.key: stored for stored in found}

    async def keys_containing(self, *texts: bytes) -> Sequence[Key]:
        """The keys, in every space, of the objects whose JSON contains one of the texts: a scan of everything."""
        return keys_of(await self._pool.ask(MENTIONING, (Blobs(texts),), patience=SCAN_SECONDS))

    async def namespaces_lacking(self, kept: tuple[str, str, str], text: str) -> Sequence[Key]:
        """The namespaces, of every space, without that object (group, resource, name), or whose it lacks the text."""
        return keys_of(await self._pool.ask(NAMESPACES_LACKING, (*kept, text), patience=SCAN_SECONDS))

    # What the log brings.

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self._cache.apply(event)
        self._sizes.on_events(events)
        self._listeners.tell(events)
        self._hub.publish(events)

    def _forget(self, revision: int) -> None:
        self.leases.void()
        self._cache.clear()
        self._sizes.forget()
        self._listeners.tell_lost()
        self._hub.restart(revision)

    # Consistent reads of what no lease covers: one question to the database serves everybody who arrived before it was asked.

    async def _barrier(self) -> None:
        if not self._open:
            raise Unavailable("the store is closed")
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
                settle(readers, error)
            except BaseException:
                settle(readers + self._readers, Unavailable("the store is closed"))
                raise
            else:
                settle(readers, None)

    async def _see_everything(self) -> None:
        state, asked, known = None, clock(), self._follower.position
        if self._connection.connected:
            # Nearly always the counter stands where this process does: that costs one question and one timer.
            try:
                state = position_of(await self._connection.ask_within(PATIENCE_SECONDS, STATE))
            except TimeoutError as error:
                raise Unavailable("the database cannot be reached") from error
            except AWAY:
                pass
            if state == known and not self._follower.is_void(asked, known):
                return
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                seen = state is not None and await self._follower.reaches(state, asked, known)
                while not seen:
                    asked, known = clock(), self._follower.position
                    with suppress(*AWAY):
                        state = position_of(await self._connection.ask(STATE))
                        seen = await self._follower.reaches(state, asked, known)
                    if not seen:
                        await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise Unavailable("the database cannot be reached") from error

    async def _verify_history(self) -> None:
        """After a silence: learn whether what is known here is still the history, or that nobody can say so now."""
        with suppress(Unavailable):
            await self._follower.verify_history()

    async def _await_revision(self, revision: int) -> None:
        """Wait for a revision that a client named; ``RevisionTooNew`` when it does not come in time."""
        if clock() >= self._follower.silent_from:
            await self._verify_history()
        if revision <= self.revision:
            return
        # Whether there is such a revision already is the database's to say, however long that takes it.
        await self._barrier()
        try:
            async with asyncio.timeout(FUTURE_SECONDS):
                while revision > self.revision:
                    with suppress(HistoryReplaced):
                        await self._follower.wait_for(revision)
                    await self._barrier()
        except TimeoutError:
            raise RevisionTooNew(revision, self.revision) from None

    # Filling caches.

    def _loading(self, selection: Range | AllSpaces) -> asyncio.Task[None]:
        task = self._loads.get(selection)
        if task is None or task.done():
            # One that has ended in vain is still known until the loop has gone on: who waits for it waits for nothing.
            task = self._loads[selection] = asyncio.create_task(self._load(selection))
            task.add_done_callback(partial(self._loaded, selection))
        return task

    def _loaded(self, selection: Range | AllSpaces, task: asyncio.Task[None]) -> None:
        if self._loads.get(selection) is task:
            del self._loads[selection]

    async def _resource(self, selection: Range | AllSpaces) -> ResourceCache:
        while True:
            cache = self._cache.find(selection, clock())
            if cache is not None:
                return cache
            task = self._loading(selection)
            # A reader that goes must not take the load away from the others.
            with suppress(HistoryReplaced):
                await asyncio.shield(task)

    async def _load(self, selection: Range | AllSpaces) -> None:
        """Page through a selection and bring the pages, which are of different moments, to one revision.

        Every event above the first page's revision is applied to all of it: an older state that this puts in
        place for a moment is followed by the newer one, because the log is complete and in order.
        """
        missed = self._cache.buffer_events(selection)
        try:
            objects = deque[Stored]()
            first, revision = None, 0
            after: ListKey = ("", "", "")
            full = True
            while full:
                page, revision = await self._load_page(selection, after)
                first = revision if first is None else first
                objects += page
                full = len(page) == LOAD_PAGE or sum(len(stored.data) for stored in page) >= PAGE_BYTES
                if full:
                    key = page[-1].key
                    after = (key.space, key.namespace, key.name)
            await self._follower.wait_for(revision)
            if self._cache.buffer_events(selection) is not missed:
                return  # Everything was forgotten meanwhile; whoever waits starts over.
            cache = ResourceCache(objects, self.revision)
            for event in missed:
                if first is not None and event.revision > first:
                    cache.apply(event)
            self._cache.put(selection, cache, clock())
        finally:
            self._cache.stop_buffering(selection)

    async def _load_page(self, selection: Range | AllSpaces, after: ListKey) -> tuple[Sequence[Stored], int]:
        statement, parameters = load(selection)
        group, resource = selection.group, selection.resource
        result = await self._pool.ask(statement, (*parameters, *after, LOAD_PAGE, PAGE_BYTES), patience=LOAD_SECONDS)
        get = result.get_value
        if not result.ntuples:
            raise Unavailable("the store has no counter row: migrate first")
        return [
            Stored(
                Key(text_of(get(row, 1)), group, resource, text_of(get(row, 2)), text_of(get(row, 3))),
                int.from_bytes(get(row, 4) or b""),
                get(row, 5) or b"",
            )
            for row in range(result.ntuples)
            if get(row, 1) is not None
        ], int.from_bytes(get(0, 0) or b"")

    async def _tend(self) -> None:
        options = self._options
        while True:
            await asyncio.sleep(options.progress_seconds)
            self._hub.progress()
            self._cache.drop_idle(clock() - options.cache_idle_seconds)
