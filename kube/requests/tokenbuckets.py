"""Token buckets: so much at once, then so much a second. The arithmetic of all limits on rates (AD6).

A bucket is full until somebody takes from it. What it holds is a ``Level``, which who counts keeps for each key.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Level:
    """How many tokens were there at ``at`` (seconds of any clock); below 0 they are owed."""

    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """``burst`` tokens at the most, ``qps`` new ones a second. A ``qps`` of 0 stands for no limit: do not ask it.

    No more than ``debt`` is owed; without it, no more than ``burst``.
    """

    qps: float
    burst: int
    debt: int = 0

    def part(self, share: float) -> TokenBucket:
        """So much of it, and one token at least; what costs more than the part holds is owed as it is to the whole."""
        # A third of three is one, in floating point too.
        burst = max(1, int(self.burst * share + 1e-9))
        return TokenBucket(self.qps * share, burst, self.debt or self.burst)

    def tokens(self, level: Level | None, now: float) -> float:
        """The tokens at ``now``; ``None`` is a bucket from which nobody has taken. A clock that went back adds none."""
        if level is None:
            return self.burst
        passed = now - level.at
        tokens = level.tokens + passed * self.qps if passed > 0 else level.tokens
        # Every request asks twice: a call of min would cost as much as the rest.
        return tokens if tokens < self.burst else self.burst  # noqa: FURB136

    def wait(self, tokens: float, wanted: float = 1) -> float:
        """The seconds until ``wanted`` tokens are there, 0 when they are."""
        return (wanted - tokens) / self.qps if wanted > tokens else 0.0

    def take(self, tokens: float, taken: float, now: float) -> Level:
        """What is left of ``tokens``: never more than ``burst``, and never more than ``debt`` owed.

        A negative number gives back.
        """
        return Level(max(min(tokens - taken, self.burst), -(self.debt or self.burst)), now)

    def full_at(self, level: Level) -> float:
        """When the bucket is full again, and its level says nothing that a new one would not."""
        return level.at + self.wait(level.tokens, self.burst)
