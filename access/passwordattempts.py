"""How often somebody may say a wrong password to an API server (API-34): by address, and by user.

Only what was wrong counts. Who has been right from an address is counted there alone: whoever guesses elsewhere cannot lock
that user out. Each process counts for itself; what it remembers is bounded.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from audit.addresses import network_of
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import Level, TokenBucket

ADDRESS: Final = TokenBucket(qps=1 / 30, burst=10)
USER: Final = TokenBucket(qps=1 / 30, burst=100)
"""Against guessing from many addresses. Reached only by those whose addresses are not refused themselves."""

KNOWN: Final = TokenBucket(qps=1 / 30, burst=10)
"""Of a user at an address from which the password was right before."""

REMEMBERED: Final = 10_000
"""Addresses, users, and users at addresses: of each as many, those asked about last."""

_REFUSED: Final = "too many wrong passwords: try again later, or use a certificate or a token"


class _Counts:
    """The levels of one bucket, by what it is of."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._levels: OrderedDict[tuple[str, bytes], Level] = OrderedDict()

    def wait(self, key: tuple[str, bytes], now: float) -> float:
        """The seconds until one more may be wrong; 0 when it may now."""
        return self._bucket.wait(self._bucket.tokens(self._levels.get(key), now))

    def failed(self, key: tuple[str, bytes], now: float) -> None:
        """One was."""
        level = self._levels.pop(key, None)
        self._levels[key] = self._bucket.take(self._bucket.tokens(level, now), 1, now)
        if len(self._levels) > REMEMBERED:
            self._levels.popitem(last=False)


class PasswordAttempts:
    """What has been said of users in vain. Use it in one event loop, without waiting between ``require_room`` and the rest."""

    def __init__(self) -> None:
        self._addresses, self._users, self._at_known = _Counts(ADDRESS), _Counts(USER), _Counts(KNOWN)
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def require_room(self, address: str, user: bytes, now: float) -> None:
        """Before anything is compared. Raises ``TooManyRequests`` whether or not the password is right."""
        wait = max(counts.wait(key, now) for counts, key in self._concerned(address, user))
        if wait > 0:
            raise TooManyRequests(_REFUSED, retry_after=math.ceil(wait))

    def failed(self, address: str, user: bytes, now: float) -> None:
        """The password was."""
        for counts, key in self._concerned(address, user):
            counts.failed(key, now)

    def succeeded(self, address: str, user: bytes) -> None:
        """The password was."""
        key = network_of(address), user
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _concerned(self, address: str, user: bytes) -> tuple[tuple[_Counts, tuple[str, bytes]], ...]:
        network = network_of(address)
        if (network, user) in self._known:
            return ((self._at_known, (network, user)),)
        return (self._addresses, (network, b"")), (self._users, ("", user))
