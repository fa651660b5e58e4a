"""Says what is being done, once a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 1.0


class Progress:
    """Call it as often as there is news; the first second says nothing."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said_at = time.monotonic()

    def __call__(self, news: str) -> None:
        """Say it, unless something was said within the second."""
        now = time.monotonic()
        if now - self._said_at >= _SECONDS:
            self._said_at = now
            self._say(news)
