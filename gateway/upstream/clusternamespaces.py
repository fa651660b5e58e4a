"""Whose the namespaces of each registered cluster are, in memory (GW17, GW18).

Built from the Namespace objects of all spaces when it is first asked for, and kept right by the store's log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.upstream.placements import Placement, placement_in
from kube.requests.logicalclusters import tenant_of
from store.interface import Reader
from store.types import AllSpaces, Event, EventType, Key

_NAMESPACES: Final = ("", "namespaces")

_PAGE: Final = 500
"""Namespaces that are looked at before others get a turn."""


class ClusterNamespaces:
    """Placements by cluster and namespace. Tell it of every batch of the store's log by ``on_events``."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._by_cluster: defaultdict[str, dict[str, Placement]] = defaultdict(dict)
        self._by_key: dict[Key, Placement] = {}
        self._turn = asyncio.Lock()
        self._loaded = False

    async def on(self, cluster: str) -> Mapping[str, Placement]:
        """The placements on a cluster by the names of their namespaces; waits only where nothing is known yet."""
        if not self._loaded:
            await self._load()
        return self._by_cluster.get(cluster, {})

    async def tenants_on(self, cluster: str) -> frozenset[str]:
        """The tenants that have a namespace on a cluster."""
        return frozenset(tenant_of(placement.space) for placement in (await self.on(cluster)).values())

    def on_events(self, events: Sequence[Event]) -> None:
        """Take in what happens to Namespaces, whatever is known of them so far."""
        for event in events:
            if event.key[1:3] == _NAMESPACES:
                self._put(event.key, None if event.type is EventType.DELETED else placement_in(event.data, event.key))

    def forget(self) -> None:
        """Read everything anew: the log does not continue where this process stopped."""
        self._loaded = False
        self._by_cluster.clear()
        # Whoever is loading does not continue in another history.
        self._by_key = {}

    async def _load(self) -> None:
        async with self._turn:
            while not self._loaded:
                history, after = self._by_key, None
                while history is self._by_key and not self._loaded:
                    # A page is as this process has heard it at this moment, and taken in before it hears more.
                    page = await self._store.list(
                        AllSpaces(*_NAMESPACES), cached=after is not None, after=after, limit=_PAGE
                    )
                    for stored in page.items:
                        self._put(stored.key, placement_in(stored.data, stored.key))
                    if page.remaining:
                        last = page.items[-1].key
                        after = (last.space, last.namespace, last.name)
                        await asyncio.sleep(0)
                    else:
                        self._loaded = history is self._by_key

    def _put(self, key: Key, placement: Placement | None) -> None:
        before = self._by_key.pop(key, None)
        if before is not None and self._by_cluster[before.cluster].get(before.namespace) == before:
            del self._by_cluster[before.cluster][before.namespace]
        if placement is not None:
            self._by_key[key] = placement
            self._by_cluster[placement.cluster][placement.namespace] = placement
