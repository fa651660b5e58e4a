"""Writers of one object, or of what one quota counts, take turns instead of fighting."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Final

from kube.quota.tenantquotas import TENANT_QUOTAS
from kube.requests.logicalclusters import space_of, tenant_of
from store.turns import Turns
from store.types import Event, EventType, Key

_NO_TURN: Final = contextlib.nullcontext()
_RESOURCE_QUOTAS: Final = ("", "resourcequotas")

_REMEMBERED: Final = 16_384
"""Namespaces, and tenants, of which is known that they have quotas: the next write to one that was forgotten says it again."""


class KeyedLocks:
    """They make writers of this process line up; between processes the store's preconditions decide.

    Whoever needs several takes the object's first, then the namespace's, then the tenant's. Where a quota is, it is told by
    who counts in it, and holds until one of the place goes.
    """

    resources: Final = (_RESOURCE_QUOTAS, TENANT_QUOTAS)
    """What ``on_events`` looks at."""

    def __init__(self) -> None:
        self._namespaces: set[tuple[str, str]] = set()
        self._counted: dict[str, set[tuple[str, str]]] = {}
        """The resources that quotas of tenants count, by the tenants' spaces."""
        self._turns = Turns()

    def line_up(self, space: str, namespace: str) -> None:
        """Let the writers of a namespace, which has a quota, take turns from now on."""
        if len(self._namespaces) >= _REMEMBERED:
            self._namespaces.clear()
        self._namespaces.add((space, namespace))

    def line_up_tenant(self, space: str, group: str, resource: str) -> None:
        """Let those who make or remove objects of a resource in a tenant's space, or below it, take turns from now on."""
        counted = self._counted.get(space)
        if counted is None:
            if len(self._counted) >= _REMEMBERED:
                self._counted.clear()
            counted = self._counted[space] = set()
        counted.add((group, resource))

    def on_events(self, events: Sequence[Event]) -> None:
        """Forget where a quota has gone."""
        for event in events:
            space, group, resource, namespace, _ = event.key
            if event.type is not EventType.DELETED:
                continue
            if (group, resource) == _RESOURCE_QUOTAS:
                self._namespaces.discard((space, namespace))
            elif (group, resource) == TENANT_QUOTAS:
                self._counted.pop(space, None)

    def forget(self) -> None:
        """The store's history is another one now."""
        self._namespaces.clear()
        self._counted.clear()

    def of_quotas(self, key: Key, *, updates: bool = False) -> contextlib.AbstractAsyncContextManager[None]:
        """One writer at a time where turns are wanted; no waiting elsewhere. Most updates change nothing that counts."""
        names: list[Hashable] = []
        if (key.space, key.namespace) in self._namespaces:
            names.append((key.space, key.namespace))
        if not updates and self._counted:
            tenant = space_of(tenant_of(key.space))
            if (key.group, key.resource) in self._counted.get(tenant, ()):
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
