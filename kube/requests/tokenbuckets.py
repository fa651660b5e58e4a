"""Token buckets: so much at once, then so much a second. The arithmetic of all limits on rates (AD6).

A bucket is full until somebody takes from it. What it holds is a ``Level``, which who counts keeps for each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Level(NamedTuple):
    """How many tokens were there at ``at`` (seconds of any clock); below 0 they are owed."""

    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """``burst`` tokens at the most, ``qps`` new ones a second. A ``qps`` of 0 stands for no limit: do not ask it."""

    qps: float
    burst: int

    def tokens(self, level: Level | None, now: float) -> float:
        """The tokens at ``now``; ``None`` is a bucket from which nobody has taken. A clock that went back adds none."""
        if level is None:
            return self.burst
        return min(self.burst, level.tokens + max(0.0, now - level.at) * self.qps)

    def wait(self, tokens: float, wanted: float = 1) -> float:
        """The seconds until ``wanted`` tokens are there, 0 when they are."""
        return max(0.0, (wanted - tokens) / self.qps)

    def take(self, tokens: float, taken: float, now: float) -> Level:
        """What is left of ``tokens``: never more than ``burst``, and never more than ``burst`` owed.

        A negative number gives back.
        """
        return Level(max(-self.burst, min(self.burst, tokens - taken)), now)

    def full_at(self, level: Level) -> float:
        """When the bucket is full again, and its level says nothing that a new one would not."""
        return level.at + self.wait(level.tokens, self.burst)
