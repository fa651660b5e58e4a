"""Group commit: the writes that arrive while one transaction is under way go together into the next one.

A batch is one statement, and its transaction has ended in the database before the answer is sent: no lock waits for
this process, wherever it is stopped. What the database does, step by step, stands in ``store_write`` of the migrations;
the steps here are numbered on from there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

import psycopg
from psycopg import errors

from store.log.compaction import EXTENT
from store.log.follower import Follower
from store.log.leases import Leases
from store.log.preconditions import (
    CHECK,
    Answer,
    Rows,
    answer_of,
    leased_spaces,
    outcomes_of,
    parameters_of,
)
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import BINARY, DedicatedConnection
from store.postgresql.statements import COMMIT, EXTEND, NOTIFY
from store.supervision import Supervised
from store.types import Key, OutcomeUnknown, PreconditionFailed, Stored, StoreError, Unavailable

logger = logging.getLogger(__name__)

BATCH_WRITES: Final = 256
"""Writes in one transaction: enough to share a flush of the log among many, few enough to keep others' wait short."""

ATTEMPT_SECONDS: Final = 4.0
"""How long one connection is waited for: a batch that is sent again on another one is written once."""

NOTIFY_APART: Final = 0.01
"""Seconds from one notification to the next: each wakes every listener of every process, so that under a flood of writes
they would cost more than the writes. Who reads what was written elsewhere asks, and does not wait for one."""

_WRITTEN: Final = ("kept", "again")


class _Leased(Exception):
    """Somebody else reads these spaces by a lease, which has to be ended first."""

    def __init__(self, spaces: frozenset[str]) -> None:
        self.spaces = spaces


@dataclass(slots=True)
class Write:
    """One ``commit()`` that waits: what to do, in which history it was asked, until when to try, and whom to tell."""

    rows: Rows
    epoch: str
    deadline: float
    result: asyncio.Future[list[Stored]]


