"""Writers of one object, or of what one quota counts, take turns instead of fighting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Final

from kube.requests.logicalclusters import space_of, tenant_of
from store.types import Key

_NO_TURN: Final = contextlib.nullcontext()


class _Lock(asyncio.Lock):
    """A lock, and how many hold it or want it."""

    users = 0


class _Turn(contextlib.AbstractAsyncContextManager[None]):
    """The turn of one writer; of the lock nothing is left when nobody wants it any longer."""

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


class KeyedLocks:
    """Locks by name that exist only while somebody holds or wants them.

    They make writers of this process line up; between processes the store's preconditions decide. Whoever needs
    several takes the object's first, then the namespace's, then the tenant's.
    """

    def __init__(self) -> None:
        self._wanted: set[tuple[str, ...]] = set()
        self._locks: dict[Hashable, _Lock] = {}

    def line_up(self, space: str, namespace: str, *, wanted: bool) -> None:
        """Let the writers of a namespace take turns from now on, or no longer."""
        if wanted:
            self._wanted.add((space, namespace))
        else:
            self._wanted.discard((space, namespace))

    def line_up_tenant(self, space: str, group: str, resource: str) -> None:
        """Let those who make or remove objects of a resource in a tenant's space, or below it, take turns from now on."""
        self._wanted.add((space, group, resource))

    def of_quotas(self, key: Key, *, updates: bool = False) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time where turns are wanted; no waiting elsewhere. Most updates change nothing that counts."""
        if not self._wanted:
            return _NO_TURN
        tenant = space_of(tenant_of(key.space))
        names: list[Hashable] = []
        if (key.space, key.namespace) in self._wanted:
            names.append((key.space, key.namespace))
        if not updates and (tenant, key.group, key.resource) in self._wanted:
            names.append((tenant,))
        return self._turns(names) if names else _NO_TURN

    @contextlib.asynccontextmanager
    async def _turns(self, names: Sequence[Hashable]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as turns:
            for name in names:
                await turns.enter_async_context(_Turn(self._locks, name))
            yield

    def of_tenant_quota(self, space: str) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time of what is used of the quota in a tenant's space; whoever holds it takes no other turn."""
        return _Turn(self._locks, (space,))

    def of_object(self, key: Key) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time."""
        return _Turn(self._locks, key)
