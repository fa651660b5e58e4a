"""Work that is done one piece after the other: tenant by tenant in turn, so that whoever asks for much waits for himself."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from kube.requests.status import TooManyRequests

T = TypeVar("T")

WAITING_MAX: Final = 64
"""Pieces of work of one tenant that wait at most."""


SWITCH_SECONDS: Final = 0.001
"""How long a thread goes on while the loop wants to."""


class FairExecutor:
    """Use it in one event loop, and ``close`` it at the end."""

    def __init__(self) -> None:
        self._lines: dict[str | None, deque[tuple[asyncio.Future[Any], Callable[[], Awaitable[Any]]]]] = {}
        self._task: asyncio.Task[None] | None = None
        self.done = 0

    async def run(self, tenant: str | None, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work()`` returns or raises, when it is the tenant's turn. Raises ``TooManyRequests``.

        What has begun is brought to its end even if nobody waits for it any more.
        """
        line = self._lines.setdefault(tenant, deque())
        if len(line) >= WAITING_MAX:
            raise TooManyRequests("the tenant has asked for too much work, please try again later", retry_after=1)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        line.append((future, work))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Stop; whoever still waits is cancelled."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for future, _ in line:
                future.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._lines:
            tenant = next(iter(self._lines))
            line = self._lines.pop(tenant)
            future, work = line.popleft()
            if line:
                # Behind all others.
                self._lines[tenant] = line
            if future.cancelled():
                continue
            try:
                result = await work()
            except asyncio.CancelledError:
                future.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - it is the asker's
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)
            self.done += 1


def shorten_switch_interval() -> None:
    """Let the interpreter change threads as often as the loop needs."""
    sys.setswitchinterval(SWITCH_SECONDS)
