"""Read leases: a space that nobody else writes is read from memory, without asking the database first.

A process that reads a space often takes a lease on it, a row of ``store_lease``; several may hold one on the same space.
While it holds, every write that was confirmed has been applied here. Why no read is stale:

1. A lease is taken behind the lock of the counter row: earlier writes are below the revision that is answered, and it
   counts once they have been applied; every later write by anybody else finds it and is not kept (step 4b of
   ``store_write``). Own writes are applied before they are acknowledged, and while one is under way, its spaces are read
   as if there were no lease.
2. Who wants to write marks the lease as ending, which is never taken back, and waits until it is gone: the holder stops
   reading by it before it gives it back. After ``LEASE_SECONDS``, counted by the writer from when it knew that the mark
   was committed, it takes the lease away.
3. The holder asks again and again whether it has to end one, and reads by its leases for ``TRUSTED_SECONDS`` from
   before a question that found no mark: by then no writer has waited long enough. What has once run out is not renewed
   by a later answer, because a lease that is gone has no mark: all are void, under a number that is never used again.
4. Both count on ``clock``, which nobody sets and which goes on while a process or its machine sleeps; that it goes a
   little faster here than there is what the difference between the two times is for. The clock is looked at in the
   step that reads: who sleeps in between has read before.
5. Each question proves the history as well, as the barrier does. When the connection is lost, when the history is
   another one, and when nobody knows what became of an own write (which may still be kept, under the old number), all
   leases are void.

A lease is taken when it pays: after ``Terms.reads`` of a space within a second. One that a writer has ended is not taken
again for a while, twice as long each time it was ended as soon as that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from store.log.follower import Follower, clock
from store.log.preconditions import LogPosition
from store.postgresql.arrays import Bigints, Texts, bigints
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import BINARY, ConnectionPool, DedicatedConnection
from store.postgresql.statements import LEASE_DROP, LEASE_END, LEASE_RENEW, LEASES_CHANNEL, LEASES_LEFT
from store.supervision import Supervised
from store.types import Unavailable

LEASE_SECONDS: Final = 0.9
"""How long a writer waits for a lease at most."""

TRUSTED_SECONDS: Final = 0.7
"""How long a holder reads by its leases after a question: shorter, because clocks do not all go at one pace."""

RENEW_SECONDS: Final = 0.2
"""The time between two questions."""

WINDOW_SECONDS: Final = 1.0
"""Within which reads are counted."""

UNUSED_SECONDS: Final = 10.0
"""A lease by which nothing was read for this long is given back."""

REST_SECONDS_MAX: Final = 300.0

RESTING_MAX: Final = 4096
"""Spaces of which it is remembered that their leases were ended."""

LOOK_SECONDS: Final = 0.002
"""The first pause between two looks whether a lease is gone; they double up to ``LOOK_SECONDS_MAX``."""

LOOK_SECONDS_MAX: Final = 0.05


@dataclass(frozen=True, slots=True)
class Terms:
    """When leases are taken."""

    spaces: int = 512
    """How many at most; 0 for none at all."""
    reads: int = 8
    """Reads of a space within a second after which it gets one."""
    rest_seconds: float = 4.0
    """How long a space gets none after a writer has ended the last one."""


@dataclass(slots=True)
class Lease:
    """One that is held. Times are by ``clock``."""

    number: int
    taken: float
    used: float


class Leases:
    """The leases of one process, and the way to end those of others. ``holder`` is the number that they are held under."""

    def __init__(self, conninfo: str, follower: Follower, pool: ConnectionPool, terms: Terms) -> None:
        self._follower = follower
        self._pool = pool
        self._terms = terms
        self._connection = DedicatedConnection(
            conninfo, "tenantry-leases", channel=LEASES_CHANNEL, heard=self._heard, lost=self.void
        )
        self.holder = secrets.randbits(63)
        self.writing: Collection[str] = ()
        """The spaces of own writes that are under way."""
        self.reads = 0
        """How many reads were answered by a lease."""
        self._held: dict[str, Lease] = {}
        self._until = float("-inf")
        self._owed: list[int] = []
        self._counted: dict[str, int] = {}
        self._window = float("-inf")
        self._wanted: set[str] = set()
        self._taking: Sequence[str] = ()
        self._rests: dict[str, tuple[float, float]] = {}
        self._endings: dict[str, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self._task = Supervised("store-leases", self._work)

    def start(self) -> None:
        """Begin to take leases where they pay."""
        self._task.start()

    async def stop(self) -> None:
        """Give all of them back."""
        await self._task.stop()
        self.void()
        with suppress(*AWAY):
            async with asyncio.timeout(LEASE_SECONDS):
                await self._give_back()
        self._connection.close()

    @property
    def held(self) -> int:
        """On how many spaces."""
        return len(self._held)

    def cover(self, space: str, now: float) -> bool:
        """Whether every write to a space that was confirmed before ``now``, by anybody, has been applied here.

        ``now`` is what ``clock`` says in this step. Where it is not so, the read is counted.
        """
        lease = self._held.get(space)
        if lease is not None and now < self._until and space not in self.writing:
            lease.used = now
            self.reads += 1
            return True
        if lease is None:
            self._count(space, now)
        return False

    def _count(self, space: str, now: float) -> None:
        if now - self._window > WINDOW_SECONDS:
            self._window = now
            self._counted.clear()
        times = self._counted[space] = self._counted.get(space, 0) + 1
        if times == self._terms.reads:
            self._wanted.add(space)
            if not self._held:
                self._wake.set()

    def void(self) -> None:
        """Hold nothing from now on; what comes later is held under another number."""
        self._release(list(self._held))
        self._until = float("-inf")
        self.holder = secrets.randbits(63)

    # The holder's side.

    def _heard(self, payload: bytes) -> None:
        space = payload.decode(errors="replace")
        if space in self._held:
            self._rest(space)
            self._release((space,))
        elif space in self._taking:
            self._wake.set()

    def _release(self, spaces: Iterable[str]) -> None:
        """Stop reading by these leases, at once; they are given back behind that."""
        for space in spaces:
            self._owed.append(self._held.pop(space).number)
            self._wake.set()

    def _rest(self, space: str) -> None:
        now = clock()
        _, last = self._rests.pop(space, (0.0, 0.0))
        short = now - self._held[space].taken < last
        seconds = min(2 * last, REST_SECONDS_MAX) if short else self._terms.rest_seconds
        if len(self._rests) >= RESTING_MAX:
            del self._rests[next(iter(self._rests))]
        self._rests[space] = now + seconds, seconds

    async def _work(self) -> None:
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RENEW_SECONDS if self._held or self._owed else None):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    async with asyncio.timeout(TRUSTED_SECONDS):
                        await self._turn()
                except (*AWAY, Unavailable):
                    self.void()
                    await asyncio.sleep(RENEW_SECONDS)
        finally:
            self.void()

    async def _turn(self) -> None:
        await self._give_back()
        now = clock()
        self._release([space for space, lease in self._held.items() if now - lease.used > UNUSED_SECONDS])
        spaces = self._worthwhile(now)
        if self._held or spaces:
            await self._renew(spaces)

    def _worthwhile(self, now: float) -> list[str]:
        wanted, self._wanted = self._wanted, set()
        for space, (until, seconds) in list(self._rests.items()):
            if now > until + 2 * seconds:
                del self._rests[space]
        room = self._terms.spaces - len(self._held)
        resting = {space for space, (until, _) in self._rests.items() if now < until}
        return sorted(wanted - resting - self._held.keys())[: max(room, 0)]

    async def _give_back(self) -> None:
        numbers = self._owed[:]
        if not numbers:
            return
        await self._connection.ask(LEASE_DROP, (Bigints(numbers),))
        del self._owed[: len(numbers)]

    async def _renew(self, spaces: Sequence[str]) -> None:
        """Ask whether what is held still is, and for more; see 1., 3. and 5. above."""
        asked, known, holder, self._taking = clock(), self._follower.position, self.holder, spaces
        numbers = {secrets.randbits(63): space for space in spaces}
        try:
            result = await self._connection.ask(
                LEASE_RENEW, (holder, Bigints(list(numbers)), Texts(list(numbers.values()))), form=BINARY
            )
        except BaseException:
            self._owed += numbers
            raise
        revision, batch, epoch, ending, answered = (result.get_value(0, column) for column in range(5))
        taken = [number for number in bigints(answered) if number is not None]
        ended = set(bigints(ending))
        for space in [space for space, lease in self._held.items() if lease.number in ended]:
            self._rest(space)
            self._release((space,))
        state = LogPosition((epoch or b"").decode(), int.from_bytes(revision or b""), int.from_bytes(batch or b""))
        try:
            follows = await self._follower.reaches(state, asked, known)
        except BaseException:
            self._owed += taken
            raise
        if not follows or holder != self.holder or (self._held and clock() >= self._until):
            self._owed += taken
            self.void()
            return
        for number in taken:
            self._held[numbers[number]] = Lease(number, asked, asked)
        self._until = asked + TRUSTED_SECONDS

    # The writer's side.

    async def end(self, spaces: frozenset[str]) -> None:
        """Have others' leases on these spaces ended, which takes ``LEASE_SECONDS`` at most; raises ``Unavailable``.

        When it returns some may have been taken anew: who writes tries again.
        """
        if await self.wait(spaces):
            return
        done = asyncio.get_running_loop().create_future()
        self._endings |= dict.fromkeys(spaces, done)
        try:
            await self._take_back(sorted(spaces))
        finally:
            for space in spaces:
                del self._endings[space]
            done.set_result(None)

    @property
    def ending(self) -> bool:
        """Whether any are being ended."""
        return bool(self._endings)

    async def wait(self, spaces: Collection[str]) -> bool:
        """Wait for those that are being ended already; whether there were any."""
        under_way = {self._endings[space] for space in spaces if space in self._endings}
        if under_way:
            await asyncio.wait(under_way)
        return bool(under_way)

    async def _take_back(self, spaces: list[str]) -> None:
        left = await self._ask(LEASE_END, Texts(spaces), self.holder)
        marked, pause = clock(), LOOK_SECONDS
        while left:
            if clock() - marked >= LEASE_SECONDS:
                await self._pool.ask(LEASE_DROP, (Bigints(left),))
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SECONDS_MAX)
            left = await self._ask(LEASES_LEFT, Bigints(left))

    async def _ask(self, statement: str, *parameters: Texts | Bigints | int) -> list[int]:
        result = await self._pool.ask(statement, parameters)
        return [number for number in bigints(result.get_value(0, 0)) if number is not None]
