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

BEAT_SECONDS: Final = 0.01
"""How far apart the loop's beats are: a hold is measured to this."""

LOOK_SECONDS: Final = HOLD_SECONDS
"""As often as finds most holds while they last, and no oftener: a look takes the interpreter from the loop."""

_PLACES_MAX: Final = 100
_FLOORS: Final = frozenset({"portal", "gateway", "access", "tenants", "store", "audit", "kube"})


class Watchdog:
    """Counts the times that the loop was held, by the place in our code that a look at the stack found.

    What counts is the processor time of the loop's own thread: a machine that is busy with others holds no loop. The loop
    beats by itself, and each beat tells how late it is; a thread looks where the loop is when one is late. A hold that has
    ended before a look is counted as ``unknown``.
    """

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.longest = 0.0
        self._due = 0.0, 0.0
        """Of the beat that comes next: the loop's processor time when it was asked for, and when it is to come."""
        self._place = ""
        self._stopped = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the running loop."""
        self._await_beat(asyncio.get_running_loop())
        looker = threading.Thread(target=self._look, args=(threading.get_ident(),), name="watchdog", daemon=True)
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

    def _await_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.thread_time(), time.monotonic() + BEAT_SECONDS
        loop.call_later(BEAT_SECONDS, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the loop: it goes on."""
        used, due = self._due
        # Many short turns of the loop are no hold: none of them makes the beat late.
        held = min(time.thread_time() - used, time.monotonic() - due)
        self.longest = max(self.longest, held)
        if held > HOLD_SECONDS:
            place = self._place or "unknown"
            if place not in self.holds and len(self.holds) >= _PLACES_MAX:
                place = "_other"
            self.holds[place] = self.holds.get(place, 0) + 1
        self._place = ""
        if not self._stopped:
            self._await_beat(loop)

    def _look(self, thread: int) -> None:
        """In a thread of its own: see where the loop is while no beat comes."""
        clock = time.pthread_getcpuclockid(thread)
        while not self._stopped:
            time.sleep(LOOK_SECONDS)
            used, due = awaited = self._due
            if not self._place and time.monotonic() > due and time.clock_gettime(clock) - used > BEAT_SECONDS:
                place = _place(sys._current_frames().get(thread))  # noqa: SLF001 - the one way to see it
                if awaited is self._due:
                    self._place = place


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _FLOORS and not frame.f_code.co_name.startswith("<"):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""
