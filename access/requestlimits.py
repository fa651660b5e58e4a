"""How much one tenant may ask of an API server: a token bucket a kind of request, and a cap on open streams.

What is too much is refused before it costs anything, so that one tenant's flood does not slow another's requests (AD6).
The processes of a server share a tenant's rates in equal parts: together they never serve more, and one of them never
less than its part. Open streams are counted in each. Every answer says how much is left. How often a person may set up
workspaces or sign in is limited in ``tenants.actionlimits``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from access.authentication import clusterwebhooks
from access.authorization.tenancy.isolation import ALWAYS_ALLOWED
from kube.authentication.identity import MASTERS, Principal
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import Level, TokenBucket

READ: Final = "read"
WRITE: Final = "write"
WATCH: Final = "watch"

_READING: Final = frozenset({"get", "list"})
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are questions: creating one keeps nothing."""

_BUCKETS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each tenant may ask; generous, for they are there against floods. A rate or number of 0 is no limit."""

    read: TokenBucket = field(default=TokenBucket(2000, 4000))
    write: TokenBucket = field(default=TokenBucket(500, 1000))
    watch: TokenBucket = field(default=TokenBucket(100, 500))
    open_watches: int = 2000

    def shared_by(self, processes: int) -> Limits:
        """The part of one of so many processes in the rates."""

        def part(rate: TokenBucket) -> TokenBucket:
            return TokenBucket(rate.qps / processes, max(1, rate.burst // processes))

        return replace(self, read=part(self.read), write=part(self.write), watch=part(self.watch))


UNLIMITED: Final = Limits(read=TokenBucket(0, 0), write=TokenBucket(0, 0), watch=TokenBucket(0, 0), open_watches=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a tenant has left of one kind of request: ``remaining`` of ``limit``, and all of it again in ``reset`` seconds.

    ``window`` is how many seconds an empty bucket takes to fill.
    """

    kind: str
    limit: int
    remaining: int
    reset: int
    window: int

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The fields of draft-ietf-httpapi-ratelimit-headers, and those that clients knew before."""
        limit, remaining, reset = b"%d" % self.limit, b"%d" % self.remaining, b"%d" % self.reset
        name = b'"tenant-%b"' % self.kind.encode()
        return (
            (b"ratelimit-policy", b"%b;q=%b;w=%d" % (name, limit, self.window)),
            (b"ratelimit", b"%b;r=%b;t=%b" % (name, remaining, reset)),
            (b"x-ratelimit-limit", limit),
            (b"x-ratelimit-remaining", remaining),
            (b"x-ratelimit-reset", reset),
        )


class TenantThrottle:
    """Counts the requests of every tenant. ``open_watches`` tells how many watches a tenant has open."""

    def __init__(self, limits: Limits, open_watches: Callable[[str | None], int]) -> None:
        self._rates = {READ: limits.read, WRITE: limits.write, WATCH: limits.watch}
        self._open_max = limits.open_watches
        self._open_watches = open_watches
        self._levels: dict[tuple[str | None, str], Level] = {}

    def take(self, principal: Principal, info: RequestInfo, now: float) -> None:
        """Count one request at ``now`` (monotonic seconds). Raises ``TooManyRequests`` with the seconds to wait.

        The operators' masters, clusters that ask the webhooks and whoever asks for a probe are never held up.
        """
        if _is_free(principal):
            return
        if not info.is_resource and info.path in ALWAYS_ALLOWED:
            return
        kind = kind_of(info)
        if kind is WATCH and 0 < self._open_max <= self._open_watches(principal.tenant):
            raise TooManyRequests(
                "the tenant has too many open watches, logs and shells, please try again later", retry_after=5
            )
        rate = self._rates[kind]
        if not rate.qps:
            return
        key = (principal.tenant, kind)
        tokens = rate.tokens(self._levels.get(key), now)
        wait = rate.wait(tokens)
        if wait > 0:
            # The bucket is left as it was: what is refused must not put off what is asked later.
            raise TooManyRequests(
                "the tenant has made too many requests, please try again later", retry_after=max(1, math.ceil(wait))
            )
        if len(self._levels) >= _BUCKETS_MAX and key not in self._levels:
            self._forget_full(now)
        self._levels[key] = rate.take(tokens, 1, now)

    def charge(self, principal: Principal, info: RequestInfo, cost: int, now: float) -> None:
        """Take off what a request costs beyond its being one; who owes waits until it is paid.

        Raises ``TooManyRequests`` where the tenant owes as much already as it may ask for at once.
        """
        rate = self._rates[kind_of(info)]
        if not rate.qps or cost <= 0 or _is_free(principal):
            return
        key = (principal.tenant, kind_of(info))
        tokens = rate.tokens(self._levels.get(key), now)
        owed = rate.wait(tokens, 0)
        if owed > 0:
            raise TooManyRequests(
                "the tenant has asked for too much work, please try again later", retry_after=max(1, math.ceil(owed))
            )
        self._levels[key] = rate.take(tokens, cost, now)

    def standing(self, principal: Principal, info: RequestInfo, now: float) -> Standing | None:
        """What the tenant has left of what a request counts as; ``None`` for whom nothing limits, or who has no tenant."""
        kind = kind_of(info)
        rate = self._rates[kind]
        if not rate.qps or principal.tenant is None or (principal.is_system and MASTERS in principal.groups):
            return None
        tokens = rate.tokens(self._levels.get((principal.tenant, kind)), now)
        return Standing(
            kind=kind,
            limit=rate.burst,
            remaining=max(0, math.floor(tokens)),
            reset=math.ceil(rate.wait(tokens, rate.burst)),
            window=math.ceil(rate.burst / rate.qps),
        )

    def _forget_full(self, now: float) -> None:
        """Let go the buckets that have filled up again: they say nothing that a new one would not."""
        for key, level in list(self._levels.items()):
            if self._rates[key[1]].full_at(level) <= now:
                del self._levels[key]


def _is_free(principal: Principal) -> bool:
    """Operators' masters; and clusters, whose questions are those of many tenants."""
    return (principal.is_system and MASTERS in principal.groups) or bool(clusterwebhooks.cluster_of(principal))


def kind_of(info: RequestInfo) -> str:
    """``READ``, ``WRITE`` or ``WATCH``, as which counts whatever goes on: logs, and connections into pods."""
    if info.is_long_running:
        return WATCH
    return READ if info.verb in _READING or info.group in _REVIEWS else WRITE
