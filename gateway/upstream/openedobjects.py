"""Shows tenants what an operator opens of a cluster's own objects: classes, and the APIs that only the cluster has (GW20).

An opened object is kept in the space of every tenant that has a namespace on the cluster, marked with the cluster's name,
so that lists, watches, discovery and OpenAPI have it as they have what is the space's own. What the space has by itself
under the name stays, and of two clusters the first one's. Whoever is a member may read it; nobody there may change it.

One process of a database does the work: every ``LOOK_SECONDS``, and when a namespace is placed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.resources.kinds import definitions
from gateway.resources.objects import timestamp
from gateway.upstream.clusters import Clusters
from gateway.upstream.gatewayreading import read_list
from gateway.upstream.placements import placement_in
from kube.authorization.placedrights import MEMBERS, PREFIX
from kube.authorization.rbac import GROUP
from kube.customresources.definitions import CLEANUP, CRDS, crd_causes, crd_status, terminating
from kube.kinds.openings import KINDS, Opening, Place, shown_form
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.status import StatusError
from store.engine import Engine
from store.postgresql.connections import AWAY
from store.postgresql.leadership import RETRY_SECONDS, leader_election
from store.types import AllSpaces, Create, Delete, Event, Key, Operation, PreconditionFailed, Stored, StoreError, Update
from tenants.clusters.objects import CLUSTER_LABEL

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_0008
LOOK_SECONDS: Final = 30.0
_CHECK_SECONDS: Final = 1.0
_MOST: Final = 200
_NAMESPACE: Final = uuid.UUID("5b0c9b0e-6f1d-4c80-9d6e-0f7f1c1f3a55")
_SERVERS: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "tenant", "selfLink")

Body = dict[str, Any]


class OpenedObjects:
    """The work of one process; ``run`` until it is cancelled."""

    def __init__(self, store: Engine, clusters: Clusters, database_url: str) -> None:
        self._store = store
        self._clusters = clusters
        self._conninfo = database_url
        self._told = asyncio.Event()

    def on_events(self, events: Sequence[Event]) -> None:
        """Look at once when a namespace is placed."""
        if any(event.key[1:3] == ("", "namespaces") and placement_in(event.data, event.key) for event in events):
            self._told.set()

    async def run(self) -> None:
        """Wait until this process leads, and look at every cluster now and then."""
        while True:
            try:
                async with leader_election(self._conninfo, LEADER_LOCK, "tenantry-opened") as check_leadership:
                    while True:
                        self._told.clear()
                        await self._look()
                        await self._wait(check_leadership)
            except AWAY:
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self, check_leadership: Callable[[], Awaitable[None]]) -> None:
        until = time.monotonic() + LOOK_SECONDS
        known = self._opened()
        while time.monotonic() < until and self._opened() == known and not self._told.is_set():
            await check_leadership()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), _CHECK_SECONDS)

    def _opened(self) -> dict[str, tuple[Opening, ...]]:
        return {name: self._clusters.openings(name) for name in self._clusters.names}

    async def _look(self) -> None:
        spaces = await self._spaces()
        for cluster, openings in sorted(self._opened().items()):
            try:
                await self._settle(cluster, openings, spaces.get(cluster, frozenset()))
            except (StatusError, StoreError) as error:
                logger.info("what the cluster %s opens is not known: %s", cluster, error)

    async def _spaces(self) -> dict[str, frozenset[str]]:
        """The spaces that have a namespace on a cluster, by its name."""
        found: dict[str, set[str]] = defaultdict(set)
        for stored in (await self._store.list(AllSpaces("", "namespaces"), cached=True)).items:
            placement = placement_in(stored.data, stored.key)
            if placement is not None and placement.phase != "Terminating":
                found[placement.cluster].add(placement.space)
        return {cluster: frozenset(spaces) for cluster, spaces in found.items()}

    async def _settle(self, cluster: str, openings: Iterable[Opening], spaces: frozenset[str]) -> None:
        shown: dict[Place, dict[str, Body]] = {}
        for place in KINDS:
            opened = [opening for opening in openings if opening.place == place]
            items: list[Body] = []
            if opened and spaces:
                items, _ = await read_list(self._clusters, cluster, f"/apis/{place[0]}/v1/{place[1]}")
            # In a thread: a cluster's definitions may take long to be judged, a compiled pattern or rule at a time.
            shown[place] = await asyncio.to_thread(lambda *asked: dict(_shown(*asked)), cluster, place, opened, items)
        for place, wanted in shown.items():
            kept: dict[str, dict[str, Stored]] = defaultdict(dict)
            for stored in (await self._store.list(AllSpaces(*place), cached=True)).items:
                kept[stored.key.space][stored.key.name] = stored
            for space in spaces | kept.keys():
                await self._write(cluster, space, place, wanted if space in spaces else {}, kept[space])
        for space in spaces:
            await self._let_read(cluster, space, shown)

    async def _write(
        self, cluster: str, space: str, place: Place, wanted: Mapping[str, Body], kept: Mapping[str, Stored]
    ) -> None:
        """Make one space show what is opened, and nothing that was."""
        bodies = {name: orjson.loads(stored.data) for name, stored in kept.items()}
        for name, body in bodies.items():
            metadata = body["metadata"]
            if (metadata.get("labels") or {}).get(CLUSTER_LABEL) != cluster or "deletionTimestamp" in metadata:
                continue
            stored = kept[name]
            if name not in wanted:
                metadata["deletionTimestamp"] = now = _now()
                ended = terminating(body, now=now) if place == CRDS else None
                await self._commit(
                    Update(stored.key, stored.revision, ended) if ended else Delete(stored.key, stored.revision, body)
                )
            elif _said(body) != wanted[name]:
                changed = {**wanted[name], "metadata": {**metadata, "labels": wanted[name]["metadata"]["labels"]}}
                await self._commit(Update(stored.key, stored.revision, _finished(place, changed, bodies, name)))
        for name in wanted.keys() - bodies.keys():
            made = {**wanted[name], "metadata": {**wanted[name]["metadata"], **_identity(cluster, space, place, name)}}
            await self._commit(Create(Key(space, *place, "", name), _finished(place, made, bodies, name)))

    async def _let_read(self, cluster: str, space: str, shown: Mapping[Place, Mapping[str, Body]]) -> None:
        """Members may read what is opened by name."""
        name = f"{PREFIX}opened:{cluster}"
        rules = [
            {"apiGroups": [place[0]], "resources": [place[1]], "resourceNames": sorted(names), "verbs": ["get"]}
            for place, names in sorted(shown.items())
            if names
        ] + [
            {"apiGroups": [place[0]], "resources": [place[1]], "verbs": ["list", "watch"]}
            for place, names in sorted(shown.items())
            if names
        ]
        groups = [
            {"apiGroup": GROUP, "kind": "Group", "name": group} for groups in MEMBERS.values() for group in groups
        ]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        for kind, plural, said in (
            ("ClusterRole", "clusterroles", {"rules": rules}),
            ("ClusterRoleBinding", "clusterrolebindings", {"roleRef": reference, "subjects": groups}),
        ):
            key = Key(space, GROUP, plural, "", name)
            stored = await self._store.get(key, cached=True)
            if stored is None and rules:
                metadata = {"name": name, **_identity(cluster, space, (GROUP, plural), name)}
                await self._commit(
                    Create(key, {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **said})
                )
            elif stored is not None:
                body = orjson.loads(stored.data)
                if not rules:
                    await self._commit(Delete(key, stored.revision, body))
                elif any(body.get(part) != value for part, value in said.items()):
                    await self._commit(Update(key, stored.revision, {**body, **said}))

    async def _commit(self, operation: Operation) -> None:
        # Somebody else wrote meanwhile: the next look sees it.
        with contextlib.suppress(PreconditionFailed):
            await self._store.commit(operation)


def _shown(
    cluster: str, place: Place, openings: Sequence[Opening], items: Iterable[Body]
) -> Iterable[tuple[str, Body]]:
    """What of the cluster's objects is opened and can be shown, by name."""
    count = 0
    for item in items:
        metadata = item["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if count >= _MOST or not any(opening.includes(name, labels) for opening in openings):
            continue
        body = shown_form(place, item, {CLUSTER_LABEL: cluster})
        if place == CRDS and not _can_be_served(body):
            continue
        count += 1
        yield name, body


def _can_be_served(crd: Body) -> bool:
    """Whether it is an API of namespaces that this server could have by itself; its conversion is the cluster's affair."""
    spec = crd.get("spec")
    if not isinstance(spec, dict) or spec.get("scope") != "Namespaced":
        return False
    spec["conversion"] = {"strategy": "None"}
    try:
        return not crd_causes(crd, definitions())
    except (KeyError, TypeError, ValueError, AttributeError, StatusError):
        return False


def _finished(place: Place, body: Body, others: Mapping[str, Body], name: str) -> Body:
    if place != CRDS:
        return body
    group = body["spec"]["group"]
    taken = [other for key, other in others.items() if key != name and other["spec"]["group"] == group]
    metadata = {"generation": 1, **body["metadata"], "finalizers": [CLEANUP]}
    return {**body, "metadata": metadata, "status": crd_status(body, taken, now=_now())}


def _identity(cluster: str, space: str, place: Place, name: str) -> Body:
    return {
        "uid": str(uuid.uuid5(_NAMESPACE, f"{cluster}/{space}/{'/'.join(place)}/{name}/{time.time_ns()}")),
        "creationTimestamp": _now(),
        "tenant": tenant_of(space),
        "selfLink": full_path(space, place[0], "v1", place[1], name=name),
    }


def _said(body: Body) -> Body:
    """A kept object as ``shown_form`` gave it."""
    metadata = {field: value for field, value in body["metadata"].items() if field not in (*_SERVERS, "finalizers")}
    return {**{field: value for field, value in body.items() if field != "status"}, "metadata": metadata}


def _now() -> str:
    return timestamp(time.time())
