"""How much one tenant may ask of an API server, and one person of it: token buckets a kind of request, and a cap on streams.

A person's share is within the tenant's, so that one member's flood leaves the others served. What is too much is refused
before it costs anything, so that one tenant's flood does not slow another's requests (AD6). All processes on a database
share the rates of a tenant, and those of a person: each serves its part of them, which follows what is asked of it
(``kube.requests.rateshares``). Open streams are counted in each. Every answer says how much is left where it comes from.
What a cluster asks about a tenant is charged to it apart, cluster by cluster: no cluster uses up what the tenant may ask.
How often a person may set up workspaces or sign in is limited in ``tenants.actionlimits``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from access.authentication import clusterwebhooks
from access.authorization.tenancy.isolation import is_probe
from access.authorization.tenancy.suspension import is_write
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


_Key = tuple[str | None, str, str]
"""Tenant, kind, and person, empty for the tenant as a whole. What a cluster asks about the tenant is a kind of its own."""


@dataclass(slots=True)
class _Share(Level):
    """This process' part in a rate, with what is left of it, and what was asked since ``TenantThrottle.wanted`` was."""

    rate: str
    """What the processes call it among them."""
    policy: str
    whole: TokenBucket
    part: TokenBucket
    asked: float = 0
    lacking: bool = False
    """Whether it was not enough."""

    def held(self, now: float) -> float:
        """The tokens that are there."""
        return self.part.tokens(self, now)

    def charge(self, cost: float, now: float) -> None:
        """Take tokens off, and let them be owed."""
        after = self.part.take(self.held(now), cost, now)
        self.tokens, self.at = after.tokens, after.at
        self.asked += cost

    def resize(self, part: float, now: float) -> None:
        """Be another part of the whole from now on: until now it has filled as it was."""
        self.tokens, self.at = self.held(now), max(now, self.at)
        self.part = self.whole.part(part)


class _Rate(NamedTuple):
    """What a tenant may ask of one kind, and one person of it."""

    tenant: TokenBucket
    person: TokenBucket


class Allowance:
    """What one person of a tenant may still ask of one kind: within what the tenant may, whoever else of it has asked."""

    __slots__ = ("_own", "_told", "_told_of", "_whole")

    def __init__(self, whole: _Share, own: _Share) -> None:
        """``whole`` is shared by all of the tenant."""
        self._whole = whole
        self._own = own
        self._told = b""
        self._told_of: tuple[float, float, TokenBucket, TokenBucket] | None = None

    def take(self, kind: str, now: float) -> None:
        """Count one request. Raises ``RateLimited``."""
        whole, own = self._whole, self._own
        held, left = whole.part.tokens(whole, now), own.part.tokens(own, now)
        if held < 1 or left < 1:
            whole.lacking, own.lacking = whole.lacking or held < 1, own.lacking or left < 1
            # The buckets are left as they were: what is refused must not put off what is asked later.
            raise _too_many(kind, whole.part.wait(held), own.part.wait(left))
        # Within the bounds that ``TokenBucket.take`` would look at: every request comes by here.
        whole.tokens, whole.at = held - 1, now
        own.tokens, own.at = left - 1, now
        whole.asked += 1
        own.asked += 1

    def owed(self, now: float) -> float:
        """The seconds until nothing is owed any more."""
        longest = 0.0
        for share in (self._whole, self._own):
            held = share.held(now)
            share.lacking = share.lacking or held < 0
            longest = max(longest, share.part.wait(held, 0))
        return longest

    def charge(self, cost: int, now: float) -> None:
        """Take off as much as ``cost`` requests, and let it be owed."""
        self._whole.charge(cost, now)
        self._own.charge(cost, now)

    def standing(self, now: float) -> Standing:
        """What is left at ``now``."""
        return _standing(self._whole, self._own, self._whole.held(now), self._own.held(now))

    @property
    def header_lines(self) -> bytes:
        """See ``Standing``; as it was when anything was last taken, which for who asks little is the same each time."""
        whole, own = self._whole, self._own
        left = whole.tokens, own.tokens, whole.part, own.part
        if left != self._told_of:
            self._told, self._told_of = _standing(whole, own, whole.tokens, own.tokens).header_lines, left
        return self._told


class _Bounds(NamedTuple):
    """The limits of one tenant as they are asked."""

    rates: Mapping[str, _Rate | None]
    open_watches: int
    open_watches_of_person: int
    allowances: dict[_Key, Allowance]
    """Of those who have asked."""


def _bounds(limits: Limits) -> _Bounds:
    own = limits.of_person()
    rates = {READ: (limits.read, own.read), WRITE: (limits.write, own.write), WATCH: (limits.watch, own.watch)}
    return _Bounds(
        {kind: _Rate(whole, part) if whole.qps else None for kind, (whole, part) in rates.items()},
        limits.open_watches,
        own.open_watches,
        {},
    )


PAUSE_SECONDS: Final = 1.0
"""How long an answer is kept from who asks again at once: no longer than everybody is told to wait at least."""


