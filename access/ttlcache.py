"""Answers of outside services, remembered: bounded in number and age, and each question asked once at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from access.outsidebudget import within_budget

V = TypeVar("V")

CAPACITY: Final = 10_000
"""Answers of each kind; what was asked longest ago goes first."""


class TTLCache(Generic[V]):
    """Remembers answers for ``success`` seconds and noes for ``failure`` seconds, in rooms of their own.

    A no is ``None``, or whatever ``is_yes`` says is none. A flood of wrong questions drives out no right answer. Keys
    are digests (``Digests``), never what was asked. A failure to get an answer is not remembered.
    """

    def __init__(
        self,
        *,
        success: float,
        failure: float,
        capacity: int = CAPACITY,
        is_yes: Callable[[V | None], bool] = lambda answer: answer is not None,
    ) -> None:
        self._rooms: tuple[tuple[OrderedDict[bytes, tuple[float, V | None]], float], ...] = (
            (OrderedDict(), success),
            (OrderedDict(), failure),
        )
        self._capacity = capacity
        self._is_yes = is_yes
        self._asking: dict[bytes, asyncio.Task[V | None]] = {}

    def __len__(self) -> int:
        return sum(len(room) for room, _ in self._rooms)

    async def ask(self, key: bytes, now: float, question: Callable[[], Awaitable[V | None]]) -> V | None:
        """The answer to ``question``, remembered or asked now (Unix seconds); raises what ``question`` raises.

        Raises ``Unreachable`` when the request has no time left to wait.

        Callers with one key share one question, and a caller that goes away ends it for nobody else.
        """
        for room, seconds in self._rooms:
            known = room.get(key)
            # A clock that was set back makes nothing live longer.
            if known is not None and 0 <= now - known[0] < seconds:
                return known[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, now, question))
            task.add_done_callback(_look)
        return await within_budget(asyncio.shield(task))

    def forget(self) -> None:
        """Drop every answer, the failures too: each key is asked about anew."""
        for room, _ in self._rooms:
            room.clear()

    async def _ask(self, key: bytes, now: float, question: Callable[[], Awaitable[V | None]]) -> V | None:
        try:
            answer = await question()
        finally:
            del self._asking[key]
        for room, _ in self._rooms:
            room.pop(key, None)
        room, seconds = self._rooms[0 if self._is_yes(answer) else 1]
        if seconds > 0:
            room[key] = (now, answer)
            if len(room) > self._capacity:
                room.popitem(last=False)
        return answer


async def notify_while_cached(seconds: float, on_change: Callable[[], None]) -> None:
    """Until cancelled, call ``on_change`` ten times in the ``seconds`` that an answer lives, once a second at most."""
    while True:
        await asyncio.sleep(max(1.0, seconds / 10))
        on_change()


def _look(task: asyncio.Task[Any]) -> None:
    """Look at a failure that nobody waits for any more, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
