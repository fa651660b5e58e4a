"""What CRDs add to the catalogs of their spaces (TS10, TS11, TS12)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from gateway.resources.kinds import RULE, Catalogs, definitions
from kube.customresources.definitions import CRDS, is_established, resource_of
from kube.kinds.builtins import BUILTINS, TENANT_BUILTINS
from kube.kinds.resources import Catalog, Resource, parse_api_version
from kube.objects.publications import PUBLISHED
from kube.requests.decoding import weight
from kube.requests.logicalclusters import BOOTSTRAP, ROOT
from store.interface import Store
from store.pace import together
from store.types import AllSpaces, Event, EventType, Range

logger = logging.getLogger(__name__)

MAX_SPACES: Final = 512
MAX_RESOURCES: Final = 10_000
"""Spaces, and resources of them all, that are held ready; the least recently used are built again when needed."""
_PAGE: Final = 200
_EXPRESSION: Final = re.compile(rb'"(?:rule|messageExpression)":"((?:[^"\\]|\\.)*+)"')
"""As the store writes it: definitions have been read and written again."""
_LONG: Final = 1_000
_LONG_RULE: Final = 10_000
"""The letters of a rule that is compiled beside the loop, and what its kind counts for then."""


class Definition(NamedTuple):
    """What is remembered of every established CRD of every space: enough to know which objects are its."""

    uid: str
    group: str
    kind: str
    plural: str
    namespaced: bool
    versions: tuple[str, ...]

    @property
    def place(self) -> str:
        """The resource in the store's keys (``Resource.place``)."""
        return f"{self.plural}:{self.uid}"


Redefined = Callable[[Collection[tuple[str, str]]], None]
"""Told of the (group, plural) whose definition has changed somewhere."""


