"""Writers of one object, or of one namespace with a quota, take turns instead of fighting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

from store.types import Key


class KeyedLocks:
    """Locks by name that exist only while somebody holds or wants them.

    They make writers of this process line up; between processes the store's preconditions decide. Whoever needs both
    takes the object's before the namespace's.
    """

    def __init__(self) -> None:
        self._wanted: set[tuple[str, str]] = set()
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def line_up(self, space: str, namespace: str, *, wanted: bool) -> None:
        """Let the writers of a namespace take turns from now on, or no longer."""
        if wanted:
            self._wanted.add((space, namespace))
        else:
            self._wanted.discard((space, namespace))

    @contextlib.asynccontextmanager
    async def of_namespace(self, space: str, namespace: str) -> AsyncIterator[None]:
        """One writer at a time where turns are wanted; no waiting elsewhere."""
        if (space, namespace) not in self._wanted:
            yield
            return
        async with self._turn((space, namespace)):
            yield

    def of_object(self, key: Key) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time."""
        return self._turn(key)

    @contextlib.asynccontextmanager
    async def _turn(self, name: Hashable) -> AsyncIterator[None]:
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
