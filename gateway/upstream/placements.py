"""Where the objects of a namespace live: in the store, or on a registered cluster (GW18).

A Namespace says so itself, by labels that the product alone writes; they are read from the store's cached objects. A
placement means the workspace by its UID: whatever comes later under the same name is another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.http.messages import ScopeFilter
from kube.authorization.rbac import GROUP
from kube.objects.publications import NAMESPACES
from kube.requests.logicalclusters import is_tenant_space
from store.interface import Store
from store.types import AllSpaces, Event, EventType, Key, Range, Stored
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL, tier_of_namespace

_MARK: Final = CLUSTER_LABEL.encode()
_REMEMBERED: Final = 16_384

_PAGE: Final = 500
"""Namespaces that are looked at before others get a turn."""

_KEPT: Final = frozenset({(GROUP, "roles"), (GROUP, "rolebindings")})
"""What the store keeps of placed namespaces for deciding by (``placedrights``): the objects themselves are on the cluster."""

ACTIVE: Final = "Active"
SUSPENDED: Final = "Suspended"
TERMINATING: Final = "Terminating"
"""Phases of a placed namespace: in use, closed to everybody, and on its way out."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One placed namespace: the workspace (its UID), the cluster's name, and the namespace, the same in both worlds.

    ``space`` is the logical cluster that shows it, ``phase`` the Namespace object's. ``tier`` is the workspace's, empty where
    it has none: with another one it is the same placement.
    """

    workspace: str
    cluster: str
    space: str
    namespace: str
    phase: str
    tier: str = field(default="", compare=False)

    @property
    def is_active(self) -> bool:
        """Whether it is in use."""
        return self.phase == ACTIVE

    @property
    def is_closed(self) -> bool:
        """Whether nobody may see what is in it."""
        return self.phase == SUSPENDED


class Placements:
    """Placements by space and namespace, from whatever the store holds in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], tuple[Stored, Placement | None]] = {}
        self._kept: set[tuple[str, str]] = set()
        """Namespaces, by their spaces, that are not placed; of which nothing has been heard since that was seen."""
        self._placed: dict[tuple[str, str], Placement] = {}
        """Those that are, of all that was learnt and heard of: as many as there are workspaces on clusters."""
        self._learnt: set[str | None] = set()
        """The spaces of which those are all that are placed; with ``None`` among them, every space."""
        self._come: Counter[str] = Counter()
        self.on_come: Callable[[str], None] = lambda _: None
        """Called with the space in which a placed namespace has come into use."""
        store.subscribe(self._on_events, lost=self._forget, resources=[NAMESPACES])

    def is_kept(self, space: str, namespace: str) -> bool:
        """Whether a namespace is known, without asking, to be there and not to be placed: nearly every request is for one."""
        return (space, namespace) in self._kept and self._store.healthy

    async def of(self, space: str, namespace: str) -> Placement | None:
        """The placement of a namespace; ``None`` for a stored one, and for one that is not there.

        A namespace that this process does not know is asked for: another process may just have made it.
        """
        if not namespace or not is_tenant_space(space):
            return None
        known = self._known.get((space, namespace))
        if known is not None and self._store.peek(known[0].key) is known[0]:
            return known[1]
        key = Key(space, "", "namespaces", "", namespace)
        stored = self._store.peek(key) or await self._store.get(key, cached=True) or await self._store.get(key)
        return None if stored is None else self._remembered(stored)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            space, group, resource, _, name = event.key
            if (group, resource) == NAMESPACES:
                self._kept.discard((space, name))
                self._known.pop((space, name), None)
                placement = None if event.type is EventType.DELETED else placement_in(event.data, event.key)
                self._know((space, name), placement)
                if _comes(event):
                    self._come[space] += 1
                    self.on_come(space)

    def _know(self, place: tuple[str, str], placement: Placement | None) -> None:
        if placement is None:
            self._placed.pop(place, None)
        else:
            self._placed[place] = placement

    def _forget(self) -> None:
        self._kept.clear()
        self._known.clear()
        self._placed.clear()
        # Whoever is learning does not continue in another history.
        self._learnt = set()

    def _remembered(self, stored: Stored) -> Placement | None:
        place = (stored.key.space, stored.key.name)
        known = self._known.get(place)
        if known is not None and known[0] is stored:
            return known[1]
        placement = placement_in(stored.data, stored.key)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._kept.clear()
        self._known[place] = (stored, placement)
        if placement is None:
            self._kept.add(place)
        return placement

    def come(self, space: str | None) -> int:
        """How many placed namespaces of a space have come into use since the process began, whatever became of them.

        With ``None`` of all spaces.
        """
        return self._come.total() if space is None else self._come[space]

    async def clusters_in_use(self) -> set[str]:
        """The clusters on which any space has a namespace in use, as of what was committed before."""
        await self._learn(None)
        # A reading that waits for what others have written: it has been heard of then.
        await self._store.list(AllSpaces(*NAMESPACES), limit=1)
        return {placement.cluster for placement in self._placed.values() if placement.is_active}

    async def shown(
        self, kind: tuple[str, str], among: ScopeFilter | None, *, spaces: Sequence[str] | None
    ) -> ScopeFilter | None:
        """What of a group and plural the store's own lists and watches show, of what they may show anyway.

        Of these spaces, ``None`` for all. Who filters asks nobody: what is placed is learnt before, once, and heard of from
        then on.
        """
        if kind not in _KEPT:
            return among
        for space in {None} if spaces is None else {*spaces} - self._learnt:
            await self._learn(space)
        return _OutsidePlaced(self, among)

    async def _learn(self, space: str | None) -> None:
        """Find what is placed in a space, ``None`` for all of them, unless that has been found."""
        while self._learnt.isdisjoint((space, None)):
            learnt, after = self._learnt, None
            if len(learnt) >= _REMEMBERED:
                space = None
            namespaces = AllSpaces(*NAMESPACES) if space is None else Range(space, *NAMESPACES)
            while learnt is self._learnt:
                # A page is as this process has heard it at this moment, and taken in before it hears more.
                page = await self._store.list(namespaces, cached=True, after=after, limit=_PAGE)
                for stored in page.items:
                    self._know((stored.key.space, stored.key.name), placement_in(stored.data, stored.key))
                await asyncio.sleep(0)
                if not page.remaining:
                    learnt.add(space)
                    break
                last = page.items[-1].key
                after = (last.space, last.namespace, last.name)

    def is_placed(self, space: str, namespace: str) -> bool:
        """Whether a namespace is placed, as far as this process knows without asking."""
        # The store does not hold everything in memory; whatever changes a namespace is heard of.
        stored = self._store.peek(Key(space, "", "namespaces", "", namespace))
        return (space, namespace) in self._placed if stored is None else self._remembered(stored) is not None

    async def all_in_space(self, space: str) -> Sequence[Placement]:
        """The placements of a space, those that are closed or on their way too."""
        listing = await self._store.list(Range(space, "", "namespaces"))
        found = (self._remembered(stored) for stored in listing.items if _MARK in stored.data)
        return [placement for placement in found if placement is not None]

    async def in_space(self, space: str) -> tuple[Sequence[Placement], int]:
        """The placements of a space that are in use, by the names of their namespaces, and at which revision."""
        if not is_tenant_space(space):
            return (), 0
        listing = await self._store.list(Range(space, "", "namespaces"))
        found = (self._remembered(stored) for stored in listing.items if _MARK in stored.data)
        return [placement for placement in found if placement is not None and placement.is_active], listing.revision