class CustomResources:
    """Follows all CRDs and keeps the catalogs right.

    A space serves its own CRDs; tenants' spaces also the published ones of the system space, unless they have one of
    the same name or kind. Of spaces that nobody asks for, only the names of their CRDs are held.
    """

    def __init__(self, store: Store, catalogs: Catalogs, redefined: Redefined | None = None) -> None:
        self._store = store
        self._catalogs = catalogs
        self._redefined = redefined
        self._known: dict[str, dict[str, Definition]] = {}
        self._own: OrderedDict[str, dict[str, Resource]] = OrderedDict()
        self._due: dict[str, dict[str, bytes | None]] = {}
        """What was written and not yet read, of spaces that are held ready or being made so."""
        self._making: dict[str, asyncio.Lock] = {}
        self._published: dict[str, Resource] = {}
        self._loading = asyncio.Lock()
        self._history = 1
        """Counts the logs that did not continue one another."""
        self._learnt = 0
        """The history whose CRDs are known, all of them."""

    async def load(self) -> None:
        """Learn of all CRDs; afterwards ``on_events`` is enough, until ``on_lost``. Raises what the store raises.

        Until it is done nothing is said of custom resources: what is known of a part, or of another history, would make
        clients, and the garbage collector, believe that objects are gone which are there.
        """
        async with self._loading:
            while self._is_stale:
                await self._learn()

    @property
    def _is_stale(self) -> bool:
        return self._learnt != self._history

    async def _learn(self) -> None:
        """Take one CRD after the other, each in the turn in which it is listed: what is written meanwhile is newer."""
        history = self._history
        self._known, self._published = {}, {}
        for cluster in list(self._own):
            self._forget(cluster)
        after = None
        while True:
            listing = await self._store.list(AllSpaces(*CRDS), cached=True, after=after, limit=_PAGE)
            taken = together(listing.items)
            for item in taken:
                self._take(item.key.space, item.key.name, orjson.loads(item.data))
            if len(taken) == len(listing.items) and not listing.remaining:
                break
            last = taken[-1].key
            after = (last.space, last.namespace, last.name)
            await asyncio.sleep(0)
        self._publish()
        self._learnt = history

    def is_ready(self, cluster: str) -> bool:
        """Whether the catalog of a space holds what is installed there, so that ``ensure`` has nothing to do."""
        if self._is_stale:
            return False
        if cluster not in self._own:
            return cluster not in self._known
        making = self._making.get(cluster)
        if self._due[cluster] or (making is not None and making.locked()):
            return False
        self._own.move_to_end(cluster)
        return True

    async def ensure(self, cluster: str) -> None:
        """Make sure that the catalog of a space holds what is installed there.

        What has changed since is read one definition a turn of the loop, by one request of all that wait.
        """
        while not self.is_ready(cluster):
            if self._is_stale:
                await self.load()
                continue
            async with self._making.setdefault(cluster, asyncio.Lock()):
                await self._make(cluster)

    async def _make(self, cluster: str) -> None:
        begun, own = self._history, self._own.get(cluster)
        due: dict[str, bytes | None]
        if own is None:
            # Whatever is written from here on is due once more.
            self._due[cluster] = {}
            listing = await self._store.list(Range(cluster, *CRDS), cached=True)
            own, due = {}, {item.key.name: item.data for item in listing.items}
        else:
            own, due, self._due[cluster] = dict(own), self._due[cluster], {}
        try:
            for name, data in due.items():
                resource = None if data is None else _read(cluster, data)
                if resource is None:
                    own.pop(name, None)
                else:
                    own[name] = resource
                await asyncio.sleep(0)
        except BaseException:
            if cluster in self._own and cluster in self._due:
                self._due[cluster] = {**due, **self._due[cluster]}
            raise
        if self._history != begun or cluster not in self._due:
            # The log does not continue, or the space was let go: what was made may be of a past that there is no more.
            return
        self._own[cluster] = own
        self._own.move_to_end(cluster)
        self._extend(cluster)
        while len(self._own) > 1 and (len(self._own) > MAX_SPACES or self._count() > MAX_RESOURCES):
            self._forget(next(iter(self._own)))

    def _count(self) -> int:
        return sum(map(len, self._own.values()))

    def definition(self, cluster: str, group: str, plural: str) -> str:
        """The uid of the CRD that a space's resource rests on; empty when there is none."""
        for known in self._reachable(cluster):
            if known.group == group and known.plural == plural:
                return known.uid
        return ""

    async def catalog_of(self, cluster: str) -> Catalog:
        """All that a logical cluster serves."""
        await self.ensure(cluster)
        return self._catalogs.of(cluster)

    def resource_of(self, cluster: str, version: str, kind: str) -> tuple[str, bool] | None:
        """``apiVersion`` and kind → (resource in the store's keys, namespaced); ``None`` for what is not served.

        Of custom resources that is to be asked after ``load``: until then none is known, as after ``on_lost``.
        """
        try:
            group, name = parse_api_version(version)
        except ValueError:
            return None
        builtin = (BUILTINS if cluster == ROOT else TENANT_BUILTINS).by_kind(group, name, kind)
        if builtin is not None:
            return builtin.plural, builtin.namespaced
        if self._is_stale:
            return None
        for known in self._reachable(cluster):
            if known.group == group and known.kind == kind and name in known.versions:
                return known.place, known.namespaced
        return None

    def on_lost(self) -> None:
        """Forget everything: the log does not continue."""
        self._history += 1

    def on_events(self, events: Sequence[Event]) -> None:
        """Take in changes of CRDs."""
        changes = [event for event in events if (event.key.group, event.key.resource) == CRDS]
        if not changes:
            return
        touched: set[tuple[str, str]] = set()
        for event in changes:
            space, name = event.key.space, event.key.name
            before = self._known.get(space, {}).get(name)
            crd = None if event.type is EventType.DELETED else orjson.loads(event.data)
            self._take(space, name, crd)
            after = self._known.get(space, {}).get(name)
            touched |= {(known.group, known.plural) for known in (before, after) if known is not None}
            if space in self._due:
                self._due[space][name] = None if crd is None else event.data
        if ROOT in {event.key.space for event in changes}:
            self._publish()
        if self._redefined is not None:
            self._redefined(touched)

    def _reachable(self, cluster: str) -> list[Definition]:
        """The definitions that a space could use, its own first."""
        own = list(self._known.get(cluster, {}).values())
        if cluster in (ROOT, BOOTSTRAP):
            return own
        return own + [known for name, known in self._known.get(ROOT, {}).items() if name in self._published]

    def _take(self, cluster: str, name: str, crd: dict[str, Any] | None) -> None:
        """Remember or forget one CRD."""
        established = crd is not None and is_established(crd)
        if crd is None or not established:
            self._known.get(cluster, {}).pop(name, None)
        else:
            spec = crd["spec"]
            served = tuple(version["name"] for version in spec["versions"] if version.get("served"))
            self._known.setdefault(cluster, {})[name] = Definition(
                crd["metadata"].get("uid", ""),
                spec["group"],
                spec["names"]["kind"],
                spec["names"]["plural"],
                spec["scope"] == "Namespaced",
                served,
            )
        if not self._known.get(cluster, True):
            del self._known[cluster]
        if cluster == ROOT:
            annotations = (crd["metadata"].get("annotations") or {}) if crd is not None else {}
            resource = _made(ROOT, crd) if crd is not None and annotations.get(PUBLISHED) == "true" else None
            if resource is None:
                self._published.pop(name, None)
            else:
                self._published[name] = resource

    def _publish(self) -> None:
        self._catalogs.publish(_with(TENANT_BUILTINS, self._published.values()) if self._published else None)
        for cluster in self._own:
            self._extend(cluster)

    def _extend(self, cluster: str) -> None:
        own = list(self._own[cluster].values())
        if cluster == ROOT:
            self._catalogs.extend(ROOT, _with(BUILTINS, own))
            return
        taken = {(r.group, name) for r in own for name in (r.plural, r.kind)}
        shared = (r for r in self._published.values() if not {(r.group, r.plural), (r.group, r.kind)} & taken)
        self._catalogs.extend(cluster, _with(TENANT_BUILTINS, [*shared, *own]))

    def _forget(self, cluster: str) -> None:
        self._own.pop(cluster, None)
        self._due.pop(cluster, None)
        self._catalogs.extend(cluster, None)


def _with(base: Catalog, resources: Collection[Resource]) -> Catalog:
    """A catalog with custom resources; the built-in ones stand before any of the same name."""
    builtin = {(r.group, name) for r in BUILTINS for name in (r.plural, r.kind)}
    served = [r for r in resources if any(version.served for version in r.versions)]
    return base.extended(r for r in served if not {(r.group, r.plural), (r.group, r.kind)} & builtin)


def _read(cluster: str, data: bytes) -> Resource | None:
    """What a CRD defines, from its bytes; ``None`` for one that is not established."""
    resource = _made(cluster, orjson.loads(data))
    return None if resource is None else replace(resource, weight=weight(data) + _rules_weight(data))


def _rules_weight(data: bytes) -> int:
    """What the rules add: they are compiled one a turn of the loop, so that a long one alone makes a kind heavy."""
    rules = _EXPRESSION.findall(data) if b'"rule"' in data else []
    return sum(RULE + (_LONG_RULE * (len(rule) // _LONG)) for rule in rules)


def _made(cluster: str, crd: dict[str, Any]) -> Resource | None:
    if not is_established(crd):
        return None
    try:
        return resource_of(crd, definitions(), space=cluster)
    except (KeyError, TypeError, ValueError):
        logger.exception("the CRD %s of %s cannot be served", crd["metadata"]["name"], cluster)
        return None
