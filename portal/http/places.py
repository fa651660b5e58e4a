"""Places: how much may be at work, or held, at a time, by whom and of all (DOS-03).

A pace bounds how often somebody asks, and not how much of it is under way: what is slow adds up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Final

from audit.recorder import Actor
from kube.requests.status import ServiceUnavailable, TooManyRequests

Key = tuple[str, object]
"""A kind of bound, and whose it is."""

LARGE: Final = {"large answers": 6, "large answers for operators": 4, "person": 2, "tenant": 3}
"""Files and exports of one process that are made or sent at a time: each holds megabytes, or a connection of the database."""

_RETRY_AFTER: Final = 2


class Places:
    """So many of each kind for whoever the key names: taken whole or not at all, in threads and in event loops."""

    def __init__(self, most: Mapping[str, int]) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._taken: Counter[Key] = Counter()
        self._waiting: dict[asyncio.Future[ExitStack], tuple[Key, ...]] = {}

    def full(self, *keys: Key) -> list[str]:
        """The kinds of which there is no place."""
        with self._lock:
            return self._full(keys)

    def take(self, *keys: Key) -> ExitStack | None:
        """A place, which its end gives back, or ``None`` where there is none."""
        with self._lock:
            if self._full(keys):
                return None
            self._taken.update(keys)
        place = ExitStack()
        place.callback(self._give_back, keys)
        return place

    async def wait(self, *keys: Key, seconds: float) -> ExitStack | None:
        """The same, waiting so long for one. All that are waited for are given back in the same event loop."""
        place = self.take(*keys)
        if place is not None:
            return place
        waiter: asyncio.Future[ExitStack] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = keys
        try:
            await asyncio.wait([waiter], timeout=seconds)
        except asyncio.CancelledError:
            if waiter.done():
                waiter.result().close()
            raise
        finally:
            del self._waiting[waiter]
        return waiter.result() if waiter.done() else None

    def _full(self, keys: tuple[Key, ...]) -> list[str]:
        return [key[0] for key in keys if self._taken[key] >= self._most[key[0]]]

    def _give_back(self, keys: tuple[Key, ...]) -> None:
        with self._lock:
            self._taken.subtract(keys)
            self._taken += Counter()  # without those of nobody
        # Who has waited longest comes first, of those for whom there is a place now.
        for waiter, wanted in list(self._waiting.items()):
            if not waiter.done() and (place := self.take(*wanted)) is not None:
                waiter.set_result(place)


_large: Final = Places(LARGE)
until_answered: Final[ContextVar[ExitStack | None]] = ContextVar("until_answered", default=None)
"""What ends once the answer that is being made was sent, or nobody is there to take it; none where nobody is served."""


def require_large(actor: Actor, tenant: str = "") -> None:
    """Take a place for an answer that is large, or long in being sent, until it was; ``tenant`` is whose it is about.

    Comes before whatever it costs. Raises ``TooManyRequests`` where the person or the tenant has its share,
    ``ServiceUnavailable`` where others have all.
    """
    answered = until_answered.get()
    if answered is None:
        return
    keys: list[Key] = [("person", actor.user_id or actor.name)]
    keys.append(("large answers for operators" if actor.operator else "large answers", ""))
    if tenant and not actor.sees_all:
        keys.append(("tenant", tenant))
    place = _large.take(*keys)
    if place is not None:
        answered.enter_context(place)
    elif {"person", "tenant"}.intersection(_large.full(*keys)):
        raise TooManyRequests(
            "Other files are being sent to you, or to your tenant: wait for them.", retry_after=_RETRY_AFTER
        )
    else:
        raise ServiceUnavailable("Other files are being sent; try again in a moment.", retry_after=_RETRY_AFTER)