class RateLimited(TooManyRequests):
    """Somebody has asked for too much; ``rule`` names of what, and whose limit it is.

    ``of_person`` says that it is the limit of one person, where nobody else has to wait. ``pause`` is for how many seconds
    the answer is to be kept: who does not wait as told waits for the answer.
    """

    pause = 0.0

    def __init__(self, message: str, *, retry_after: int, rule: str, of_person: bool = False) -> None:
        super().__init__(message, retry_after=retry_after, rule=rule)
        self.of_person = of_person

    @property
    def decision(self) -> Decision:
        """What the trace of the request and the audit say of it (AZ11)."""
        decision = Decision(Verdict.DENY, STEP, self.message, self.rule)
        return replace(decision, trace=(decision,))


def _alone(_: str) -> float:
    """The part of the only process."""
    return 1.0


class TenantThrottle:
    """Counts the requests of every tenant, and of every person in it.

    ``open_watches`` tells how many watches a tenant has open, or a person of it. ``limits`` are those of tenants of
    which ``bound`` has said nothing. ``part`` is how much of a rate is this process' own; ``share_anew`` says that it is
    another now.
    """

    def __init__(
        self, limits: Limits, open_watches: Callable[[str | None, str], int], part: Callable[[str], float] = _alone
    ) -> None:
        self._default = _bounds(limits)
        self._tenants: dict[str | None, _Bounds] = {}
        self._open_watches = open_watches
        self._part = part
        self._shares: dict[_Key, _Share] = {}
        self._by_rate: dict[str, _Share] = {}
        self._told: dict[_Key, float] = {}
        """Until when somebody was told to wait, in monotonic seconds."""

    def bound(self, tenant: str | None, limits: Limits) -> None:
        """Have a tenant's own limits hold from now on; what it has used stays used."""
        if len(self._tenants) >= _BUCKETS_MAX:
            self._tenants.clear()
        self._tenants[tenant] = _bounds(limits)
        # What it asked before was of the same shares, which are of other rates now.
        self._default.allowances.clear()

    def is_bound(self, tenant: str | None) -> bool:
        """Whether a tenant's own limits are known."""
        return tenant in self._tenants

    def forget(self, tenant: str | None = None) -> None:
        """The limits of a tenant, or of all, may be others now."""
        if tenant is None:
            self._tenants.clear()
        else:
            self._tenants.pop(tenant, None)

    def wanted(self, seconds: float) -> dict[str, float]:
        """What was asked of each rate in the ``seconds`` since this was, as a part of the whole: 1 where it was not enough."""
        found = {}
        for share in self._shares.values():
            if share.asked or share.lacking:
                found[share.rate] = 1.0 if share.lacking else min(share.asked / (share.whole.qps * seconds), 1.0)
                share.asked, share.lacking = 0, False
        return found

    def share_anew(self, rates: Iterable[str] | None, now: float) -> None:
        """This process' parts in these rates, ``None`` for all, may be others from ``now`` on; what was used stays used."""
        for rate in list(self._by_rate) if rates is None else rates:
            share = self._by_rate.get(rate)
            if share is not None:
                share.resize(self._part(rate), now)

    def take(self, principal: Principal, info: RequestInfo, now: float) -> Allowance | None:
        """Count one request at ``now`` (monotonic seconds); of what it was taken.

        Raises ``TooManyRequests`` with the seconds to wait. The operators' masters, clusters that ask the webhooks and
        whoever asks for a probe are never held up; of what is not counted nothing is said, and nothing to strangers.
        """
        tenant = principal.tenant
        if (tenant is None or principal.is_system) and _is_free(principal):
            return None
        if not info.is_resource and is_probe(info):
            return None
        kind = kind_of(info)
        try:
            if kind is WATCH:
                self.require_room(principal)
            allowance = self._allowance(tenant, kind, principal.name, now)
            if allowance is not None:
                allowance.take(kind, now)
        except RateLimited as refused:
            # What is the tenant's all of it have been told of: whoever may act as others has as many names as it likes.
            who = principal.name if refused.of_person else ""
            refused.pause = self._pause((tenant, kind, who), refused, now)
            raise
        return None if tenant is None else allowance

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

    def _allowance(self, tenant: str | None, kind: str, person: str, now: float) -> Allowance | None:
        """What somebody may ask of a kind; ``None`` where nothing limits it."""
        bounds = self._tenants.get(tenant, self._default)
        whose = (tenant, kind, person)
        known = bounds.allowances.get(whose)
        if known is not None:
            return known
        # What clusters ask about has no numbers of its own: it is what is written there.
        rate = bounds.rates.get(kind, bounds.rates[WRITE])
        if rate is None:
            return None
        if len(self._shares) >= _BUCKETS_MAX and whose not in self._shares:
            self._forget_full(now)
        whole = self._share((tenant, kind, ""), f"tenant-{kind}", rate.tenant, now)
        own = self._share(whose, f"person-{kind}", rate.person, now)
        allowance = bounds.allowances[whose] = Allowance(whole, own)
        return allowance

    def _share(self, key: _Key, policy: str, whole: TokenBucket, now: float) -> _Share:
        """What is left of it, of the ``whole`` as it is now."""
        share = self._shares.get(key)
        if share is None:
            rate = _name_of(key)
            part = whole.part(self._part(rate))
            share = self._shares[key] = self._by_rate[rate] = _Share(part.burst, now, rate, policy, whole, part)
        elif share.whole != whole:
            share.whole, share.part = whole, whole.part(self._part(share.rate))
        return share

    def require_room(self, principal: Principal) -> None:
        """Raise ``RateLimited`` for whom, or whose tenant, has as many streams open as may be.

        Asked with a request for one, and again where its opening had to be waited for: others may have opened meanwhile.
        """
        if _is_free(principal):
            return
        tenant = principal.tenant
        bounds = self._tenants.get(tenant, self._default)
        for most, person in ((bounds.open_watches, ""), (bounds.open_watches_of_person, principal.name)):
            if 0 < most <= self._open_watches(tenant, person):
                who = f"{person} has" if person else "the tenant has"
                raise RateLimited(
                    f"{who} too many open watches, logs and shells, please try again later",
                    retry_after=5,
                    rule=f"open streams of the {'person' if person else 'tenant'}",
                    of_person=bool(person),
                )

    def charge(self, principal: Principal, info: RequestInfo, cost: int, now: float, *, further: bool = False) -> None:
        """Take off what a request costs beyond its being one; who owes waits until it is paid.

        A cluster with a tenant is the one that asks about it, which the tenant pays for with what it has for this cluster.
        Raises ``TooManyRequests`` where the tenant, or the person, owes something already, unless it is a ``further``
        charge: whoever was let in owes more, or would be refused as often as they come.
        """
        if cost <= 0 or _is_free(principal):
            return
        cluster = clusterwebhooks.cluster_of(principal)
        kind = f"{cluster}'s" if cluster else kind_of(info)
        allowance = self._allowance(principal.tenant, kind, principal.name, now)
        if allowance is None:
            return
        owed = 0.0 if further else allowance.owed(now)
        if owed > 0:
            raise RateLimited(
                "the tenant has asked for too much work, please try again later",
                retry_after=max(1, math.ceil(owed)),
                rule=f"cost of {kind} requests",
            )
        allowance.charge(cost, now)

    def standing(self, principal: Principal, info: RequestInfo, now: float) -> Standing | None:
        """What is left of what a request counts as: to the person or to the whole tenant, whichever is less.

        ``None`` for whom nothing limits, or who has no tenant.
        """
        if principal.tenant is None or is_masters(principal):
            return None
        allowance = self._allowance(principal.tenant, kind_of(info), principal.name, now)
        return None if allowance is None else allowance.standing(now)

    def _forget_full(self, now: float) -> None:
        """Let go the buckets that have filled up again: they say nothing that a new one would not.

        Nobody may go on taking from one of them, beside another who is given a new one.
        """
        for bounds in (self._default, *self._tenants.values()):
            bounds.allowances.clear()
        for key, share in list(self._shares.items()):
            if share.part.full_at(share) <= now:
                del self._shares[key], self._by_rate[share.rate]


