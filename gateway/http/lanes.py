"""Turns of the loop for what comes in small pieces: each costs whoever reads it as much as a large one (DOS-03).

What one connection has to say is read for ``STEPS`` at a time. Whoever has more to say then waits in a lane, those of one
cluster in one and all clients in another, and of each lane one goes on in a turn of the loop: however many speak in small
pieces, what they take of it is one's share, and whoever speaks as honest ones do never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")

STEPS: Final = 256
"""Pieces (records, chunks, headers, frames, lines) that are looked at in one turn: some tenths of a millisecond's work."""

BYTES: Final = 64 * 1024
"""Bytes of messages that are taken apart in one turn, by all in a lane."""

OVERHEAD: Final = 64
"""Bytes of memory that a piece takes beside its own."""


class Lane:
    """Those who wait for another turn, first come first served. Use it in one event loop."""

    __slots__ = ("_due", "_waiting")

    def __init__(self) -> None:
        self._due = 0
        """Bytes of work that those in the lane have had no turns for yet."""
        self._waiting: deque[Callable[[], object]] = deque()

    def wait(self, go_on: Callable[[], object]) -> None:
        """Call ``go_on`` in a later turn of the loop, with nobody else of this lane in it."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    async def turn(self) -> None:
        """Wait for another turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def come() -> None:
            # Whoever waited may have gone.
            if not turn.done():
                turn.set_result(None)

        self.wait(come)
        await turn

    async def work(self, size: int) -> None:
        """Wait for as many turns as it takes until work at ``size`` bytes fits into one, with what others work at."""
        self._due += size
        try:
            while self._due >= BYTES:
                await self.turn()
                self._due = max(0, self._due - BYTES)
        except BaseException:
            self._due = max(0, self._due - size)
            raise

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()


async def by_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The items, with another turn of the loop after every ``STEPS``: however many there are, others come in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % STEPS == 0:
            await asyncio.sleep(0)
