"""Whose the namespaces of each registered cluster are, in memory (GW17, GW18).

Built from the Namespace objects of all spaces when it is first asked for, and kept right by the store's log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from gateway.upstream.placements import Placement, placement_in
from kube.requests.logicalclusters import tenant_of
from store.interface import Reader
from store.types import AllSpaces, Event, EventType, Key

_NAMESPACES = ("", "namespaces")


class ClusterNamespaces:
    """Placements by cluster and namespace. Tell it of every batch of the store's log by ``on_events``."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._by_cluster: defaultdict[str, dict[str, Placement]] = defaultdict(dict)
        self._by_key: dict[Key, Placement] = {}
        self._turn = asyncio.Lock()
        self._missed: list[Event] = []
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
        """Take in what happens to Namespaces."""
        concerned = [event for event in events if event.key[1:3] == _NAMESPACES]
        if not self._loaded:
            self._missed += concerned
            return
        for event in concerned:
            self._put(event.key, None if event.type is EventType.DELETED else placement_in(event.data, event.key))

    def forget(self) -> None:
        """Read everything anew: the log does not continue where this process stopped."""
        self._loaded = False

    async def _load(self) -> None:
        async with self._turn:
            while not self._loaded:
                self._missed.clear()
                listing = await self._store.list(AllSpaces(*_NAMESPACES))
                missed, self._missed = self._missed, []
                self._by_cluster.clear()
                self._by_key.clear()
                for stored in listing.items:
                    self._put(stored.key, placement_in(stored.data, stored.key))
                self._loaded = True
                self.on_events([event for event in missed if event.revision > listing.revision])

    def _put(self, key: Key, placement: Placement | None) -> None:
        before = self._by_key.pop(key, None)
        if before is not None and self._by_cluster[before.cluster].get(before.namespace) == before:
            del self._by_cluster[before.cluster][before.namespace]
        if placement is not None:
            self._by_key[key] = placement
            self._by_cluster[placement.cluster][placement.namespace] = placement
