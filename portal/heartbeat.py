"""How long ago beat woke a worker that did what it was woken for: by Redis' clock alone, for those of hosts need not agree."""

from __future__ import annotations

from typing import Any, Final

import redis
from django.conf import settings

LONGEST: Final = 3600
"""Seconds; what is longer ago is told as this."""
_KEY: Final = "tenantry:heartbeat"


def heartbeat_record() -> None:
    """Say that somebody works. Raises ``redis.RedisError``."""
    with _client() as client:
        client.set(_KEY, 1, ex=LONGEST)


def heartbeat_age() -> float:
    """Seconds since somebody said so, ``LONGEST`` at most. Raises ``redis.RedisError``."""
    with _client() as client:
        left: Any = client.pttl(_KEY)
    return float(LONGEST - max(left, 0) / 1000)


def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
