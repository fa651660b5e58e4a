"""The follower of the log: every event that any process wrote, in order, exactly once.

A notification is only a hint that the log has grown; what counts is what is read from the log, and a poll stands
behind the notifications. Every reading begins with the last event that is known here and proves, by its batch, that
what follows is the same history's (``store_write`` of the migrations says why that is a proof). When it is not (a
restore, a failover to an older copy), or when the log was compacted beyond it, ``on_lost`` is called and the follower
begins anew.

How an event gets from the log to the listeners, once and in order:

1. ``known`` names the last event that ``on_events`` has been called with: epoch, revision, batch. Once it
   follows, only ``apply`` and ``_reset`` move it, together with the call and without an await in between.
2. The follower's own reading (``_look``) and the committer's own writes both end in ``apply``. Whichever comes first
   wins; the other finds its events below ``known`` and skips them. So nothing is applied twice.
3. ``apply`` takes events only if the one at ``known`` is among them, or directly before them, with the same batch.
   Otherwise there is a gap or another history, and nothing is applied. So nothing is left out.
4. ``known`` is captured before each question; an answer counts only if the epoch is still the same when it arrives.
5. Only the database decides that a history is over (``_renew``), under the lock that writers take. A page that does
   not fit is a suspicion, never a verdict.
6. ``_reset`` refuses everybody who waits for a revision, because the number may come to mean something else.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from psycopg.pq.abc import PGresult

from store.log.preconditions import NO_POSITION, Answer, LogPosition, answer_of, parameters_of
from store.postgresql.connections import AWAY, PATIENCE_SECONDS
from store.postgresql.dedicatedconnection import BINARY, DedicatedConnection
from store.postgresql.statements import CHANNEL, COMMIT, FOLLOW, LOOK_BACK, STATE
from store.supervision import Supervised
from store.types import Event, EventType, HistoryReplaced, Key, StoreError, Unavailable

logger = logging.getLogger(__name__)

HEALTHY_SECONDS = 2.0
"""Without a word from the database for this long, what this process knows may be stale, or of another history."""

PAGE = 1000

clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds that have passed, those in which the machine slept included; nobody can set it."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the log behind what its reader knew, and the counter row of the same moment."""

    state: LogPosition
    compacted: int
    began: int
    link: int | None
    """The batch of the event that the reader knew last; ``None`` when it is not in the log."""
    events: Sequence[Event]
    batches: Sequence[int]
    continued: bool
    """Whether this is the timeline of the last write: a promoted standby's history is another one, whatever it holds."""

    @property
    def is_last(self) -> bool:
        """Whether nothing that was there at the moment of the page follows it."""
        return not self.events or self.events[-1].revision == self.state.revision

    def proves(self, known: LogPosition) -> bool:
        """Whether ``known`` is in this history, and everything that followed is in the log."""
        if not self.continued or self.state.epoch != known.epoch or self.compacted > known.revision:
            return False
        if self.state.revision == known.revision:
            return self.state.batch == known.batch
        return self.link == known.batch if self.link is not None else self.began == known.revision < self.state.revision


