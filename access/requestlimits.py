"""How much one tenant may ask of an API server, and one person of it: token buckets a kind of request, and a cap on streams.

A person's share is within the tenant's, so that one member's flood leaves the others served. What is too much is refused
before it costs anything, so that one tenant's flood does not slow another's requests (AD6). The processes of a server
share a tenant's rates in equal parts: together they never serve more, and one of them never less than its part. Open
streams are counted in each. Every answer says how much is left. How often a person may set up workspaces or sign in is
limited in ``tenants.actionlimits``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from access.authentication import clusterwebhooks
from access.authorization.tenancy.isolation import is_probe
from kube.authentication.identity import Principal, is_masters
from kube.authorization.decisions import Decision, Verdict
from kube.requests.ratelimits import Limits
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import Level, TokenBucket

READ: Final = "read"
WRITE: Final = "write"
WATCH: Final = "watch"

STEP: Final = "requestlimits"
"""What the trace of a request that is too much calls it."""

_READING: Final = frozenset({"get", "list"})
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are questions: creating one keeps nothing."""

_BUCKETS_MAX: Final = 30_000


class Standing(NamedTuple):
    """What is left of one kind of request: ``remaining`` of ``limit``, and all of it again in ``reset`` seconds.

    ``name`` says of what, and whose: ``tenant-read``, ``person-write``. ``window`` is how many seconds an empty bucket
    takes to fill.
    """

    name: str
    limit: int
    remaining: int
    reset: int
    window: int

    @property
    def header_lines(self) -> bytes:
        """The fields of draft-ietf-httpapi-ratelimit-headers, and those that clients knew before, each with its CRLF."""
        return _header_lines(self)


@lru_cache(maxsize=4096)
def _header_lines(standing: Standing) -> bytes:
    """Every answer has them, and most are the same."""
    name, limit, remaining, reset, window = standing
    return (
        f'ratelimit-policy: "{name}";q={limit};w={window}\r\n'
        f'ratelimit: "{name}";r={remaining};t={reset}\r\n'
        f"x-ratelimit-limit: {limit}\r\n"
        f"x-ratelimit-remaining: {remaining}\r\n"
        f"x-ratelimit-reset: {reset}\r\n"
    ).encode()


class _Rate(NamedTuple):
    """What a tenant may ask of one kind, and one person of it."""

    tenant: TokenBucket
    person: TokenBucket
    tenant_policy: tuple[str, int]
    """``name`` and ``window`` of a ``Standing``."""
    person_policy: tuple[str, int]


class _Bounds(NamedTuple):
    """The limits of one tenant as they are asked."""

    rates: Mapping[str, _Rate | None]
    open_watches: int
    open_watches_of_person: int


def _bounds(limits: Limits) -> _Bounds:
    own = limits.of_person()
    rates = {READ: (limits.read, own.read), WRITE: (limits.write, own.write), WATCH: (limits.watch, own.watch)}
    return _Bounds(
        {
            kind: _Rate(whole, part, (f"tenant-{kind}", _window(whole)), (f"person-{kind}", _window(part)))
            if whole.qps
            else None
            for kind, (whole, part) in rates.items()
        },
        limits.open_watches,
        own.open_watches,
    )


def _window(bucket: TokenBucket) -> int:
    return math.ceil(bucket.burst / bucket.qps)


_Key = tuple[str | None, str, str]
"""Tenant, kind, and person, empty for the tenant as a whole."""


PAUSE_SECONDS: Final = 1.0
"""How long an answer is kept from who asks again at once: no longer than everybody is told to wait at least."""


class RateLimited(TooManyRequests):
    """Somebody has asked for too much; ``rule`` names of what, and whose limit it is.

    ``pause`` is for how many seconds the answer is to be kept: who does not wait as told waits for the answer.
    """

    pause = 0.0

    @property
    def decision(self) -> Decision:
        """What the trace of the request and the audit say of it (AZ11)."""
        decision = Decision(Verdict.DENY, STEP, self.message, self.rule)
        return replace(decision, trace=(decision,))


