"""Tells what holds the event loop: how often, how long, and where, for ``/metrics``."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

from store.supervision import Supervised

HOLD_SECONDS: Final = 0.02
"""Longer than this nobody should hold the loop."""

LOOK_SECONDS: Final = 0.01
_PLACES_MAX: Final = 100
_FLOORS: Final = frozenset({"portal", "gateway", "access", "tenants", "store", "audit", "kube"})


class Watchdog:
    """Counts the times that the loop was held, by the place in our code that a look at the stack found.

    What counts is the processor time of the loop's own thread: a machine that is busy with others holds no loop.
    """

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.longest = 0.0
        self._beat = 0.0
        self._place = ""
        self._stopped = threading.Event()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the running loop."""
        self._beat = time.thread_time()
        heart = Supervised("watchdog", self._live)
        heart.start()
        clock = time.pthread_getcpuclockid(threading.get_ident())
        looker = threading.Thread(target=self._look, args=(threading.get_ident(), clock), name="watchdog", daemon=True)
        looker.start()
        try:
            yield
        finally:
            self._stopped.set()
            await heart.stop()
            await asyncio.to_thread(looker.join)

    def render(self) -> list[str]:
        """The lines in Prometheus' text format."""
        return [
            "# TYPE tenantry_event_loop_holds_total counter",
            *(f'tenantry_event_loop_holds_total{{place="{place}"}} {n}' for place, n in sorted(self.holds.items())),
            "# TYPE tenantry_event_loop_longest_hold_seconds gauge",
            f"tenantry_event_loop_longest_hold_seconds {self.longest:.6f}",
        ]

    async def _live(self) -> None:
        while True:
            due = time.monotonic() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            now = time.thread_time()
            # Many short turns of the loop are no hold: none of them makes the beat late.
            held, self._beat = min(now - self._beat, time.monotonic() - due), now
            self.longest = max(self.longest, held)
            if held > HOLD_SECONDS:
                place = self._place or "unknown"
                if place not in self.holds and len(self.holds) >= _PLACES_MAX:
                    place = "_other"
                self.holds[place] = self.holds.get(place, 0) + 1
            self._place = ""

    def _look(self, thread: int, clock: int) -> None:
        """In a thread of its own: see where the loop's thread is while no beat comes."""
        while not self._stopped.wait(LOOK_SECONDS):
            beat = self._beat
            if time.clock_gettime(clock) - beat > HOLD_SECONDS / 2 and not self._place:
                place = _place(sys._current_frames().get(thread))  # noqa: SLF001 - the one way to see it
                if beat == self._beat:
                    self._place = place


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _FLOORS and not frame.f_code.co_name.startswith("<"):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""