class Follower:
    """Follows the log of one database; ``known`` is how far ``on_events`` has been called."""

    def __init__(
        self,
        conninfo: str,
        *,
        on_events: Callable[[Sequence[Event]], None],
        on_lost: Callable[[int], None],
        poll_seconds: float,
    ) -> None:
        self.position = LogPosition("", 0, 0)
        self.replaced = 0
        """How often what was known here turned out to be another history's."""
        self._wake = asyncio.Event()
        self._connection = DedicatedConnection(
            conninfo, "tenantry-follower", channel=CHANNEL, heard=self._heard, lost=self._wake.set
        )
        self._on_events = on_events
        self._on_lost = on_lost
        self._poll_seconds = poll_seconds
        self._contact = float("-inf")
        self.silent_from = float("-inf")
        """When (see ``clock``) nobody will even have tried to prove it for ``HEALTHY_SECONDS``, because this process
        slept, or had no turn. One comparison, for who reads from memory."""
        self._target = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._verifications: list[asyncio.Future[None]] = []
        self._number = count()
        self._task = Supervised("store-follower", self._run)

    @property
    def revision(self) -> int:
        """How far ``on_events`` has been called."""
        return self.position.revision

    @property
    def healthy(self) -> bool:
        """Whether what is known was proved to be the database's history within ``HEALTHY_SECONDS``."""
        return self.silence < HEALTHY_SECONDS

    @property
    def silence(self) -> float:
        """For how many seconds what is known was not proved to be all that there is."""
        return clock() - self._contact

    async def start(self, *, look_back: int) -> None:
        """Learn where the log stands, take its last ``look_back`` events in, and follow; or ``Unavailable``."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                page = await self._begin(look_back)
        except AWAY as error:
            self._connection.close()
            raise Unavailable("the database cannot be reached") from error
        first = page.state.revision - len(page.events)
        self._reset(page.state._replace(revision=first))
        self._touch(clock())
        if page.events:
            self._deliver(page.events)
        self.position = page.state
        self._task.start()

    async def stop(self) -> None:
        """End the reading of the log; whoever waits for a revision is refused."""
        await self._task.stop()
        self._connection.close()
        self._refuse(Unavailable("the store is closed"))

    def note_revision(self, revision: int) -> None:
        """The log reaches ``revision``, somebody says; go and see."""
        if revision > self.position.revision:
            self._target = max(self._target, revision)
            self._wake.set()

    def apply(self, after: tuple[int, int | None], events: Sequence[Event], batches: Sequence[int]) -> bool:
        """Apply events that are known to be committed behind ``after``, which is a revision and its batch.

        False when the last event known here is not among them with its batch: they may be another history's.
        """
        mine, batch = self.position.revision, self.position.batch
        if not events or events[-1].revision <= mine:
            # The other of the two ways was faster.
            return True
        # The events that are known already, by revisions without gaps; negative: some between are missing.
        skipped = mine - events[0].revision + 1
        if skipped < 0 or (after if skipped == 0 else (mine, batches[skipped - 1])) != (mine, batch):
            return False
        self.position = LogPosition(self.position.epoch, events[-1].revision, batches[-1])
        self._deliver(events[skipped:])
        return True

    async def wait_for(self, revision: int) -> None:
        """Wait until every event up to ``revision``, which is committed, has been applied."""
        while self.position.revision < revision:
            self.note_revision(revision)
            waiter = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (revision, next(self._number), waiter))
            await waiter

    async def verify_history(self) -> None:
        """Wait until the database has been asked, from now on, whether its history is still the one known here.

        Afterwards it is, or everything was forgotten. Raises ``Unavailable`` when the database does not answer.
        """
        waiter = asyncio.get_running_loop().create_future()
        # A question that is under way was asked before this doubt: ``_run`` takes the verifications before each question, so
        # that each is settled by one that was asked after it.
        self._verifications.append(waiter)
        self._wake.set()
        await waiter

    def is_void(self, asked: float, known: LogPosition) -> bool:
        """Whether an answer may be of an old history: asked for before somebody noticed a new one, or this slept."""
        return known.epoch != self.position.epoch or clock() - asked > HEALTHY_SECONDS

    async def reaches(self, state: LogPosition, asked: float, known: LogPosition) -> bool:
        """Follow to where the counter stood after ``asked``; false when that says nothing of what was ``known`` then."""
        if self.is_void(asked, known):
            return False
        if state == known:
            return True
        if state.epoch != known.epoch or state.revision <= known.revision:
            with suppress(Unavailable):
                await self.verify_history()
            return False
        try:
            # What is read on the way proves that it follows.
            await self.wait_for(state.revision)
        except HistoryReplaced:
            return False
        return True

    def reset(self, answer: Answer) -> None:
        """The history is another one, says the database: forget, and begin anew where it stands."""
        if answer.after.epoch == self.position.epoch and answer.after.revision <= self.position.revision:
            return  # Somebody else has noticed already.
        self._reset(answer.after)

    def _reset(self, state: LogPosition) -> None:
        if self.position.epoch:
            self.replaced += 1
            logger.warning(
                "the change log does not continue after revision %d: starting over at %d",
                self.position.revision,
                state.revision,
            )
        self.position = state
        self._target = state.revision
        self._refuse(HistoryReplaced("the history was replaced"))
        self._on_lost(state.revision)

    def _refuse(self, error: Unavailable) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in [waiter for _, _, waiter in waiters]:
            if not waiter.done():
                waiter.set_exception(error)

    def _deliver(self, events: Sequence[Event]) -> None:
        self._on_events(events)
        while self._waiters and self._waiters[0][0] <= events[-1].revision:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def _heard(self, payload: bytes) -> None:
        if payload.isdigit():
            self.note_revision(int(payload))
        else:
            self._wake.set()

    async def _begin(self, look_back: int) -> Page:
        while True:
            result = await self._connection.ask(STATE)
            state, compacted = position_of(result), int(result.get_value(0, 3) or b"")
            after = max(state.revision - look_back, compacted)
            found = await self._connection.ask(LOOK_BACK, (after, after), form=BINARY)
            after = int.from_bytes(found.get_value(0, 0) or b"")
            # Between the questions the counter may move on or the history be replaced: then all are asked again.
            page = await self._page(after, look_back + PAGE)
            if not page.continued:
                # A promoted standby: the epoch that begins now is the first that anybody here knows.
                await self._connection.ask(COMMIT, parameters_of((), NO_POSITION, secrets.randbits(63)), form=BINARY)
            elif page.state.epoch == state.epoch and page.is_last:
                return page

    async def _page(self, after: int, limit: int) -> Page:
        """What follows a revision, so many events and ``PAGE_BYTES`` at most, but one if there is any."""
        return page_of(await self._connection.ask(FOLLOW, (after, after, after, after, limit), form=BINARY), after)

    async def _run(self) -> None:
        delay = 0.05
        while True:
            # Both before the question: whoever wakes or verifications while it is answered gets another one.
            self._wake.clear()
            verifications, self._verifications = self._verifications, []
            try:
                async with asyncio.timeout(HEALTHY_SECONDS):
                    more, whole = await self._look()
                delay = 0.05
                if whole:
                    settle(verifications, None)
                else:
                    # What is known is of the history, but not yet all of it that there was when they asked.
                    self._verifications = [*verifications, *self._verifications]
            except (*AWAY, Unavailable) as error:
                self._connection.close()
                self.silent_from = clock() + HEALTHY_SECONDS
                settle(verifications, Unavailable("the database cannot be reached"))
                logger.warning("the follower lost the database: %s", type(error).__name__)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 1.0)
                continue
            except BaseException:
                settle(verifications, Unavailable("the store is closed"))
                raise
            if whole and not more:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._wake.wait()

    async def _look(self) -> tuple[bool, bool]:
        """Read on from what is known, or find that it is void.

        Whether there is more to read, and whether all is known that there was at the moment of the question.
        """
        asked, known = clock(), self.position
        page = await self._page(known.revision, PAGE)
        if self.position.epoch != known.epoch:
            # A writer has noticed that the history was replaced, and this may have been read before it was.
            return True, True
        fits = page.proves(known) and self.apply((known.revision, known.batch), page.events, page.batches)
        if not fits:
            await self._renew()
            return True, True
        if page.is_last:
            # The proof is as old as the question: the database may have been silent since.
            self._touch(asked)
        # Without any, somebody announced what is not there; the page may have been too small for what is.
        self._target = max(self._target, page.state.revision) if page.events else self.position.revision
        return self._target > self.position.revision, page.is_last

    def _touch(self, asked: float) -> None:
        self._contact = asked
        self.silent_from = max(self.silent_from, asked + HEALTHY_SECONDS)

    async def _renew(self) -> None:
        """Let the database say, under its lock, whose history it is: a break becomes a new epoch before all else."""
        known = self.position
        parameters = parameters_of((), known, secrets.randbits(63))
        answer = answer_of(await self._connection.ask(COMMIT, parameters, form=BINARY))
        if answer.outcome == "missing":
            raise Unavailable("the store has no counter row: migrate first")
        # Where a writer has noticed meanwhile, this says again what is known, of a moment when more may have been written.
        if answer.outcome != "kept" and self.position.epoch == known.epoch:
            self.reset(answer)


def page_of(result: PGresult, after: int) -> Page:
    """The answer to ``FOLLOW``."""
    get = result.get_value
    if not result.ntuples:
        raise Unavailable("the store has no counter row: migrate first")
    revision, batch, epoch, compacted, began = (get(0, column) or b"" for column in range(5))
    events, batches, link = [], [], None
    for row in range(result.ntuples):
        number = get(row, 5)
        if number is None:
            break
        if int.from_bytes(number) == after:
            link = int.from_bytes(get(row, 6) or b"")
            continue
        type_, *key = ((get(row, column) or b"").decode() for column in range(7, 13))
        events.append(Event(EventType(type_), Key(*key), int.from_bytes(number), get(row, 13) or b"", get(row, 14)))
        batches.append(int.from_bytes(get(row, 6) or b""))
    state = LogPosition(epoch.decode(), int.from_bytes(revision), int.from_bytes(batch))
    continued = get(0, 15) == b"\x01"
    return Page(state, int.from_bytes(compacted), int.from_bytes(began), link, events, batches, continued)


def position_of(result: PGresult) -> LogPosition:
    """The answer to ``STATE`` in text form."""
    revision, batch, epoch = (result.get_value(0, column) for column in range(3))
    if revision is None or batch is None or epoch is None:
        raise Unavailable("the store has no counter row: migrate first")
    return LogPosition(epoch.decode(), int(revision), int(batch))


def settle(waiting: Sequence[asyncio.Future[None]], error: StoreError | None) -> None:
    """Let all of them go on, or fail."""
    for waiter in waiting:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