class TenantThrottle:
    """Counts the requests of every tenant, and of every person in it.

    ``open_watches`` tells how many watches a tenant has open, or a person of it. ``limits`` are those of tenants of
    which ``bound`` has said nothing.
    """

    def __init__(self, limits: Limits, open_watches: Callable[[str | None, str], int]) -> None:
        self._default = _bounds(limits)
        self._tenants: dict[str | None, _Bounds] = {}
        self._open_watches = open_watches
        self._levels: dict[_Key, Level] = {}
        self._told: dict[_Key, float] = {}
        """Until when somebody was told to wait, in monotonic seconds."""
        self.charges = 0
        """How often somebody was charged for more than one request: what ``take`` has said holds while it stays the same."""

    def bound(self, tenant: str | None, limits: Limits) -> None:
        """Have a tenant's own limits hold from now on; what it has used stays used."""
        if len(self._tenants) >= _BUCKETS_MAX:
            self._tenants.clear()
        self._tenants[tenant] = _bounds(limits)

    def is_bound(self, tenant: str | None) -> bool:
        """Whether a tenant's own limits are known."""
        return tenant in self._tenants

    def forget(self, tenant: str | None = None) -> None:
        """The limits of a tenant, or of all, may be others now."""
        if tenant is None:
            self._tenants.clear()
        else:
            self._tenants.pop(tenant, None)

    def take(self, principal: Principal, info: RequestInfo, now: float) -> Standing | None:
        """Count one request at ``now`` (monotonic seconds); what is left, as ``standing`` says it.

        Raises ``TooManyRequests`` with the seconds to wait. The operators' masters, clusters that ask the webhooks and
        whoever asks for a probe are never held up; of what is not counted nothing is said.
        """
        if _is_free(principal):
            return None
        if is_probe(info):
            return None
        try:
            return self._take(principal, kind_of(info), now)
        except RateLimited as refused:
            refused.pause = self._pause((principal.tenant, kind_of(info), principal.name), refused, now)
            raise

    def _pause(self, who: _Key, refused: RateLimited, now: float) -> float:
        """None for who has waited as told; else what is left of it, so that a flood is as slow as its connections are few."""
        told = self._told.get(who, now)
        if told > now:
            return min(told - now, PAUSE_SECONDS)
        if len(self._told) >= _BUCKETS_MAX and who not in self._told:
            self._told = {each: until for each, until in self._told.items() if until > now}
        if len(self._told) < _BUCKETS_MAX:
            self._told[who] = now + (refused.retry_after or PAUSE_SECONDS)
        return 0.0

    def _take(self, principal: Principal, kind: str, now: float) -> Standing | None:
        tenant = principal.tenant
        bounds = self._tenants.get(tenant, self._default)
        if kind is WATCH:
            self._require_room(principal, bounds)
        rate = bounds.rates[kind]
        if rate is None:
            return None
        levels, whole, own = self._levels, (tenant, kind, ""), (tenant, kind, principal.name)
        held = rate.tenant.tokens(levels.get(whole), now)
        left = rate.person.tokens(levels.get(own), now)
        if held < 1 or left < 1:
            # The buckets are left as they were: what is refused must not put off what is asked later.
            raise _too_many(kind, rate.tenant.wait(held), rate.person.wait(left))
        if len(levels) >= _BUCKETS_MAX and own not in levels:
            self._forget_full(now)
        levels[whole] = rate.tenant.take(held, 1, now)
        levels[own] = rate.person.take(left, 1, now)
        return None if tenant is None else _standing(rate, held - 1, left - 1)

    def _require_room(self, principal: Principal, bounds: _Bounds) -> None:
        tenant = principal.tenant
        for most, person in ((bounds.open_watches, ""), (bounds.open_watches_of_person, principal.name)):
            if 0 < most <= self._open_watches(tenant, person):
                who = f"{person} has" if person else "the tenant has"
                raise RateLimited(
                    f"{who} too many open watches, logs and shells, please try again later",
                    retry_after=5,
                    rule=f"open streams of the {'person' if person else 'tenant'}",
                )

    def charge(self, principal: Principal, info: RequestInfo, cost: int, now: float, *, further: bool = False) -> None:
        """Take off what a request costs beyond its being one; who owes waits until it is paid.

        Raises ``TooManyRequests`` where the tenant, or the person, owes something already, unless it is a ``further``
        charge: whoever was let in owes more, or would be refused as often as they come.
        """
        tenant, kind = principal.tenant, kind_of(info)
        rate = self._tenants.get(tenant, self._default).rates[kind]
        if rate is None or cost <= 0 or _is_free(principal):
            return
        levels, whole, own = self._levels, (tenant, kind, ""), (tenant, kind, principal.name)
        held = rate.tenant.tokens(levels.get(whole), now)
        left = rate.person.tokens(levels.get(own), now)
        owed = max(rate.tenant.wait(held, 0), rate.person.wait(left, 0))
        if owed > 0 and not further:
            raise RateLimited(
                "the tenant has asked for too much work, please try again later",
                retry_after=max(1, math.ceil(owed)),
                rule=f"cost of {kind} requests",
            )
        levels[whole] = rate.tenant.take(held, cost, now)
        levels[own] = rate.person.take(left, cost, now)
        self.charges += 1

    def standing(self, principal: Principal, info: RequestInfo, now: float) -> Standing | None:
        """What is left of what a request counts as: to the person or to the whole tenant, whichever is less.

        ``None`` for whom nothing limits, or who has no tenant.
        """
        tenant, kind = principal.tenant, kind_of(info)
        rate = self._tenants.get(tenant, self._default).rates[kind]
        if rate is None or tenant is None or is_masters(principal):
            return None
        held = rate.tenant.tokens(self._levels.get((tenant, kind, "")), now)
        left = rate.person.tokens(self._levels.get((tenant, kind, principal.name)), now)
        return _standing(rate, held, left)

    def _forget_full(self, now: float) -> None:
        """Let go the buckets that have filled up again: they say nothing that a new one would not."""
        for key, level in list(self._levels.items()):
            tenant, kind, person = key
            rate = self._tenants.get(tenant, self._default).rates[kind]
            if rate is None or (rate.person if person else rate.tenant).full_at(level) <= now:
                del self._levels[key]


