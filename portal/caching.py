"""What is asked for often and dear to find out, kept in Redis for a while; found out anew where Redis is away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import redis
from django.core.cache import cache

_T = TypeVar("_T")


def cached(key: str, seconds: int, find: Callable[[], _T]) -> _T:
    """What ``find`` says, or has said within the last ``seconds``. ``None`` is asked again."""
    try:
        known: _T | None = cache.get(key)
    except redis.RedisError:
        return find()
    if known is not None:
        return known
    found = find()
    if found is not None:
        with suppress(redis.RedisError):
            cache.set(key, found, seconds)
    return found
