"""Caches of what others ask, bounded in bytes and not by the number of questions alone (DOS-03)."""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K")
V = TypeVar("V")

_PARTS: Final = 64


class CacheBudget:
    """The bytes that caches share: where one finds none left, all are emptied, and what is asked next is worked out anew.

    So it does not matter who asks: one tenant's questions take no memory beside another's.
    """

    def __init__(self, capacity: int, *, parts: int = _PARTS) -> None:
        self._capacity = capacity
        self._parts = parts
        self._taken = 0
        self._caches: WeakValueDictionary[int, Cache[Any, Any]] = WeakValueDictionary()

    @property
    def taken(self) -> int:
        """The bytes that are kept; those of a cache that is gone count until all are emptied."""
        return self._taken

    def take(self, cache: Cache[Any, Any], weight: int) -> bool:
        """Whether ``cache`` may keep so many bytes more: not where ``parts`` of that size would be all there is."""
        if weight > self._capacity // self._parts:
            return False
        if self._taken + weight > self._capacity:
            self.empty()
        self._taken += weight
        self._caches[id(cache)] = cache
        return True

    def empty(self) -> None:
        """Empty all caches."""
        for cache in list(self._caches.values()):
            cache.clear()
        self._caches.clear()
        self._taken = 0


class Cache(dict[K, V]):
    """Answers by their questions, within a budget. Read as any dictionary, it is written by ``keep`` alone."""

    __slots__ = ("__weakref__", "_budget")

    def __init__(self, budget: CacheBudget) -> None:
        super().__init__()
        self._budget = budget

    def keep(self, question: K, answer: V, weight: int) -> None:
        """Remember, if the budget allows it; ``weight`` is about how many bytes question and answer take."""
        if self._budget.take(self, weight):
            self[question] = answer


def weight_of(texts: Iterable[str | bytes]) -> int:
    """The bytes that texts take."""
    return sum(map(getsizeof, texts))
