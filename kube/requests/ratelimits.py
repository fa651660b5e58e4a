"""How much a tenant, and one person of it, may ask of an API server (AD6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kube.requests.tokenbuckets import TokenBucket

KINDS: Final = ("read", "write", "watch")
"""Kinds of requests that are counted apart."""

SETTINGS: Final = (
    *(f"{kind}_{part}" for kind in KINDS for part in ("qps", "burst")),
    "open_watches",
    "person_share",
)
"""What a tier may say, in whole numbers."""

_MOST: Final = 1_000_000
_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each tenant may ask; generous, for they are there against floods. A rate or number of 0 is no limit.

    One person may take ``person_share`` percent of each.
    """

    read: TokenBucket = field(default=TokenBucket(2000, 4000))
    write: TokenBucket = field(default=TokenBucket(500, 1000))
    watch: TokenBucket = field(default=TokenBucket(100, 500))
    open_watches: int = 2000
    person_share: int = 50

    def of_person(self) -> Limits:
        """What one person of the tenant may take of them."""
        share = self.person_share

        def part(rate: TokenBucket) -> TokenBucket:
            return TokenBucket(rate.qps * share / _PERCENT, max(1, rate.burst * share // _PERCENT))

        watches = max(1, self.open_watches * share // _PERCENT) if self.open_watches else 0
        return replace(self, read=part(self.read), write=part(self.write), watch=part(self.watch), open_watches=watches)

    def with_settings(self, settings: Mapping[str, int]) -> Limits:
        """With what a tier says in place of these."""

        def rate(kind: str, ours: TokenBucket) -> TokenBucket:
            burst = settings.get(f"{kind}_burst", max(ours.burst, 1))
            return TokenBucket(settings.get(f"{kind}_qps", ours.qps), burst)

        return Limits(
            read=rate("read", self.read),
            write=rate("write", self.write),
            watch=rate("watch", self.watch),
            open_watches=settings.get("open_watches", self.open_watches),
            person_share=settings.get("person_share", self.person_share),
        )


UNLIMITED: Final = Limits(read=TokenBucket(0, 0), write=TokenBucket(0, 0), watch=TokenBucket(0, 0), open_watches=0)


def most_generous(limits: Sequence[Limits]) -> Limits:
    """Of several, each number at its largest, no limit being the largest; there is at least one."""

    def rate(kind: str) -> TokenBucket:
        rates: list[TokenBucket] = [getattr(each, kind) for each in limits]
        if not all(each.qps for each in rates):
            return TokenBucket(0, 0)
        return TokenBucket(max(each.qps for each in rates), max(each.burst for each in rates))

    open_watches = [each.open_watches for each in limits]
    return Limits(
        read=rate("read"),
        write=rate("write"),
        watch=rate("watch"),
        open_watches=max(open_watches) if all(open_watches) else 0,
        person_share=max(each.person_share for each in limits),
    )


def read_settings(values: Mapping[str, Any]) -> dict[str, int]:
    """What a tier says about it. Raises ``ValueError`` with the setting and what it must be."""
    settings = {}
    for name, value in values.items():
        if name not in SETTINGS:
            raise ValueError(f"{str(name)[:40]}: must be one of {', '.join(SETTINGS)}")
        text = str(value).strip()
        if (
            isinstance(value, bool)
            or not text.isascii()
            or not text.isdigit()
            or int(text[:9]) > _MOST
            or len(text) > 7
        ):
            raise ValueError(f"{name}: must be a whole number from 0 to {_MOST}")
        settings[name] = int(text)
        if name.endswith("_burst") and not settings[name]:
            raise ValueError(f"{name}: must be at least 1; without a limit, {name.removesuffix('burst')}qps is 0")
    if not 1 <= settings.get("person_share", _PERCENT) <= _PERCENT:
        raise ValueError("person_share: must be a percentage from 1 to 100")
    return settings
