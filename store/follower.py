"""The follower of the log: every event that any process wrote, in order, exactly once.

A notification is only a hint that the log has grown; what counts is what is read from the log, and a poll stands
behind the notifications. When the log does not continue where this process stopped (a restore, a failover to an
older copy, compaction beyond it), continuity is lost: ``on_lost`` is called and the follower begins anew.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic

from psycopg.pq.abc import PGresult
from psycopg_pool import AsyncConnectionPool

from store.connections import AWAY, Connection, persist
from store.statements import CHANNEL, FOLLOW, ORIGIN, STATE, event_of
from store.types import Event, Unavailable
from store.wire import BINARY, Wire

logger = logging.getLogger(__name__)

HEALTHY_SECONDS = 2.0
"""Without a word from the database for this long, what this process knows may be stale."""

PAGE = 1000


@dataclass(frozen=True, slots=True)
class State:
    """The counter row and whose it is."""

    revision: int
    epoch: str
    compacted: int
    origin: str


class Follower:
    """Follows the log of one database; ``revision`` is how far ``on_events`` has been called."""

    def __init__(
        self,
        conninfo: str,
        pool: AsyncConnectionPool[Connection],
        *,
        on_events: Callable[[Sequence[Event]], None],
        on_lost: Callable[[int], None],
        poll_seconds: float,
    ) -> None:
        self.revision = 0
        self.compacted = 0
        self.epoch = ""
        self._origin = ""
        self._pool = pool
        self._dead = asyncio.Event()
        self._wire = Wire(conninfo, "tenantry-follower", channel=CHANNEL, heard=self._heard, lost=self._dead.set)
        self._log = Wire(conninfo, "tenantry-log")
        self._on_events = on_events
        self._on_lost = on_lost
        self._poll_seconds = poll_seconds
        self._contact = 0.0
        self._target = 0
        self._behind = asyncio.Event()
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = count()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def healthy(self) -> bool:
        """Whether the database has been heard of within ``HEALTHY_SECONDS``."""
        return monotonic() - self._contact < HEALTHY_SECONDS

    async def start(self, *, look_back: int) -> None:
        """Learn where the log stands, take its last ``look_back`` events in, and follow; or ``Unavailable``."""
        state = await persist(self._pool, read_state)
        self._adopt(state, max(state.revision - look_back, state.compacted))
        self._contact = monotonic()
        self.learn(state.revision)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._fetch())]
        await self.reach(state.revision)

    async def stop(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._wire.close()
        self._log.close()
        for _, _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("the store is closed"))
        self._waiters.clear()

    def learn(self, revision: int) -> None:
        """The log reaches ``revision``, somebody says; go and see."""
        if revision > self.revision:
            self._target = max(self._target, revision)
            self._behind.set()

    def take(self, events: Sequence[Event]) -> bool:
        """Apply events that are known to be committed; false when they do not follow the last ones."""
        events = [event for event in events if event.revision > self.revision]
        if not events:
            return True
        if events[0].revision != self.revision + 1:
            return False
        self.revision = events[-1].revision
        self._on_events(events)
        while self._waiters and self._waiters[0][0] <= self.revision:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        return True

    async def reach(self, revision: int) -> None:
        """Wait until every event up to ``revision``, which is committed, has been applied."""
        while self.revision < revision:
            self.learn(revision)
            waiter = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (revision, next(self._number), waiter))
            await waiter

    def compare(self, revision: int, epoch: str, floor: int) -> bool:
        """Whether the counter row continues this process' history, which was at ``floor`` when it was asked."""
        return epoch == self.epoch and revision >= floor

    def lose(self, revision: int, epoch: str) -> None:
        """The history is another one: forget, and begin anew behind ``revision``."""
        logger.warning(
            "the change log does not continue after revision %d: starting over at %d", self.revision, revision
        )
        self.revision = self._target = revision
        self.epoch = epoch
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("the history was replaced"))
        self._on_lost(revision)

    def _adopt(self, state: State, revision: int) -> None:
        self.epoch, self._origin, self.compacted = state.epoch, state.origin, state.compacted
        self.revision = revision
        self._on_lost(revision)

    async def _listen(self) -> None:
        delay = 0.05
        while True:
            self._dead.clear()
            try:
                await self._poll()
                delay = 0.05
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._dead.wait(), self._poll_seconds)
            except AWAY as error:
                self._wire.close()
                logger.warning("the follower lost the database: %s", type(error).__name__)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)

    def _heard(self, payload: bytes) -> None:
        self._contact = monotonic()
        if payload.isdigit():
            self.learn(int(payload))

    async def _poll(self) -> None:
        floor, epoch = self.revision, self.epoch
        async with asyncio.timeout(HEALTHY_SECONDS):
            state = state_of(await self._wire.ask(STATE), await self._wire.ask(ORIGIN))
        self._contact = monotonic()
        if epoch != self.epoch:
            return
        if state.origin != self._origin or not self.compare(state.revision, state.epoch, floor):
            self._origin = state.origin
            self.lose(state.revision, state.epoch)
        self.compacted = state.compacted
        self.learn(state.revision)

    async def _fetch(self) -> None:
        while True:
            await self._behind.wait()
            self._behind.clear()
            while self.revision < self._target:
                try:
                    await self._fetch_page()
                except (*AWAY, Unavailable):
                    await asyncio.sleep(0.1)

    async def _fetch_page(self) -> None:
        after, epoch = self.revision, self.epoch
        events = logged(await self._log.ask(FOLLOW, (after, PAGE), form=BINARY))
        if epoch == self.epoch and events and self.take(events):
            return
        state = await persist(self._pool, read_state)
        if epoch != self.epoch:
            # Somebody else has noticed that the history was replaced, and this may have been read before it was.
            return
        if state.compacted > self.revision or not self.compare(state.revision, state.epoch, after):
            self.compacted = state.compacted
            self.lose(state.revision, state.epoch)
        elif not events:
            # Somebody announced what is not there.
            self._target = self.revision


async def read_state(connection: Connection) -> State:
    """The counter row, with the fingerprint of the database it lies in."""
    async with connection.pipeline():
        state = await connection.execute(STATE)
        origin = await connection.execute(ORIGIN)
    row, source = await state.fetchone(), await origin.fetchone()
    if row is None or source is None:
        raise Unavailable("the store has no counter row: migrate first")
    revision, epoch, compacted, table = row
    return State(revision, epoch, compacted, f"{source[0]}/{table}")


def logged(result: PGresult) -> list[Event]:
    """The events of an answer to ``FOLLOW`` in the binary form."""
    get = result.get_value
    return [
        event_of(
            (
                int.from_bytes(get(row, 0) or b""),
                *[(get(row, column) or b"").decode() for column in range(1, 7)],
                get(row, 7),
                get(row, 8),
            )
        )
        for row in range(result.ntuples)
    ]


def state_of(state: PGresult, origin: PGresult) -> State:
    """The same from the two answers in text form."""
    revision, epoch, compacted, table = (state.get_value(0, column) or b"" for column in range(4))
    source = origin.get_value(0, 0) or b""
    if not revision:
        raise Unavailable("the store has no counter row: migrate first")
    return State(int(revision), epoch.decode(), int(compacted), f"{source.decode()}/{table.decode()}")
