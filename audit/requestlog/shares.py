"""Whose requests are still written down one by one: no flood takes the place of what others did before (DOS-08).

A day may take so many bytes. Once it has, those who have taken most of it are only counted until it ends, as many of them
as it takes: what the day holds is shared as evenly as those who want less than an even part leave room for (max-min
fairness). Strangers, who have no tenant, are one among them.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from math import inf


class DayShares:
    """What each tenant has written today, by one process, and who is only counted since."""

    def __init__(self, most: int) -> None:
        """``most``: the bytes, with indexes, that a day may take."""
        self._most = most
        self._day = date.min
        self._taken: dict[str, int] = {}
        self.beyond: frozenset[str] = frozenset()
        """The tenants that are only counted."""

    def note(self, day: date, tenant: str, size: int) -> None:
        """Rows of a tenant were written. Of another day than the last means that a new one has begun."""
        if day > self._day:
            self._begin(day)
        if day == self._day:
            self._taken[tenant] = self._taken.get(tenant, 0) + size

    def measured(self, day: date, size: int) -> None:
        """The day has taken so many bytes, by all processes: each gives back in the proportion that it has taken."""
        if day > self._day:
            self._begin(day)
        taken = self._taken
        if day == self._day and size > self._most:
            level = even_level(taken.values(), sum(taken.values()) * self._most / size)
            self.beyond |= {tenant for tenant, mine in taken.items() if mine > level}

    def _begin(self, day: date) -> None:
        self._day, self._taken, self.beyond = day, {}, frozenset()


def even_level(wanted: Collection[float], room: float) -> float:
    """How much each may have at most, so that all together have no more than ``room``; infinite where that is enough."""
    left = room
    for before, most in enumerate(sorted(wanted)):
        part = left / (len(wanted) - before)
        if most > part:
            return part
        left -= most
    return inf
