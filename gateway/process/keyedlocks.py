"""Writers of one object, or of what one quota counts, take turns instead of fighting."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Final

from kube.requests.logicalclusters import space_of, tenant_of
from store.turns import Turns
from store.types import Key

_NO_TURN: Final = contextlib.nullcontext()


class KeyedLocks:
    """They make writers of this process line up; between processes the store's preconditions decide.

    Whoever needs several takes the object's first, then the namespace's, then the tenant's.
    """

    def __init__(self) -> None:
        self._wanted: set[tuple[str, ...]] = set()
        self._turns = Turns()

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
        return self._all(names) if names else _NO_TURN

    @contextlib.asynccontextmanager
    async def _all(self, names: Sequence[Hashable]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as turns:
            for name in names:
                await turns.enter_async_context(self._turns.of(name))
            yield

    def of_tenant_quota(self, space: str) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time of what is used of the quota in a tenant's space; whoever holds it takes no other turn."""
        return self._turns.of((space,))

    def of_object(self, key: Key) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time."""
        return self._turns.of(key)
