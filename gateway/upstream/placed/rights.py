"""Keeps people's rights in placed namespaces as RBAC of their space, by a watch on each cluster's own (GW19).

What is kept (``kube.authorization.placedrights``) lies in the store like any RBAC of the space, so every process and
everything that asks about rights decides by it: requests, reviews, explain, who can, what if. Nobody reads or writes it
by the API, where the namespace's objects are the cluster's.

1. One process of a database does the work, for every cluster that can be reached.
2. For a cluster: list its Roles and RoleBindings, compare every namespace of ours there with what is kept and write what
   differs; then watch both from where the lists were, and settle the namespace of each event. A watch that ends, for
   whatever reason, begins the whole anew: nothing is missed, and what did not change is not written.
3. A namespace that is placed meanwhile is settled when the store's log brings it: before it is ready, so that questions
   about it are answered as soon as requests are.
4. All are settled when the cluster says something else of the accounts' roles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from gateway.http.lanes import by_turns
from gateway.resources.objects import timestamp
from gateway.upstream.client import BadGateway
from gateway.upstream.clusters import Clusters, follow_each
from gateway.upstream.placements import TERMINATING, Placement, placement_in
from gateway.upstream.reading import read_events, read_list
from kube.authorization.leastrole import ROLES
from kube.authorization.placedrights import ClusterRbac, placed_rights
from kube.authorization.rbac import GROUP, Binding, Role, binding_from, role_from
from kube.requests.status import StatusError
from store.engine import Engine
from store.postgresql.leadership import lead
from store.types import AllSpaces, Create, Delete, Event, Key, Operation, PreconditionFailed, Range, StoreError, Update

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_0007
REST_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 10.0
"""How often the roles of the accounts are looked at, which are in memory and read anew when they are old."""
_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Role | Binding]]] = {
    "roles": role_from,
    "rolebindings": binding_from,
}


class _Due:
    """Namespaces that are to be settled, each once however often it is said: clusters say it as often as they like."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._names)

    def put(self, namespace: str) -> None:
        """Have it be settled, anew where that is under way."""
        self._names[namespace] = None
        self._some.set()

    async def take(self) -> str:
        """The one that has been due for the longest."""
        while not self._names:
            self._some.clear()
            await self._some.wait()
        namespace = next(iter(self._names))
        del self._names[namespace]
        return namespace


@dataclass(slots=True)
class _Seen:
    """One cluster's Roles and RoleBindings, by namespace, plural and name; our namespaces there, and those that are due."""

    objects: dict[str, dict[tuple[str, str], Role | Binding]] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)
    due: _Due = field(default_factory=_Due)