def _comes(event: Event) -> bool:
    """Whether a placed namespace is in use with this and was not before."""
    was, now = (_is_used(data, event.key) for data in (event.previous, event.data))
    return now and not was and event.type is not EventType.DELETED


def _is_used(data: bytes | None, key: Key) -> bool:
    placement = placement_in(data, key) if data is not None else None
    return placement is not None and placement.is_active


@dataclass(frozen=True, slots=True)
class _OutsidePlaced:
    """Every object but those in placed namespaces: a ``ScopeFilter``."""

    placements: Placements
    among: ScopeFilter | None

    def places(self, key: Key) -> bool:
        """Whether the object can be one of them, by its key alone."""
        placed = self.placements.is_placed(key.space, key.namespace)
        return not placed and (self.among is None or self.among.places(key))

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Whether it is one of them."""
        return self.places(key) and (self.among is None or self.among.includes(key, labels))

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        return self.among is None or self.among.by_key

    @property
    def spaces(self) -> Sequence[str] | None:
        """Of what is asked across spaces, those in which they are."""
        return None if self.among is None else self.among.spaces


def placement_in(data: bytes, key: Key) -> Placement | None:
    """What a Namespace, as it is kept, says of its placement; ``None`` for a stored one."""
    if _MARK not in data:
        return None
    body = orjson.loads(data)
    cluster, workspace = cluster_of(body), workspace_of(body)
    if not cluster or not workspace:
        return None
    phase, tier = str(body["status"]["phase"]), tier_of_namespace(body, None)
    return Placement(workspace, cluster, key.space, key.name, phase, tier)


def cluster_of(namespace: Mapping[str, Any]) -> str | None:
    """The cluster that a Namespace names, ``None`` where it names none."""
    found: str | None = (namespace["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
    return found


def workspace_of(namespace: Mapping[str, Any]) -> str:
    """The UID of the workspace that a Namespace shows, empty for none."""
    return str((namespace["metadata"].get("labels") or {}).get(WORKSPACE_LABEL) or "")
