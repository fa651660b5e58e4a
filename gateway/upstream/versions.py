"""Resource versions of what is read from several places at once: one number for the version of each of them (GW4).

The number only grows, over restarts as well: it begins with the time. What it stands for is known to this process and
forgotten when there are too many, those of whoever has the most first, so that no cluster's many events cost another
tenant's informers anything: whoever comes with one that is not known is told that it has expired, and lists anew.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

LOWEST: Final = 10**15
"""Every number is higher, and every revision of the store lower: neither is taken for the other."""

EXPIRY_SECONDS: Final = 60.0
"""How soon after a place has called its versions expired it is not believed again."""

_PARTS_MAX: Final = 100_000
"""Versions that are remembered, each place counted."""

Scope = tuple[str, str, str]
"""What the numbers are about: logical cluster, group, resource."""

Parts = Mapping[str, str]
"""The version of each place by its name."""


class MergedVersions:
    """The numbers that this process has given; ``now`` gives Unix seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._last = LOWEST
        self._known: dict[str, OrderedDict[int, tuple[Scope, Parts]]] = {}
        """By logical cluster: whoever has much that changes forgets its own first."""
        self._newest: dict[Scope, int] = {}
        self._sizes: Counter[str] = Counter()
        self._size = 0
        self._expired: dict[tuple[Scope, str], float] = {}

    def number(self, scope: Scope, parts: Parts) -> str:
        """The number for these versions, the last one given where nothing has changed since."""
        known = self._known.setdefault(scope[0], OrderedDict())
        newest = self._newest.get(scope)
        if newest is not None and newest in known and known[newest][1] == parts:
            known.move_to_end(newest)
            return str(newest)
        self._last = number = max(self._last + 1, int(self._now() * 1_000_000))
        known[number] = scope, dict(parts)
        self._newest[scope] = number
        self._sizes[scope[0]] += len(parts)
        self._size += len(parts)
        if self._size > _PARTS_MAX:
            self._make_room(number)
        return str(number)

    def _make_room(self, number: int) -> None:
        """For more than one: who has the most is not looked for with each."""
        while self._size > _PARTS_MAX * 9 // 10 and self._forget(self._sizes.most_common(1)[0][0], but=number):
            pass

    def _forget(self, of: str, *, but: int) -> bool:
        """Forget the oldest number of a logical cluster; whether it was another one than ``but``."""
        known = self._known[of]
        if next(iter(known)) == but:
            return False
        forgotten, (scope, parts) = known.popitem(last=False)
        self._sizes[of] -= len(parts)
        self._size -= len(parts)
        if self._newest.get(scope) == forgotten:
            del self._newest[scope]
        if not known:
            del self._known[of], self._sizes[of]
        return True

    def parts(self, scope: Scope, version: str) -> Parts | None:
        """What a number stands for, ``None`` where it is not known as one of this scope."""
        of = self._known.get(scope[0])
        known = of.get(int(version)) if of is not None and is_merged(version) else None
        return known[1] if known is not None and known[0] == scope else None

    def expire(self, scope: Scope, name: str, given: float) -> bool:
        """Whether a place is believed that says that a version has expired; that was given at ``given``, in Unix seconds.

        By all who have theirs from before it said so first. Those who have got others since are not told for a while: one
        that calls whatever it gives expired would else end what everybody else gives, again and again.
        """
        now, said = self._now(), self._expired.get((scope, name), float("-inf"))
        if given <= said:
            return True
        if now - said < EXPIRY_SECONDS:
            return False
        self._expired = {key: when for key, when in self._expired.items() if now - when < EXPIRY_SECONDS}
        self._expired[scope, name] = now
        # Who lists now gets another number, though nothing has changed.
        self._newest.pop(scope, None)
        return True


def given_at(number: str) -> float:
    """When a number was given, in Unix seconds: in nearly all cases exactly then, and never before."""
    return int(number) / 1_000_000


def is_merged(version: str) -> bool:
    """Whether a resource version can only have been given for several places at once."""
    return version.isascii() and version.isdigit() and len(version) <= 19 and int(version) > LOWEST
