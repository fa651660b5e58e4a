"""Who wants the same takes turns: locks by name that exist only while somebody holds or wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager


class _Lock(asyncio.Lock):
    """A lock, and how many hold it or want it."""

    users = 0


class _Turn(AbstractAsyncContextManager[None]):
    """The turn of one; of the lock nothing is left when nobody wants it any longer."""

    __slots__ = ("_lock", "_locks", "_name")

    def __init__(self, locks: dict[Hashable, _Lock], name: Hashable) -> None:
        self._locks = locks
        self._name = name

    async def __aenter__(self) -> None:
        # Nothing is awaited between the look and the entry: two who come together find the same lock.
        lock = self._locks.get(self._name)
        if lock is None:
            lock = self._locks[self._name] = _Lock()
        self._lock = lock
        lock.users += 1
        try:
            await lock.acquire()
        except BaseException:
            # Whoever gives up in the line has not got it, and must not keep its name alive.
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._lock.users -= 1
        if not self._lock.users:
            del self._locks[self._name]


class Turns:
    """Those of one event loop."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}

    def of(self, name: Hashable) -> AbstractAsyncContextManager[None]:
        """The turn of one who wants what has this name: first come, first served."""
        return _Turn(self._locks, name)
