"""How often one person, account or address may do what is dear or guesses: set up workspaces, have credentials, sign in.

Token buckets in Redis, shared by all processes: one Lua script, atomic (GW6, AD6). In this process when Redis is away:
never open. What a tenant may ask of an API server is limited in ``access.requestlimits``.

Where only failures are to count, a token is taken before it is known how things end, and given back where they end
well: looking first and counting later would let any number in at the same time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import Level, TokenBucket

if TYPE_CHECKING:
    import redis

# ``TokenBucket`` where the buckets are: reading and taking must be one step. Time is Redis' own, for the clocks of
# several hosts need not agree. Answers 0, or the milliseconds to wait; and what is left.
_SCRIPT: Final = """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local capacity, per_ms, taken = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or capacity, tonumber(state[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * per_ms)
local wait = 0
if tokens >= taken then tokens = math.min(capacity, tokens - taken) else wait = math.ceil((taken - tokens) / per_ms) end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / per_ms) + 1000)
return {wait, math.floor(tokens)}
"""

_LOCAL_KEYS: Final = 10_000
_RETRY_REDIS_AFTER: Final = 5.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """``burst`` times at once, then once every ``interval`` seconds. ``name`` is part of the key."""

    name: str
    burst: int
    interval: float

    @property
    def tokens(self) -> TokenBucket:
        """The same as a rate."""
        return TokenBucket(1 / self.interval, self.burst)


INIT = Bucket("workspace-init", burst=10, interval=6)
CREDENTIAL = Bucket("credential", burst=10, interval=6)
WRITES = Bucket("writes", burst=600, interval=1)
"""Whatever a person sends to the portal that is no reading: what may stay of it for years is bounded by this (AD8)."""
READS = Bucket("reads", burst=1200, interval=1 / 30)
TENANT_READS = Bucket("tenant-reads", burst=4800, interval=1 / 120)
"""Pages and answers that a person asks for, with many of them open at once; and all people of a tenant together (AD6)."""
REQUEST = Bucket("request", burst=10, interval=30)
EXPORT = Bucket("export", burst=5, interval=60)
LOGIN_TOKENS = Bucket("login-tokens", burst=60, interval=1)
LOGIN_USES = Bucket("login-uses", burst=100, interval=0.2)
LOGIN_ASKED = Bucket("login-asked", burst=10, interval=6)
LOGIN_CODE = Bucket("login-code", burst=5, interval=60)
TENANT_CREDENTIALS = Bucket("tenant-credentials", burst=3, interval=60)


class _Local:
    """The same buckets in this process' memory, bounded: only those that are full again are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[Level, float]] = OrderedDict()
        """By key: the level, and when the bucket is full again."""

    def take(self, key: str, bucket: Bucket, now: float, taken: int = 1) -> tuple[float, int]:
        limit = bucket.tokens
        with self._lock:
            before, _ = self._levels.pop(key, (None, now))
            tokens = limit.tokens(before, now)
            wait = limit.wait(tokens, taken)
            level = limit.take(tokens, 0 if wait else taken, now)
            while len(self._levels) >= _LOCAL_KEYS:
                oldest = next(iter(self._levels))
                if self._levels[oldest][1] > now:
                    # A stranger may invent keys without end: refusing new ones is safer than forgetting used ones.
                    return bucket.interval, 0
                del self._levels[oldest]
            self._levels[key] = (level, limit.full_at(level))
            return wait, int(level.tokens)


_local = _Local()
_client: redis.Redis | None = None
_script: Any = None
_away_until = 0.0


def take(bucket: Bucket, key: object) -> None:
    """Take one token of ``key``'s bucket; raises ``TooManyRequests`` with whole seconds in ``retry_after``."""
    require(wait_for(bucket, key))


def require(wait: float) -> None:
    """Raise ``TooManyRequests`` for who has to wait."""
    if wait > 0:
        seconds = max(1, int(wait + 0.999))
        raise TooManyRequests(f"Too many requests; try again in {seconds} s.", retry_after=seconds)


def refund(bucket: Bucket, key: object) -> None:
    """Undo one ``take``: what it was taken for is not to count."""
    _move(bucket, key, -1)


def wait_for(bucket: Bucket, key: object) -> float:
    """Take one token and return 0, or return the seconds after which one will be there."""
    return _move(bucket, key, 1)[0]


def wait_and_left(bucket: Bucket, key: object) -> tuple[float, int]:
    """The same, and how many tokens are left."""
    return _move(bucket, key, 1)


def _move(bucket: Bucket, key: object, taken: int) -> tuple[float, int]:
    global _client, _script, _away_until  # noqa: PLW0603 (one connection pool a process)
    # With the first token: no command need load the client before, and most take none.
    import redis

    name = f"tenantry:bucket:{bucket.name}:{key}"
    now = time.monotonic()
    if now >= _away_until:
        try:
            if _script is None:
                _client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5)
                _script = _client.register_script(_SCRIPT)
            wait, left = _script(keys=[name], args=[bucket.burst, bucket.tokens.qps / 1000, taken])
            return float(wait) / 1000, int(left)
        except redis.RedisError:
            _away_until = now + _RETRY_REDIS_AFTER
    return _local.take(name, bucket, now, taken)