class Committer:
    """Takes the writes of one process to the database, one transaction at a time."""

    def __init__(self, conninfo: str, follower: Follower, leases: Leases, *, patience: float) -> None:
        # A timeout would end the wait for a synchronous standby too: the write would be seen, and said to be kept, while
        # the standby may not have it. Whoever waits here for too long hangs up instead.
        self._writer = DedicatedConnection(conninfo, "tenantry-writer", session="SET statement_timeout TO 0")
        # A notification that a crash of the database takes with it is made up for by the polls.
        self._notifier = DedicatedConnection(conninfo, "tenantry-notifier", session="SET synchronous_commit TO off")
        self._follower = follower
        self._leases = leases
        self._patience = patience
        self._queue: deque[Write] = deque()
        self._ready = asyncio.Event()
        self._announce = asyncio.Event()
        self._open = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = (Supervised("store-committer", self._work), Supervised("store-notifier", self._notify))

    def start(self) -> None:
        """Begin to take writes."""
        self._open = True
        for task in self._tasks:
            task.start()

    async def stop(self) -> None:
        """Take no more writes, finish those under way, answer ``Unavailable`` to those that cannot be finished."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._idle.wait()
        for task in self._tasks:
            await task.stop()
        self._writer.close()
        self._notifier.close()
        while self._queue:
            _refuse([self._queue.popleft()], Unavailable("the store is closed"))

    async def commit(self, rows: Rows) -> list[Stored]:
        """See ``store.interface.Store.commit``."""
        epoch, deadline = self._follower.position.epoch, monotonic() + self._patience
        while True:
            if not self._open:
                raise Unavailable("the store is closed")
            if not rows:
                return []
            if self._leases.ending and await self._leases.wait({row.key.space for row in rows}):
                continue
            write = Write(rows, epoch, deadline, asyncio.get_running_loop().create_future())
            self._queue.append(write)
            self._idle.clear()
            self._ready.set()
            try:
                return await write.result
            except _Leased as leased:
                await self._leases.end(leased.spaces)

    async def _work(self) -> None:
        while True:
            await self._ready.wait()
            while self._queue:
                writes = self._together()
                # What is only checked stays as it is: there others' writes are seen by the lease as before.
                self._leases.writing = {row.key.space for write in writes for row in write.rows if row.type != CHECK}
                try:
                    await self._settle(writes)
                except BaseException as error:
                    self._doubt(writes, type(error).__name__)
                    raise
                finally:
                    self._leases.writing = ()
            self._ready.clear()
            self._idle.set()

    def _together(self) -> list[Write]:
        """The next writes of which none changes an object that another one changes or checks.

        8. Within a statement every operation meets the rows as they were before it, so writes that meet each other go
        one after the other; the rest of the line keeps its order.
        """
        if len(self._queue) == 1:
            # It meets nobody.
            write = self._queue.popleft()
            return [] if write.result.done() else [write]
        writes: list[Write] = []
        changed: set[Key] = set()
        checked: set[Key] = set()
        later: list[Write] = []
        while self._queue and len(writes) < BATCH_WRITES and len(later) < BATCH_WRITES:
            write = self._queue.popleft()
            if write.result.done():
                continue  # Whoever has gone before the transaction began does not write.
            changes = {row.key for row in write.rows if row.type != CHECK}
            checks = {row.key for row in write.rows if row.type == CHECK}
            meets = changes & changed or changes & checked or checks & changed
            changed |= changes
            checked |= checks
            (later if meets else writes).append(write)
        self._queue.extendleft(reversed(later))
        return writes

    async def _settle(self, writes: list[Write]) -> None:
        """Bring every write of a batch to an answer, over as many connections as it takes."""
        while writes := self._current(writes):
            answer = await self._send(writes)
            if answer is None:
                return
            if answer.outcome in _WRITTEN:
                await self._deliver(writes, answer)
                return
            if answer.outcome == "leased":
                # Nothing was written. Who writes elsewhere does not wait with those who have to.
                spaces = leased_spaces([write.rows for write in writes], answer)
                waiting = [write for write in writes if any(row.key.space in spaces for row in write.rows)]
                _refuse(waiting, _Leased(spaces))
                continue
            # 11. The history is another one, or the log no longer reaches back to what is known here. Nothing was
            #     written; everything is forgotten before the next try.
            self._follower.reset(answer)

    def _current(self, writes: list[Write]) -> list[Write]:
        """The writes that may be sent.

        9. A revision means something within its history alone: a write that expects one of another epoch has lost,
        whatever the row's number. A write that expects nothing to be there is as good in any history.
        """
        epoch = self._follower.position.epoch
        current = []
        for write in writes:
            if write.result.done():
                continue
            expecting = next((row.key for row in write.rows if row.expected), None)
            if write.epoch != epoch and expecting is not None:
                _refuse([write], PreconditionFailed(expecting, None))
            elif write.deadline <= monotonic():
                _refuse([write], Unavailable("the database cannot be reached"))
            else:
                current.append(write)
        return current

    async def _send(self, writes: list[Write]) -> Answer | None:
        """The answer to a batch, or ``None`` when its writes have got theirs.

        10. What is sent again is the same to the byte, with the knowledge and the batch's number of the first time: the
        database finds by it what an earlier try has written, and a try that arrives late finds the later one.
        """
        parameters = parameters_of(
            [write.rows for write in writes],
            self._follower.position,
            secrets.randbits(63),
            holder=self._leases.holder,
        )
        deadline = min(write.deadline for write in writes)
        doubtful, delay = False, 0.01
        while (left := deadline - monotonic()) > 0:
            sent, until = False, monotonic() + min(ATTEMPT_SECONDS, left)
            try:
                if not self._writer.connected:
                    async with asyncio.timeout(until - monotonic()):
                        await self._writer.ready()
                sent = True
                answer = answer_of(await self._writer.ask_within(until - monotonic(), COMMIT, parameters, form=BINARY))
            except errors.LockNotAvailable:
                pass
            except AWAY:
                doubtful |= sent
            except psycopg.Error as error:
                # The server itself said no, so it is known that nothing was kept.
                if not isinstance(error, errors.CheckViolation) or error.diag.constraint_name is not None:
                    await self._separate(writes, error)
                    return None
                await self._extend(left)
            else:
                if answer.outcome == "missing":
                    _refuse(writes, Unavailable("the store has no counter row: migrate first"))
                    return None
                if doubtful and not _is_settled(writes, answer):
                    self._doubt(writes, "the database has not answered a write before it refused it")
                return answer
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.25)
        if doubtful:
            self._doubt(writes, "the database has not answered a write")
        _refuse(writes, Unavailable("the database cannot be reached"))
        return None

    def _doubt(self, writes: Sequence[Write], reason: str) -> None:
        """Nobody knows what became of these: they may even be kept later, as writes of who held the leases until now."""
        self._leases.void()
        _refuse(writes, OutcomeUnknown(reason))

    async def _extend(self, patience: float) -> None:
        """There is no partition for the next revisions: whoever should have made it in time did not."""
        with suppress(psycopg.Error, *AWAY):
            async with asyncio.timeout(patience):
                await self._writer.ask(EXTEND, EXTENT)

    async def _separate(self, writes: list[Write], error: psycopg.Error) -> None:
        """The database refused the batch as a whole: let each write stand alone, so that only the bad one fails."""
        if len(writes) > 1:
            for write in writes:
                await self._settle([write])
            return
        (write,) = writes
        if isinstance(error, errors.UniqueViolation):
            _refuse(writes, PreconditionFailed(write.rows[0].key, None))
            return
        logger.error("the database refused a write: %s", type(error).__name__)
        _refuse(writes, StoreError("the database refused the write"))

    async def _deliver(self, writes: Sequence[Write], answer: Answer) -> None:
        outcomes, events = outcomes_of([write.rows for write in writes], answer)
        if events:
            last = events[-1].revision
            # 12. Own events are applied where the log's would be, behind the event that the database found before them.
            if not self._follower.apply(answer.before, events, [answer.after.batch] * len(events)):
                try:
                    async with asyncio.timeout(self._patience):
                        await self._follower.wait_for(last)
                except (Unavailable, TimeoutError):
                    self._leases.void()
                    logger.warning("revision %d is committed but not followed yet", last)
            self._announce.set()
        for write, outcome in zip(writes, outcomes, strict=True):
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
                if not self._notifier.connected:
                    async with asyncio.timeout(ATTEMPT_SECONDS):
                        await self._notifier.ready()
                await self._notifier.ask_within(ATTEMPT_SECONDS, NOTIFY, (str(self._follower.revision),))
            except AWAY:
                # The others' polls find what was written.
                logger.warning("a notification was not sent")
            await asyncio.sleep(NOTIFY_APART)


def _is_settled(writes: Sequence[Write], answer: Answer) -> bool:
    """Whether a try that arrives after this answer writes nothing: it finds what was written, or has nothing to write."""
    changes = any(row.type != CHECK for write in writes for row in write.rows)
    return answer.outcome in _WRITTEN and (not changes or any(given is not None for given in answer.given))


def _refuse(writes: Sequence[Write], error: Exception) -> None:
    for write in writes:
        if not write.result.done():
            write.result.set_exception(error)
