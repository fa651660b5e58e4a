"""Turns of the loop for what comes in small pieces: each costs whoever reads it as much as a large one (DOS-03).

What one connection has to say is read for ``STEPS`` at a time. Whoever has more to say then waits in a lane, those of one
cluster in one and all clients in another, and of each lane one goes on in a turn of the loop: however many speak in small
pieces, what they take of it is one's share, and whoever speaks as honest ones do never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

STEPS: Final = 256
"""Pieces (records, chunks, headers, frames, lines) that are looked at in one turn: some tenths of a millisecond's work."""

OVERHEAD: Final = 64
"""Bytes of memory that a piece takes beside its own."""


class Lane:
    """Those who wait for another turn, first come first served. Use it in one event loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
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

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()
