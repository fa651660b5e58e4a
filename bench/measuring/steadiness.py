"""Whether something that is measured again and again stays where it is."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Final

FEWEST: Final = 4
"""Points without which nothing can be said."""


@dataclass(slots=True)
class Series:
    """What was measured of one thing: seconds and values, in ``unit``.

    ``floor`` is a growth that is nothing, however small the value is. What is not ``judged`` is a record, which grows with
    what is done.
    """

    name: str
    unit: str
    floor: float
    judged: bool = True
    points: list[tuple[float, float]] = field(default_factory=list)

    def after(self, seconds: float) -> Series:
        """The same from then on."""
        kept = [point for point in self.points if point[0] >= seconds]
        return Series(self.name, self.unit, self.floor, self.judged, kept)

    @property
    def ends(self) -> tuple[float, float]:
        """Where it began and where it ended: medians of the first and of the last quarter, so that no peak counts."""
        values = [value for _, value in self.points]
        quarter = max(1, len(values) // 4)
        return statistics.median(values[:quarter]), statistics.median(values[-quarter:])

    @property
    def per_hour(self) -> float:
        """The slope of the straight line through all points, an hour."""
        if len({seconds for seconds, _ in self.points}) < 2:
            return 0.0
        seconds, values = zip(*self.points, strict=True)
        return statistics.linear_regression(seconds, values).slope * 3600

    def verdict(self, share: float) -> str:
        """``flat`` where it has grown by no more than this share of its beginning, or by the floor."""
        if not self.judged:
            return "a record"
        if len(self.points) < FEWEST:
            return "too few"
        begun, ended = self.ends
        return "flat" if ended - begun <= max(share * begun, self.floor) else "GROWS"
