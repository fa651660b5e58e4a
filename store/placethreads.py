"""Threads for work that waits for others outside: however slow one of them is, there are threads left for the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kube.requests.status import TooManyRequests

T = TypeVar("T")

AT_ONCE: Final = 4
"""Threads that one place has at a time."""

WAITING_MAX: Final = 256
"""Who waits for a turn at one place, at most."""

_THREADS: Final = 16


class PlaceThreads:
    """For use in one event loop; a place is what is waited for, such as a cluster."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, name)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._inside: Counter[str] = Counter()

    async def run(self, place: str, work: Callable[[], T]) -> T:
        """What ``work()`` returns or raises, in a thread, when it is its turn. Raises ``TooManyRequests``.

        Who is cancelled while waiting for a turn is never called. What has begun is brought to its end, and has its turn
        until then.
        """
        if self._inside[place] >= AT_ONCE + WAITING_MAX:
            raise TooManyRequests(f'too many wait for "{place}", please try again later', retry_after=1)
        turns = self._turns.setdefault(place, asyncio.Semaphore(AT_ONCE))
        self._inside[place] += 1
        try:
            await turns.acquire()
        except BaseException:
            self._leave(place)
            raise

        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled():
                done.exception()  # Seen, whether or not somebody still waits for it.
            turns.release()
            self._leave(place)

        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        done.add_done_callback(ended)
        return await asyncio.shield(done)

    def _leave(self, place: str) -> None:
        self._inside[place] -= 1
        if not self._inside[place]:
            del self._inside[place], self._turns[place]