def _name_of(key: _Key) -> str:
    """Short, whatever people are called, and nobody's name."""
    return blake2b("\0".join((key[0] or "", *key[1:])).encode(errors="backslashreplace"), digest_size=8).hexdigest()


def _standing(whole: _Share, own: _Share, held: float, left: float) -> Standing:
    """What so many tokens of the tenant and of the person are."""
    share, tokens = (own, left) if left < held else (whole, held)
    part = share.part
    reset = math.ceil((part.burst - tokens) / part.qps)
    window = math.ceil(part.burst / part.qps)
    return Standing(share.policy, part.burst, int(tokens) if tokens > 0 else 0, reset, window)


def _too_many(kind: str, tenant: float, person: float) -> RateLimited:
    """The refusal of who has to wait so many seconds, for the whole tenant or for the own share in it."""
    who, whose = ("you have", "person") if person > tenant else ("the tenant has", "tenant")
    return RateLimited(
        f"{who} made too many requests, please try again later",
        retry_after=max(1, math.ceil(max(tenant, person))),
        rule=f"{kind} requests of the {whose}",
        of_person=person > tenant,
    )


def _is_free(principal: Principal) -> bool:
    """Operators' masters; and clusters, whose questions are those of many tenants, unless it is said of which."""
    return is_masters(principal) or (principal.tenant is None and principal.authenticator == clusterwebhooks.NAME)


def kind_of(info: RequestInfo) -> str:
    """``READ``, ``WRITE`` or ``WATCH``, as which counts whatever goes on: logs, and connections into pods."""
    if info.is_long_running:
        return WATCH
    # Questions are created as well, and keep nothing.
    return READ if info.verb in _READING or (info.is_resource and not is_write(info)) else WRITE
