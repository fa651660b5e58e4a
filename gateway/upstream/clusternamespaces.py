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
        self._by_tenant: dict[tuple[str, str], dict[str, Placement]] = {}
        """The same by cluster and tenant: what is asked about one does not go through all that the cluster has."""
        self._by_key: dict[Key, Placement] = {}
        self._turn = asyncio.Lock()
        self._loaded = False

    async def on(self, cluster: str) -> Mapping[str, Placement]:
        """The placements on a cluster by the names of their namespaces; waits only where nothing is known yet."""
        if not self._loaded:
            await self._load()
        return self._by_cluster.get(cluster, {})

    async def of(self, tenant: str, cluster: str) -> Mapping[str, Placement]:
        """Those of ``on`` that are in spaces of one tenant."""
        if not self._loaded:
            await self._load()
        return self._by_tenant.get((cluster, tenant), {})

    def on_events(self, events: Sequence[Event]) -> None:
        """Take in what happens to Namespaces, whatever is known of them so far."""
        for event in events:
            if event.key[1:3] == _NAMESPACES:
                self._put(event.key, None if event.type is EventType.DELETED else placement_in(event.data, event.key))

    def forget(self) -> None:
        """Read everything anew: the log does not continue where this process stopped."""
        self._loaded = False
        self._by_cluster.clear()
        self._by_tenant.clear()
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
            self._take_out(before)
        if placement is not None:
            self._by_key[key] = placement
            there = self._by_cluster[placement.cluster].get(placement.namespace)
            if there is not None:
                # Of another space, as it was before this was placed there.
                self._take_out(there)
            self._by_cluster[placement.cluster][placement.namespace] = placement
            self._by_tenant.setdefault(_whose(placement), {})[placement.namespace] = placement

    def _take_out(self, placement: Placement) -> None:
        del self._by_cluster[placement.cluster][placement.namespace]
        whose = _whose(placement)
        del self._by_tenant[whose][placement.namespace]
        if not self._by_tenant[whose]:
            del self._by_tenant[whose]


def _whose(placement: Placement) -> tuple[str, str]:
    return placement.cluster, tenant_of(placement.space)
