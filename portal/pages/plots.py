"""Small pictures of what happened when, for those who would rather look than read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from audit import selectors
from kube.quota.charges import Bill
from portal.caching import cached
from tenants.models import Cluster, Tenant
from tenants.selectors import latencies_of
from tenants.usage import requests_by_day

HEIGHT: Final = 40
WIDTH: Final = 10
"""Of a picture and of one of its bars, in its own units: the page stretches it."""

_HALF_HOUR: Final = timedelta(minutes=30)

_REMEMBERED: Final = 30
"""Seconds for which a picture serves again: counting reads many rows, and ten open pages are one question."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One hour or day: what went well stands below what did not."""

    when: str
    good: int | Decimal
    bad: int
    x: int
    good_height: float
    bad_height: float

    @property
    def good_top(self) -> float:
        """Where its lower part begins, from above."""
        return HEIGHT - self.good_height

    @property
    def bad_top(self) -> float:
        """Where its upper part begins, from above."""
        return HEIGHT - self.good_height - self.bad_height


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A row of bars with the words for those who cannot see them."""

    bars: tuple[Bar, ...]
    good: int | Decimal
    bad: int
    good_word: str
    bad_word: str
    """Empty where nothing can go wrong."""
    first: str
    last: str

    @property
    def width(self) -> int:
        """Of the whole."""
        return len(self.bars) * WIDTH


def requests_plot(now: datetime, *, tenant: str = "") -> Plot:
    """The requests of a tenant, or of all, to the API server in the last 24 hours."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    slots = [hour - timedelta(hours=ago) for ago in reversed(range(24))]
    began = selectors.chain_began(tenant) if tenant else None
    since = max(slots[0], began) if began else slots[0]
    key = f"portal:requests:{tenant}:{since.timestamp()}:{hour:%d%H}"
    counted = cached(key, _REMEMBERED, lambda: selectors.requests_by_hour(since, tenant=tenant))
    return _plot(slots, counted, "%H:%M UTC", "allowed", "refused")


def usage_plot(now: datetime, tenant: Tenant) -> Plot:
    """The requests of a tenant in the last 30 days, by the hours that were counted (AD7)."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    slots = [day - timedelta(days=ago) for ago in reversed(range(30))]
    return _plot(slots, requests_by_day(tenant, slots[0]), "%d %b", "allowed", "refused")


def events_plot(now: datetime, workspace_id: UUID) -> Plot:
    """The events about a workspace in the last two weeks."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    slots = [day - timedelta(days=ago) for ago in reversed(range(14))]
    key = f"portal:events:{workspace_id}"
    counted = cached(key, _REMEMBERED, lambda: selectors.events_by_day(workspace_id, slots[0]))
    return _plot(slots, counted, "%d %b", "done", "denied or failed")


def latency_plot(now: datetime, cluster: Cluster) -> Plot:
    """How long a cluster took to answer in the last twelve hours, and how often it did not."""
    begins = now.astimezone(UTC).replace(minute=now.minute // 30 * 30, second=0, microsecond=0)
    slots = [begins - _HALF_HOUR * ago for ago in reversed(range(24))]
    spans = latencies_of(cluster, since=slots[0], step=_HALF_HOUR)
    found = {when: (worst, missed, asked) for when, worst, missed, asked in spans}
    slowest = max((worst for _, worst, _, _ in spans), default=0)
    bars = []
    for index, when in enumerate(slots):
        worst, missed, asked = found.get(when, (0, 0, 1))
        # What was missed takes its part of the height, the latency is to scale in what is left.
        lost = round(missed / asked * HEIGHT, 1)
        height = min(_height(worst, max(1, slowest)), HEIGHT - lost)
        bars.append(Bar(when.strftime("%H:%M UTC"), worst, missed, index * WIDTH, height, lost))
    return Plot(
        bars=tuple(bars),
        good=slowest,
        bad=sum(bar.bad for bar in bars),
        good_word="ms at most",
        bad_word="without an answer",
        first=bars[0].when,
        last=bars[-1].when,
    )


def costs_plot(bills: Sequence[Bill]) -> Plot:
    """What each of some tenants costs, in the order in which they are listed; there is at least one."""
    most = max(float(each.total) for each in bills) or 1.0
    bars = tuple(
        Bar(each.tenant, each.total, 0, index * WIDTH, _height(float(each.total), most), 0.0)
        for index, each in enumerate(bills)
    )
    total = sum((each.total for each in bills), Decimal(0))
    return Plot(bars=bars, good=total, bad=0, good_word="charged", bad_word="", first=bars[0].when, last=bars[-1].when)


def _plot(
    slots: list[datetime], counted: Iterable[tuple[datetime, int, int]], words: str, good_word: str, bad_word: str
) -> Plot:
    found = {when: (good, bad) for when, good, bad in counted}
    numbers = [(when, *found.get(when, (0, 0))) for when in slots]
    most = max(1, *(good + bad for _, good, bad in numbers))
    bars = tuple(
        Bar(when.strftime(words), good, bad, index * WIDTH, _height(good, most), _height(bad, most))
        for index, (when, good, bad) in enumerate(numbers)
    )
    return Plot(
        bars=bars,
        good=sum(bar.good for bar in bars),
        bad=sum(bar.bad for bar in bars),
        good_word=good_word,
        bad_word=bad_word,
        first=bars[0].when,
        last=bars[-1].when,
    )


def _height(number: float, most: float) -> float:
    """To scale, but whatever happened at all can be seen."""
    return round(max(1.0, number / most * (HEIGHT - 1)), 1) if number else 0.0