def _standing(rate: _Rate, held: float, left: float) -> Standing:
    """What so many tokens of the tenant and of the person are."""
    if left < held:
        bucket, tokens, (name, window) = rate.person, left, rate.person_policy
    else:
        bucket, tokens, (name, window) = rate.tenant, held, rate.tenant_policy
    reset = math.ceil((bucket.burst - tokens) / bucket.qps)
    return Standing(name, bucket.burst, int(tokens) if tokens > 0 else 0, reset, window)


def _too_many(kind: str, tenant: float, person: float) -> RateLimited:
    """The refusal of who has to wait so many seconds, for the whole tenant or for the own share in it."""
    who, whose = ("you have", "person") if person > tenant else ("the tenant has", "tenant")
    return RateLimited(
        f"{who} made too many requests, please try again later",
        retry_after=max(1, math.ceil(max(tenant, person))),
        rule=f"{kind} requests of the {whose}",
    )


def _is_free(principal: Principal) -> bool:
    """Operators' masters; and clusters, whose questions are those of many tenants."""
    return is_masters(principal) or principal.authenticator == clusterwebhooks.NAME


def kind_of(info: RequestInfo) -> str:
    """``READ``, ``WRITE`` or ``WATCH``, as which counts whatever goes on: logs, and connections into pods."""
    if info.is_long_running:
        return WATCH
    return READ if info.verb in _READING or info.group in _REVIEWS else WRITE
