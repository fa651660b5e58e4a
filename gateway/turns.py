"""Writers of one namespace take turns where they would otherwise fight over the same quota object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Locks by name that exist only while somebody holds or wants them.

    They make writers of this process line up; between processes the store's preconditions decide.
    """

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, str], bool] = {}
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    def line_up(self, space: str, namespace: str, *, wanted: bool) -> None:
        """Let the writers of a namespace take turns from now on, or no longer."""
        if wanted:
            self._wanted[space, namespace] = True
        else:
            self._wanted.pop((space, namespace), None)

    @asynccontextmanager
    async def of(self, space: str, namespace: str) -> AsyncIterator[None]:
        """One writer at a time where turns are wanted; no waiting elsewhere."""
        key = (space, namespace)
        if key not in self._wanted:
            yield
            return
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
