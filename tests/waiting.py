"""Waiting for what happens in its own time. No limit here says how fast anything must be: that is measured in ``bench``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 200.0
"""Seconds after which a test gives up: less than pytest's own limit, and far more than a busy machine takes."""


def eventually(look: Callable[[], T], *, within: float = PATIENCE, every: float = 0.05) -> T:
    """What ``look`` returns once it is true; ``AssertionError`` when it is not after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never: {answer!r}"
        time.sleep(every)


async def until(look: Callable[[], object]) -> None:
    """The same on an event loop, of what needs no waiting to be looked at."""
    async with asyncio.timeout(PATIENCE):
        while not look():
            await asyncio.sleep(0.01)
