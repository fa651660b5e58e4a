"""Tasks that must not end: whatever they raise is logged and counted, and they begin again."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 0.1
"""The wait before the first restart; it doubles up to ``RESTART_SECONDS_MAX`` while a task ends again soon."""

RESTART_SECONDS_MAX: Final = 5.0

restarts: Counter[str] = Counter()
"""How often each task of this process has ended and was started again, for ``/metrics``."""


class Supervised:
    """A background task by name. ``work`` runs until it is cancelled, and must be able to begin anew at any time."""

    def __init__(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Future[object] | None = None

    def start(self) -> None:
        """Begin, in the running loop."""
        self._task = asyncio.create_task(self._run(), name=self.name)

    def restart(self) -> None:
        """Let the work begin anew, because what it goes by is void; this counts as no failure."""
        if self._running is not None:
            self._running.cancel()

    async def stop(self) -> None:
        """Cancel the task and wait until it has ended; it is not begun again."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        delay = RESTART_SECONDS
        while True:
            begun = monotonic()
            self._running = asyncio.ensure_future(self._work())
            try:
                await asyncio.wait((self._running,))
            finally:
                # The end of this task is the end of the work.
                self._running.cancel()
            if self._running.cancelled():
                continue
            error = self._running.exception()
            restarts[self.name] += 1
            logger.error("the task %s has ended and begins anew", self.name, exc_info=error)
            if monotonic() - begun > RESTART_SECONDS_MAX:
                delay = RESTART_SECONDS
            await asyncio.sleep(delay)
            delay = min(delay * 2, RESTART_SECONDS_MAX)
