"""Group commit: the writes that arrive while one transaction is under way go together into the next one."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import psycopg
from psycopg import errors
from psycopg_pool import AsyncConnectionPool

from store.compaction import extend_statements
from store.connections import AWAY, Connection
from store.follower import Follower
from store.planning import Plan, decide, key_parameters, keys_of, require_sound, write_parameters
from store.statements import BATCH_AT, CURRENT, FOLLOW, LOCK, NOTIFY, WRITE, event_of, stored_of
from store.types import Key, Operation, OutcomeUnknown, Stored, StoreError, Unavailable
from store.wire import Wire

logger = logging.getLogger(__name__)

BATCH_WRITES = 256
"""Writes in one transaction: enough to share a flush of the log among many, few enough to keep others' wait short."""

NOTIFY_APART = 0.004
"""Seconds from one notification to the next: under a flood of writes they would cost as much as the writes."""


Peek = Callable[[Sequence[Key]], dict[Key, Stored] | None]
"""What this process holds of some keys, or ``None`` when it does not hold their shelves."""


@dataclass(slots=True)
class Write:
    """One ``commit()`` that waits: what to do, until when to try, and whom to tell."""

    operations: Sequence[Operation]
    deadline: float
    result: asyncio.Future[list[Stored]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch whose COMMIT was sent and not confirmed."""

    batch: int
    plan: Plan


class Committer:
    """Takes the writes of one process to the database, one transaction at a time."""

    def __init__(
        self,
        conninfo: str,
        pool: AsyncConnectionPool[Connection],
        follower: Follower,
        peek: Peek,
        *,
        patience: float,
    ) -> None:
        self._pool = pool
        self._writer = Wire(conninfo, "tenantry-writer")
        # A notification that a crash of the database takes with it is made up for by the polls.
        self._notifier = Wire(conninfo, "tenantry-notifier", options=" -c synchronous_commit=off")
        self._follower = follower
        self._peek = peek
        self._patience = patience
        self._queue: deque[Write] = deque()
        self._ready = asyncio.Event()
        self._announce = asyncio.Event()
        self._foreign = False
        self._open = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to take writes."""
        self._open = True
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._notify())]

    async def stop(self) -> None:
        """Take no more writes, finish those under way, answer ``Unavailable`` to those that cannot be finished."""
        self._open = False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._patience)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()
        self._notifier.close()
        while self._queue:
            _refuse([self._queue.popleft()], Unavailable("the store is closed"))

    async def commit(self, operations: Sequence[Operation]) -> list[Stored]:
        """See ``store.port.Store.commit``."""
        require_sound(operations)
        if not self._open:
            raise Unavailable("the store is closed")
        write = Write(operations, monotonic() + self._patience, asyncio.get_running_loop().create_future())
        self._queue.append(write)
        self._idle.clear()
        self._ready.set()
        return await write.result

    async def _work(self) -> None:
        while True:
            await self._ready.wait()
            while self._queue:
                writes = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_WRITES))]
                # Whoever has gone before the transaction began does not write.
                writes = [write for write in writes if not write.result.done()]
                try:
                    await self._settle(writes)
                except Exception as error:
                    logger.exception("a batch of writes failed")
                    _refuse(writes, OutcomeUnknown(type(error).__name__))
            self._ready.clear()
            self._idle.set()

    async def _settle(self, writes: list[Write]) -> None:
        """Bring every write of a batch to an answer, over as many connections as it takes."""
        sent: Sent | None = None
        delay = 0.01
        while writes:
            now = monotonic()
            late = [write for write in writes if write.deadline <= now]
            if late and sent is not None:
                _refuse(writes, OutcomeUnknown("the database went away while the write was committed"))
                return
            _refuse(late, Unavailable("the database cannot be reached"))
            writes = [write for write in writes if write.deadline > now]
            if not writes:
                return
            attempt = _Attempt(self._follower, self._peek, writes, sent, foreign=self._foreign)
            try:
                plan = await attempt.bet(self._writer)
                if plan is None:
                    async with self._pool.connection(timeout=max(writes[0].deadline - now, 0.05)) as connection:
                        plan = await attempt.transact(connection)
            except AWAY:
                sent = attempt.sent
                await asyncio.sleep(delay)
                delay = min(delay * 2, 0.25)
                continue
            except StoreError as error:
                _refuse(writes, error)
                return
            except psycopg.Error as error:
                await self._separate(writes, error)
                return
            self._foreign = attempt.foreign
            await self._deliver(writes, plan)
            return

    async def _separate(self, writes: list[Write], error: psycopg.Error) -> None:
        """The database refused the batch as a whole: let each write stand alone, so that only the bad one fails."""
        if len(writes) == 1:
            logger.error("the database refused a write: %s", type(error).__name__)
            _refuse(writes, StoreError("the database refused the write"))
            return
        for write in writes:
            await self._settle([write])

    async def _deliver(self, writes: Sequence[Write], plan: Plan) -> None:
        if plan.events:
            last = plan.events[-1].revision
            if not self._follower.take(plan.events):
                try:
                    async with asyncio.timeout(self._patience):
                        await self._follower.reach(last)
                except (Unavailable, TimeoutError):
                    logger.warning("revision %d is committed but not followed yet", last)
            self._announce.set()
        for write, outcome in zip(writes, plan.outcomes, strict=True):
            if write.result.done():
                continue
            if isinstance(outcome, Exception):
                write.result.set_exception(outcome)
            else:
                write.result.set_result(outcome)

    async def _notify(self) -> None:
        while True:
            await self._announce.wait()
            # Two turns of the loop later the writer has its answer.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._announce.clear()
            try:
                await self._notifier.ask(NOTIFY, (str(self._follower.revision),))
            except AWAY:
                # The others' polls find what was written.
                logger.warning("a notification was not sent")
            await asyncio.sleep(NOTIFY_APART)


