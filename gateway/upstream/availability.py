"""Whether a cluster is known to be away: who would wait in vain for a connection is told so at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Availability:
    """One cluster's. Nothing that happens to another cluster's changes it.

    A connection that could not be made says that the cluster is away. For ``rest_seconds`` nobody tries; then one
    request at a time does, and the first connection lets everybody in again.
    """

    def __init__(self, rest_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._away = False
        self._rests_until = float("-inf")

    def rests(self) -> int:
        """0 where somebody may try to connect now, else the seconds after which it is worth asking again."""
        left = self._rests_until - self._clock() if self._away else 0.0
        return max(1, math.ceil(left)) if left > 0 else 0

    def admit(self) -> int:
        """The same for who does try if it may."""
        wait = self.rests()
        if self._away and not wait:
            # This one is the probe; whoever comes meanwhile does not wait for how it ends.
            self._rests_until = self._clock() + self._rest_seconds
        return wait

    def failed(self) -> int:
        """No connection could be made; returns the seconds after which it is worth asking again."""
        self._away = True
        self._rests_until = self._clock() + self._rest_seconds
        return max(1, math.ceil(self._rest_seconds))

    def succeeded(self) -> None:
        """A connection has been made."""
        self._away = False
