"""Whoever goes through many objects gives others a turn every so many bytes (DOS-03)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import accumulate
from typing import Final

from store.types import Stored

TOGETHER_BYTES: Final = 64 * 1024
"""Bytes of objects that are read before others get a turn: about 2 ms."""


class Pace:
    """That of one way through objects, however many listings it leads through.

    What was listed is of one moment; what others write while they have their turns is not in it.
    """

    def __init__(self) -> None:
        self._size = 0
        self.turns = 0
        """How often others have had one."""

    async def over(self, items: Iterable[Stored]) -> AsyncIterator[Stored]:
        """Each of these objects, when it may be read."""
        for stored in items:
            await self.step(len(stored.data))
            yield stored

    async def step(self, size: int) -> None:
        """Before ``size`` bytes are read."""
        self._size += size
        if self._size > TOGETHER_BYTES:
            self._size = size
            self.turns += 1
            await asyncio.sleep(0)


def together(items: Sequence[Stored]) -> Sequence[Stored]:
    """The first of these objects, as many as may be read in one turn: at least one, where there is any."""
    sizes = list(accumulate(len(item.data) for item in items))
    return items[: max(1, bisect_right(sizes, TOGETHER_BYTES))]
