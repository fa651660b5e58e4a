"""How much one tenant may ask of a server: a token bucket per tenant and kind of request, and a cap on open watches.

What is too much is refused before it costs anything, so that one tenant's flood does not slow another's requests (AD6).
Buckets are those of one process: behind ``n`` workers a tenant gets ``n`` times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from access.authorization.tenancy.isolation import ALWAYS_ALLOWED
from kube.authentication.identity import MASTERS, Principal
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests

READ: Final = "read"
WRITE: Final = "write"
WATCH: Final = "watch"

_READING: Final = frozenset({"get", "list"})
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are questions: creating one keeps nothing."""

_BUCKETS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second in the long run, and at once after a pause. A ``qps`` of 0 means no limit."""

    qps: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each tenant may ask of one process; generous, for they are there against floods. 0 means no limit."""

    read: Rate = Rate(2000, 4000)
    write: Rate = Rate(500, 1000)
    watch: Rate = Rate(100, 500)
    open_watches: int = 2000


UNLIMITED: Final = Limits(read=Rate(0, 0), write=Rate(0, 0), watch=Rate(0, 0), open_watches=0)


class TenantThrottle:
    """Counts the requests of every tenant. ``open_watches`` tells how many watches a tenant has open."""

    def __init__(self, limits: Limits, open_watches: Callable[[str | None], int]) -> None:
        self._rates = {READ: limits.read, WRITE: limits.write, WATCH: limits.watch}
        self._open_max = limits.open_watches
        self._open_watches = open_watches
        self._buckets: dict[tuple[str | None, str], tuple[float, float]] = {}

    def take(self, principal: Principal, info: RequestInfo, now: float) -> None:
        """Count one request at ``now`` (monotonic seconds). Raises ``TooManyRequests`` with the seconds to wait.

        The operators' masters and whoever asks for a probe are never held up.
        """
        if principal.is_system and MASTERS in principal.groups:
            return
        if not info.is_resource and info.path in ALWAYS_ALLOWED:
            return
        kind = kind_of(info)
        if kind is WATCH and 0 < self._open_max <= self._open_watches(principal.tenant):
            raise TooManyRequests("the tenant has too many open watches, please try again later", retry_after=5)
        rate = self._rates[kind]
        if not rate.qps:
            return
        key = (principal.tenant, kind)
        tokens, counted = self._buckets.get(key, (rate.burst, now))
        tokens = min(rate.burst, tokens + (now - counted) * rate.qps)
        if tokens < 1:
            # The bucket is left as it was: what is refused must not put off what is asked later.
            raise TooManyRequests(
                "the tenant has made too many requests, please try again later",
                retry_after=max(1, math.ceil((1 - tokens) / rate.qps)),
            )
        if len(self._buckets) >= _BUCKETS_MAX and key not in self._buckets:
            self._forget_full(now)
        self._buckets[key] = (tokens - 1, now)

    def charge(self, principal: Principal, info: RequestInfo, cost: int, now: float) -> None:
        """Take off what a request costs beyond its being one; who owes waits until it is paid.

        Raises ``TooManyRequests`` where the tenant owes as much already as it may ask for at once.
        """
        rate = self._rates[kind_of(info)]
        if not rate.qps or cost <= 0 or (principal.is_system and MASTERS in principal.groups):
            return
        key = (principal.tenant, kind_of(info))
        tokens, counted = self._buckets.get(key, (rate.burst, now))
        tokens = min(rate.burst, tokens + (now - counted) * rate.qps)
        if tokens < 0:
            raise TooManyRequests(
                "the tenant has asked for too much work, please try again later",
                retry_after=max(1, math.ceil(-tokens / rate.qps)),
            )
        self._buckets[key] = (max(tokens - cost, -rate.burst), now)

    def _forget_full(self, now: float) -> None:
        """Let go the buckets that have filled up again: they say nothing that a new one would not."""
        for key, (tokens, counted) in list(self._buckets.items()):
            rate = self._rates[key[1]]
            if tokens + (now - counted) * rate.qps >= rate.burst:
                del self._buckets[key]


def kind_of(info: RequestInfo) -> str:
    """``READ``, ``WRITE`` or ``WATCH``."""
    if info.verb == WATCH:
        return WATCH
    return READ if info.verb in _READING or info.group in _REVIEWS else WRITE
