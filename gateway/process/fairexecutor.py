"""Work that would hold the event loop: done by one thread beside it, tenant by tenant in turn.

The interpreter lets the loop in between every ``SWITCH_SECONDS``; more threads would only fight for the same
interpreter. What is done here is pure: it reads and writes nothing but its own arguments.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from kube.requests.status import TooManyRequests

T = TypeVar("T")

SWITCH_SECONDS: Final = 0.001
"""How long the thread goes on while the loop wants to."""

WAITING_MAX: Final = 64
"""Pieces of work of one tenant that wait at most."""


class FairExecutor:
    """Make and use it in one event loop; ``close`` it at the end."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "fair-executor")
        self._lines: dict[str | None, deque[tuple[asyncio.Future[Any], Callable[[], Any]]]] = {}
        self._busy = False
        self.done = 0

    async def run(self, tenant: str | None, function: Callable[..., T], *args: Any) -> T:
        """What ``function(*args)`` returns or raises, when it is the tenant's turn. Raises ``TooManyRequests``."""
        line = self._lines.setdefault(tenant, deque())
        if len(line) >= WAITING_MAX:
            raise TooManyRequests("the tenant has asked for too much work, please try again later", retry_after=1)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        line.append((future, partial(function, *args)))
        if not self._busy:
            self._next()
        return await future

    def close(self) -> None:
        """Start nothing more."""
        self._lines.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        self._busy = False
        while self._lines and not self._busy:
            tenant = next(iter(self._lines))
            line = self._lines.pop(tenant)
            if not line:
                continue
            future, work = line.popleft()
            if line:
                # Behind all others: whoever asks for much waits for himself alone.
                self._lines[tenant] = line
            if future.cancelled():
                continue
            self._busy = True
            job = asyncio.get_running_loop().run_in_executor(self._executor, work)
            job.add_done_callback(partial(self._settle, future))

    def _settle(self, future: asyncio.Future[Any], job: asyncio.Future[Any]) -> None:
        self.done += 1
        if not job.cancelled() and not future.cancelled():
            error = job.exception()
            if error is None:
                future.set_result(job.result())
            else:
                future.set_exception(error)
        elif not job.cancelled():
            job.exception()
        self._next()


def shorten_switch_interval() -> None:
    """Let the interpreter change threads as often as the loop needs."""
    sys.setswitchinterval(SWITCH_SECONDS)
