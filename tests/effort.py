"""What something costs, compared with a fixed piece of work in the same run: no machine and no neighbour decides it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

UNIT = 200_000
"""Steps of the piece of work: some 5 ms of a core."""


def effort(ask: Callable[[], object]) -> float:
    """How many pieces of work as much time of this thread's core pays for; timed before it and after it."""
    collecting = gc.isenabled()
    gc.disable()  # what the collector looks through is what all tests before have left
    try:
        before = piece()
        begun = time.thread_time()
        ask()
        spent = time.thread_time() - begun
        return spent / max(before, piece())
    finally:
        if collecting:
            gc.enable()


def piece() -> float:
    """Seconds of this thread for the piece of work."""
    begun = time.thread_time()
    total = 0
    for number in range(UNIT):
        total += number
    return time.thread_time() - begun
