"""Tasks that must not end: whatever they raise is logged and counted, and they begin again."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 0.1
"""The wait before the first restart; it doubles up to ``RESTART_SECONDS_MAX`` while a task ends again soon."""

RESTART_SECONDS_MAX: Final = 5.0

CANCEL_SECONDS: Final = 5.0
"""How long work that was cancelled may take for its end before it is cancelled once more."""

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
        """Cancel the task and wait until it and its work have ended; it is not begun again."""
        if self._task is not None:
            # Once: another cancellation would have it no longer wait for its work.
            if not self._task.cancelling():
                self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        delay = RESTART_SECONDS
        while True:
            begun = monotonic()
            self._running = running = asyncio.ensure_future(self._work())
            try:
                await asyncio.wait((running,))
            except asyncio.CancelledError:
                await self._ended(running)
                raise
            if running.cancelled():
                continue
            error = running.exception()
            restarts[self.name] += 1
            logger.error("the task %s has ended and begins anew", self.name, exc_info=error)
            if monotonic() - begun > RESTART_SECONDS_MAX:
                delay = RESTART_SECONDS
            await asyncio.sleep(delay)
            delay = min(delay * 2, RESTART_SECONDS_MAX)

    async def _ended(self, running: asyncio.Future[object]) -> None:
        """Cancel the work and wait for its end: what comes after it may take its place."""
        while not running.done():
            # Whoever waits for something that has just come does not notice that it is cancelled (``asyncio.wait_for``).
            running.cancel()
            await asyncio.wait((running,), timeout=CANCEL_SECONDS)
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.error("the task %s has failed while it ended", self.name, exc_info=error)