class PlacedRights:
    """The work of one process; ``run`` until it is cancelled."""

    def __init__(self, store: Engine, clusters: Clusters, database_url: str) -> None:
        self._store = store
        self._clusters = clusters
        self._conninfo = database_url
        self._seen: dict[str, _Seen] = {}

    def on_events(self, events: Sequence[Event]) -> None:
        """Note the Namespaces that are placed, or become ready."""
        for event in events:
            if event.key[1:3] == ("", "namespaces"):
                placement = placement_in(event.data, event.key)
                if placement is not None and (seen := self._seen.get(placement.cluster)) is not None:
                    seen.placements[placement.namespace] = placement
                    seen.due.put(placement.namespace)

    async def run(self) -> None:
        """Wait until this process leads, and follow every cluster."""
        await lead(
            self._conninfo, LEADER_LOCK, "tenantry-rights", partial(follow_each, self._clusters, "rights", self._follow)
        )

    async def _follow(self, cluster: str) -> None:
        while True:
            try:
                begun = time.monotonic()
                await self._once(cluster)
            except (StatusError, StoreError) as error:
                logger.info("the rights on the cluster %s are not followed: %s", cluster, error)
                begun = time.monotonic()
            finally:
                self._seen.pop(cluster, None)
            # A watch that has lasted is opened anew at once. One that a cluster ends as soon as it begins would have
            # everything read again and again.
            await asyncio.sleep(max(0.0, begun + REST_SECONDS - time.monotonic()))

    async def _once(self, cluster: str) -> None:
        seen = self._seen[cluster] = _Seen()
        starts = {}
        for plural in _KINDS:
            items, starts[plural] = await read_list(self._clusters, cluster, _path(plural))
            async for item in by_turns(items):
                _put(seen, plural, item)
        for stored in (await self._store.list(AllSpaces("", "namespaces"))).items:
            placement = placement_in(stored.data, stored.key)
            if placement is not None and placement.cluster == cluster:
                seen.placements[placement.namespace] = placement
                seen.due.put(placement.namespace)
        work = [asyncio.ensure_future(self._watch(cluster, plural, seen, rv)) for plural, rv in starts.items()]
        work.append(asyncio.ensure_future(self._settle_due(seen)))
        work.append(asyncio.ensure_future(self._follow_roles(cluster, seen)))
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _watch(self, cluster: str, plural: str, seen: _Seen, since: str) -> None:
        events = read_events(self._clusters, cluster, _path(plural), since)
        async with contextlib.aclosing(events):
            async for kind, item in events:
                if kind == "ERROR":
                    return
                if kind != "BOOKMARK":
                    namespace = _put(seen, plural, item, gone=kind == "DELETED")
                    # One that is placed later is due then.
                    if namespace in seen.placements:
                        seen.due.put(namespace)

    async def _follow_roles(self, cluster: str, seen: _Seen) -> None:
        known = await self._clusters.roles(cluster)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = await self._clusters.roles(cluster)
            if now != known:
                known = now
                for namespace in seen.placements:
                    seen.due.put(namespace)

    async def _settle_due(self, seen: _Seen) -> None:
        while True:
            placement = seen.placements.get(await seen.due.take())
            if placement is None or placement.phase == TERMINATING:
                continue
            now = await self._store.get(Key(placement.space, "", "namespaces", "", placement.namespace))
            if now is not None and placement_in(now.data, now.key) == placement:
                await self._settle(placement, seen)

    async def _settle(self, placement: Placement, seen: _Seen) -> None:
        """Write what of the namespace's RBAC in the space is not as it should be."""
        roles = await self._clusters.roles(placement.cluster)
        own = seen.objects.get(placement.namespace, {}).values()
        wanted = placed_rights(
            ClusterRbac(
                accounts=dict(zip(ROLES, roles.rules.roles, strict=True)),
                cluster_roles=roles.names,
                roles=[item for item in own if isinstance(item, Role)],
                bindings=[item for item in own if isinstance(item, Binding)],
            )
        )
        operations: list[Operation] = []
        for plural in _KINDS:
            listing = await self._store.list(Range(placement.space, GROUP, plural, placement.namespace))
            kept = {stored.key.name: stored for stored in listing.items}
            for name, stored in kept.items():
                body = orjson.loads(stored.data)
                said = wanted.get((plural, name))
                if said is None:
                    operations.append(Delete(stored.key, stored.revision, body))
                elif any(body.get(part) != value for part, value in said.items()):
                    operations.append(Update(stored.key, stored.revision, {**body, **said}))
            operations += [
                Create(
                    Key(placement.space, GROUP, plural, placement.namespace, name), _body(placement, plural, name, said)
                )
                for (of, name), said in wanted.items()
                if of == plural and name not in kept
            ]
        if operations:
            with contextlib.suppress(PreconditionFailed):
                await self._store.commit(*operations)


def _path(plural: str) -> str:
    return f"/apis/{GROUP}/v1/{plural}"


def _body(placement: Placement, plural: str, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    identity = uuid.uuid5(uuid.UUID(placement.workspace), f"{plural}/{name}")
    metadata = {
        "name": name,
        "namespace": placement.namespace,
        "uid": str(identity),
        "creationTimestamp": timestamp(time.time()),
    }
    kind = "Role" if plural == "roles" else "RoleBinding"
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **said}


def _put(seen: _Seen, plural: str, item: Mapping[str, Any], *, gone: bool = False) -> str:
    """Take one object in; its namespace. Raises ``BadGateway`` for what is none."""
    try:
        found = _KINDS[plural](item)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadGateway("an object of the cluster is none") from error
    of = seen.objects.setdefault(found.namespace, {})
    if gone:
        of.pop((plural, found.name), None)
    else:
        of[plural, found.name] = found
    return found.namespace