class _Attempt:
    """One try to commit a batch on one connection."""

    def __init__(
        self, follower: Follower, peek: Peek, writes: Sequence[Write], sent: Sent | None, *, foreign: bool
    ) -> None:
        self._follower = follower
        self._peek = peek
        self._writes = [write.operations for write in writes]
        self.sent = sent
        self.foreign = foreign

    async def bet(self, wire: Wire) -> Plan | None:
        """Decide by what this process holds and commit in one round trip, if nobody else has written meanwhile.

        The counter tells: standing where this process' knowledge ends, it proves that all of it is current, refusals
        included. ``None`` when the bet is not worth placing or was lost; then nothing was written.
        """
        if self.foreign or self.sent is not None:
            return None
        state = self._peek(keys_of(self._writes))
        if state is None:
            return None
        plan = decide(self._writes, state, self._follower.revision)
        if not plan.events:
            return None
        batch = secrets.randbits(63)
        parameters = write_parameters(plan, self._follower.epoch, batch)
        self.sent = Sent(batch, plan)
        try:
            result = await wire.ask(WRITE, parameters)
        except psycopg.Error as error:
            if isinstance(error, AWAY):
                raise
            # Nothing was kept. The long way finds out why, and makes the missing partition.
            self.sent = None
            return None
        if result.command_tuples == len(plan.events):
            return plan
        self.sent = None
        return None

    async def transact(self, connection: Connection) -> Plan:
        """Commit the batch under the lock; afterwards ``foreign`` says whether others wrote in between."""
        try:
            return await self._transact(connection)
        except errors.CheckViolation as error:
            # No partition for the next revisions: whoever should have made it in time did not.
            if error.diag.constraint_name is not None:
                raise
            await connection.rollback()
            self.sent = None
            await self._extend(connection)
            return await self._transact(connection)

    async def _transact(self, connection: Connection) -> Plan:
        known = self._follower.revision
        async with connection.pipeline():
            await connection.execute("BEGIN", prepare=True)
            lock = await connection.execute(LOCK, prepare=True, binary=True)
            current = await connection.execute(
                CURRENT, key_parameters(keys_of(self._writes)), prepare=True, binary=True
            )
            missed = await connection.execute(FOLLOW, (known, 500), prepare=True, binary=True) if self.foreign else None
            proof = await connection.execute(BATCH_AT, (self.sent.plan.events[-1].revision,)) if self.sent else None
        row = await lock.fetchone()
        if row is None:
            raise Unavailable("the store has no counter row: migrate first")
        revision, epoch, compacted = row
        if not self._follower.compare(revision, epoch, known):
            self._follower.lose(revision, epoch)
            if self.sent is not None:
                raise OutcomeUnknown("the history was replaced while the write was committed")
        if self.sent is not None and proof is not None:
            # The lock is held, so the lost transaction has ended one way or the other.
            mark = await proof.fetchone()
            if mark == (self.sent.batch,):
                await connection.execute("ROLLBACK")
                return self.sent.plan
            if compacted >= self.sent.plan.events[-1].revision:
                raise OutcomeUnknown("the log no longer tells whether the write was committed")
            self.sent = None
        if missed is not None:
            self._follower.take([event_of(event) for event in await missed.fetchall()])
        self.foreign = revision != known
        self._follower.learn(revision)
        state = {stored.key: stored for stored in map(stored_of, await current.fetchall())}
        plan = decide(self._writes, state, revision)
        if not plan.events:
            await connection.execute("ROLLBACK")
            return plan
        batch = secrets.randbits(63)
        parameters = write_parameters(plan, epoch, batch)
        self.sent = Sent(batch, plan)
        try:
            async with connection.pipeline():
                await connection.execute(WRITE, parameters, prepare=True)
                await connection.execute("COMMIT", prepare=True)
        except psycopg.Error as error:
            if not isinstance(error, AWAY):
                # The server itself said no, so it is known that nothing was kept.
                self.sent = None
            raise
        return plan

    async def _extend(self, connection: Connection) -> None:
        async with connection.transaction():
            row = await (await connection.execute(LOCK)).fetchone()
            for statement in extend_statements(row[0]) if row is not None else ():
                await connection.execute(statement)


def _refuse(writes: Sequence[Write], error: Exception) -> None:
    for write in writes:
        if not write.result.done():
            write.result.set_exception(error)
