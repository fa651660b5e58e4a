"""When a quota will be full, if what is used goes on growing as it did (AD7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_FEWEST: Final = 6
"""Samples from which anything is concluded."""


def hours_until_full(samples: Sequence[tuple[float, float]], hard: float) -> float | None:
    """The hours from the last sample until ``hard`` is reached, 0 when it is; ``None`` where it is not on the way.

    ``samples`` are (hour, used), oldest first. The rate is that of the straight line that fits them best.
    """
    if not samples or samples[-1][1] >= hard:
        return 0.0 if samples else None
    if len(samples) < _FEWEST:
        return None
    # Counted from the middle: large numbers, such as bytes and dates, would lose the little by which they differ.
    middle = sum(hour for hour, _ in samples) / len(samples), sum(used for _, used in samples) / len(samples)
    apart = [(hour - middle[0], used - middle[1]) for hour, used in samples]
    spread = sum(hour * hour for hour, _ in apart)
    rate = sum(hour * used for hour, used in apart) / spread if spread else 0.0
    return (hard - samples[-1][1]) / rate if rate > 0 else None
