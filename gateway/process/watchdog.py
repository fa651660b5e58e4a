"""Tells what holds the event loop: how often, how long, and where, for ``/metrics``."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

HOLD_SECONDS: Final = 0.02
"""Longer than this nobody should hold the loop."""

TICK_SECONDS: Final = 0.01
"""The processor time between two looks: a hold is measured to this."""

_AT_REST: Final = 0.02
"""The part of its time that a loop with nothing to do takes at most."""

_PLACES_MAX: Final = 100
_FLOORS: Final = frozenset({"portal", "gateway", "access", "tenants", "store", "audit", "kube"})


class Watchdog:
    """Counts the times that the loop was held, by the place in our code that a look at the stack found.

    What counts is processor time: a machine that is busy with others holds no loop, and a loop that has nothing to do is not
    woken to be looked at. A timer of the process's own processor time (``setitimer(2)``) ticks while it works.

    1. The first tick asks the loop for a beat, which comes with its next turn and tells how long that has taken; the next
       ticks look where the loop is meanwhile. A hold that ends before the second tick is counted as ``unknown``.
    2. Ticks are heard between two steps of the interpreter: those that come during one long step, a call of compiled code,
       are heard as one when it is over, and the caller is where the loop is then.
    3. A tick comes late too where the machine was not looking when it was due, which busy machines are not for a while. So
       while there is work the loop notes every ``TICK_SECONDS`` that it goes on, and what lies before that is no hold. Once
       there is none it notes nothing more, or it would be woken for that.
    """

    def __init__(self) -> None:
        self.holds: dict[str, int] = {}
        self.longest = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: float | None = None
        """The loop's processor time when it was asked for the beat that has not come yet."""
        self._ticked = 0.0
        """The loop's processor time when a tick was heard last."""
        self._place = ""
        self._turned = 0.0
        """The loop's processor time when it was last known to go on."""
        self._noting: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the running loop; one that does not run in the main thread, where signals are handled, goes unwatched."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._loop, self._ticked = asyncio.get_running_loop(), time.thread_time()
        self._turned = self._ticked
        before = signal.signal(signal.SIGPROF, self._tick)
        signal.siginterrupt(signal.SIGPROF, False)
        timer = signal.setitimer(signal.ITIMER_PROF, TICK_SECONDS, TICK_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, *timer)
            self._loop = None
            if self._noting is not None:
                self._noting.cancel()
                self._noting = None
            if callable(before):
                signal.signal(signal.SIGPROF, before)
            # Otherwise the handler stays: a tick that is on its way would end the process, or be complained of.

    def render(self) -> list[str]:
        """The lines in Prometheus' text format."""
        return [
            "# TYPE tenantry_event_loop_holds_total counter",
            *(f'tenantry_event_loop_holds_total{{place="{place}"}} {n}' for place, n in sorted(self.holds.items())),
            "# TYPE tenantry_event_loop_longest_hold_seconds gauge",
            f"tenantry_event_loop_longest_hold_seconds {self.longest:.6f}",
        ]

    def _tick(self, _: int, frame: FrameType | None) -> None:
        """Between two steps of whatever the loop's thread does, or waits for."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        ticked, self._ticked = self._ticked, time.thread_time()
        if self._asked is not None:
            self._place = self._place or _place(frame)
            return
        try:
            loop.call_soon_threadsafe(self._beat)
        except Exception:  # noqa: BLE001 - whatever is interrupted here may be out of memory or too deep
            return
        late = self._ticked - max(ticked, self._turned) - TICK_SECONDS
        self._asked, self._place = self._ticked, ""
        if late > HOLD_SECONDS:
            self._asked, self._place = self._ticked - late, _place(frame)

    def _beat(self) -> None:
        """In the loop: it goes on."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        if self._noting is None:
            self._note()
        held, place = time.thread_time() - asked, self._place or "unknown"
        self.longest = max(self.longest, held)
        if held > HOLD_SECONDS:
            if place not in self.holds and len(self.holds) >= _PLACES_MAX:
                place = "_other"
            self.holds[place] = self.holds.get(place, 0) + 1

    def _note(self) -> None:
        """In the loop, again and again while it has something to do."""
        turned, self._turned = self._turned, time.thread_time()
        worked = self._turned - turned > _AT_REST * TICK_SECONDS
        self._noting = self._loop.call_later(TICK_SECONDS, self._note) if worked and self._loop is not None else None


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _FLOORS and not frame.f_code.co_name.startswith("<"):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""
