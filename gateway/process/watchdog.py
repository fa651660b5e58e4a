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

HOLD_SECONDS: Final = 0.02
"""Longer than this nobody should hold the loop."""

LOOK_SECONDS: Final = 0.01

WORKING_SECONDS: Final = 0.001
"""Less processor time than this between two looks holds nobody up: then the loop is left in peace."""

_PLACES_MAX: Final = 100
_FLOORS: Final = frozenset({"portal", "gateway", "access", "tenants", "store", "audit", "kube"})


class Watchdog:
    """Counts the times that the loop was held, by the place in our code that a look at the stack found.

    What counts is the processor time of the loop's own thread: a machine that is busy with others holds no loop. A thread
    looks at it, and asks the loop for a beat while it works: as long as none comes, somebody holds it.
    """

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.longest = 0.0
        self._asked: tuple[float, float] | None = None
        """When a beat was asked for that has not come yet: in processor time, and in time."""
        self._place = ""
        self._stopped = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the running loop."""
        loop = asyncio.get_running_loop()
        looker = threading.Thread(target=self._look, args=(threading.get_ident(), loop), name="watchdog", daemon=True)
        looker.start()
        try:
            yield
        finally:
            self._stopped = True
            await asyncio.to_thread(looker.join)

    def render(self) -> list[str]:
        """The lines in Prometheus' text format."""
        return [
            "# TYPE tenantry_event_loop_holds_total counter",
            *(f'tenantry_event_loop_holds_total{{place="{place}"}} {n}' for place, n in sorted(self.holds.items())),
            "# TYPE tenantry_event_loop_longest_hold_seconds gauge",
            f"tenantry_event_loop_longest_hold_seconds {self.longest:.6f}",
        ]

    def _beat(self) -> None:
        """In the loop: it goes on."""
        asked = self._asked
        if asked is None:
            return
        # Many short turns of the loop are no hold: none of them makes the beat late.
        held = min(time.thread_time() - asked[0], time.monotonic() - asked[1])
        self.longest = max(self.longest, held)
        if held > HOLD_SECONDS:
            place = self._place or "unknown"
            if place not in self.holds and len(self.holds) >= _PLACES_MAX:
                place = "_other"
            self.holds[place] = self.holds.get(place, 0) + 1
        self._asked = None

    def _look(self, thread: int, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: ask for beats, and see where the loop's thread is while none comes."""
        clock = time.pthread_getcpuclockid(thread)
        before = time.clock_gettime(clock)
        while not self._stopped:
            time.sleep(LOOK_SECONDS)
            used, asked = time.clock_gettime(clock), self._asked
            if asked is None:
                if used - before > WORKING_SECONDS:
                    self._place = ""
                    self._asked = used, time.monotonic()
                    loop.call_soon_threadsafe(self._beat)
            elif used - asked[0] > LOOK_SECONDS / 2 and not self._place:
                place = _place(sys._current_frames().get(thread))  # noqa: SLF001 - the one way to see it
                if asked is self._asked:
                    self._place = place
            before = used


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _FLOORS and not frame.f_code.co_name.startswith("<"):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""
