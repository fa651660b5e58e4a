"""What the readers of a watch have for its client, bounded in bytes: a reader waits for room, and so does its cluster (GW4)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

ROOM: Final = 1024 * 1024
"""Bytes that wait for the client of one watch, or are on their way to it. What is longer passes when nothing else waits."""

_TURN: Final = 256
"""What a turn costs beside its lines: many that have none are bounded as well."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Lines of a part up to a version, or the end of all."""

    name: str = ""
    version: str = ""
    lines: bytes = b""
    ends: bool = False


class Turns:
    """The turns of one watch. Whoever has come first has room first, so that no part's many keep another's long one out."""

    def __init__(self) -> None:
        self._waiting: list[Turn] = []
        self._taken = 0
        self._entrance = asyncio.Lock()
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self.held = 0
        """Bytes that wait or are on their way."""

    async def put(self, turn: Turn) -> None:
        """Have it wait for the client; waits itself until there is room for it."""
        size = len(turn.lines) + _TURN
        async with self._entrance:
            while self.held and self.held + size > ROOM:
                self._room.clear()
                await self._room.wait()
            self.held += size
            self._waiting.append(turn)
        self._some.set()

    async def take(self) -> list[Turn]:
        """All that waits, as soon as there is something. What was taken before has reached the client's connection by now."""
        self.held -= self._taken
        self._taken = 0
        self._room.set()
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        turns, self._waiting = self._waiting, []
        self._taken = self.held
        return turns
