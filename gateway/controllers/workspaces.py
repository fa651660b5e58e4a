"""Brings workspaces to life and to their end: one worker of a database, from the objects alone (KC3, KC4, KC13).

Scheduling writes the logical cluster's first objects in one transaction; initializing ends when nobody is left to
initialize; a deleted workspace is emptied from its deepest workspaces upward, and goes last. Every step is a write
with preconditions, so that whoever takes over goes on where the other stopped.

What makes that safe:

1. Only the leader reconciles, and it asks again and again whether it still leads. Should two believe so for a moment,
   the preconditions let one of their writes win, and the loser reads anew.
2. Nothing is kept between two looks at an object: each begins with what is stored. A note of an event only says which
   object to look at.
3. A logical cluster is known by the uid of its ``Workspace``: what is left of an earlier workspace of the same name is
   emptied, never taken over.
4. An end closes first (nobody can write any more), then deletes, and the ``LogicalCluster`` goes last: as long as
   anything is left, the path is known to be somebody's.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from access.authorization.workspaces.state import closing, logical_cluster_key
from gateway.controllers.apibindings import FULL_SECONDS
from gateway.resources.objects import timestamp
from kube.quota import storedbytes
from kube.requests.logicalclusters import ROOT, is_valid, is_workspace, space_of
from kube.requests.status import Forbidden
from kube.workspaces import defaultbindings
from kube.workspaces.apiexports import BINDINGS, EXPORTS, identity_of
from kube.workspaces.objects import Place, logical_cluster_objects, organization_object
from kube.workspaces.types import (
    BASES_MAX,
    FINALIZER,
    LOGICAL_CLUSTERS,
    REQUIRED_GROUPS,
    TYPE_UID,
    TYPES,
    WORKSPACES,
    Phase,
    parent_cluster,
    phase_wanted,
    reference,
    split_type,
)
from store.engine import Engine
from store.fairqueue import FairQueue
from store.garbagecollection import Holds
from store.pace import together
from store.postgresql.leadership import CheckLeadership, lead
from store.types import (
    AllSpaces,
    Check,
    Create,
    Delete,
    Event,
    EventType,
    Key,
    Operation,
    PreconditionFailed,
    Range,
    Room,
    Stored,
    Update,
)

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 7_236_018_502
_CHUNK: Final = 200
_TENANTS: Final = (ROOT, "", "tenants")
_IDLE_SECONDS: Final = 5.0
_DEFAULT_BINDING: Final = f'"{defaultbindings.DEFAULT_BINDING}"'.encode()

Body = dict[str, Any]


class WorkspaceController:
    """The worker; ``run`` works until it is cancelled. ``url`` is where clients reach the server."""

    resources: Final = (WORKSPACES, _TENANTS[1:], LOGICAL_CLUSTERS, BINDINGS)
    """What ``on_events`` looks at."""

    def __init__(
        self, store: Engine, conninfo: str, url: str, holds: Holds, room: Callable[[Key], Awaitable[Room | None]]
    ) -> None:
        self._store = store
        self._holds = holds
        self._room = room
        self._conninfo = conninfo
        self._url = url
        self._leads = False
        self._queue = FairQueue(self._reconcile_safely)

    def on_events(self, events: Sequence[Event]) -> None:
        """Note what has changed, while this process leads: whoever does so later looks at all that there is then."""
        if not self._leads:
            return
        for event in events:
            key = event.key
            if (key[1:3] == WORKSPACES or key[:3] == _TENANTS) and event.type is not EventType.DELETED:
                self._queue.add(key)
            elif is_workspace(key.space) and (key[1:3] == LOGICAL_CLUSTERS or _is_default_binding(event)):
                self._queue.add(_workspace_key(key.space))

    def on_doors(self) -> None:
        """Go on with what waited for a door."""
        self._queue.take_up()

    async def run(self) -> None:
        """Lead, or wait to, and start over whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-workspaces", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._leads = True
        try:
            await self._enqueue_existing()
            await self._queue.run(check_leadership, every=_IDLE_SECONDS)
        finally:
            self._leads = False
            self._queue.clear()

    async def _enqueue_existing(self) -> None:
        """Note what an earlier worker left, and tenants from before their spaces had a logical cluster."""
        for item in (await self._store.list(AllSpaces(*WORKSPACES), cached=True)).items:
            self._queue.add(item.key)
        known = {item.key.space for item in (await self._store.list(AllSpaces(*LOGICAL_CLUSTERS), cached=True)).items}
        for item in (await self._store.list(Range(*_TENANTS), cached=True)).items:
            if space_of(item.key.name) not in known:
                self._queue.add(item.key)

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            await self._reconcile(key)
        except PreconditionFailed:
            self._queue.add(key)
            await asyncio.sleep(0.01)
        except (KeyError, TypeError, ValueError, AttributeError):
            # An object that is not shaped as it should be must not stop the work for all others.
            logger.exception("the workspace %s of %s cannot go on", key.name, key.space)

    async def _reconcile(self, key: Key) -> None:
        """Do whatever one workspace, or tenant, is due for now; what it writes brings it back here."""
        stored = await self._store.get(key)
        if stored is None:
            return
        body = orjson.loads(stored.data)
        if key[:3] == _TENANTS:
            await self._ensure_logical_cluster(stored, body)
            return
        path = f"{key.space}:{key.name}"
        if "deletionTimestamp" in body["metadata"]:
            await self._finalize(stored, body, path)
            return
        phase = (body.get("status") or {}).get("phase")
        if phase in (Phase.READY, Phase.INACTIVE):
            return
        cluster = await self._store.get(logical_cluster_key(path))
        if cluster is not None and _owner_of(cluster) != body["metadata"]["uid"]:
            # What another workspace of the name has left is not taken over, for it may hold rights of people who have
            # none in this one.
            if self._holds(path, ""):
                self._queue.set_aside(key)
                return
            await self._delete_contents(path)
            cluster = None
        if cluster is None:
            await self._schedule(stored, body, path)
        else:
            await self._initialize(stored, body, cluster)

    async def _ensure_logical_cluster(self, tenant: Stored, body: Body) -> None:
        """Give the tenant's space its logical cluster, unless the tenant ends."""
        path = space_of(tenant.key.name)
        key = logical_cluster_key(path)
        if "deletionTimestamp" in body["metadata"] or await self._store.get(key) is not None:
            return
        made = organization_object(
            path,
            tenant=body["metadata"]["uid"],
            url=f"{self._url}/clusters/{path}",
            now=timestamp(time.time()),
            uid=str(uuid.uuid4()),
        )
        await self._store.commit(Create(key, made), Check(tenant.key, tenant.revision))

    async def _schedule(self, stored: Stored, body: Body, path: str) -> None:
        kind = body["spec"]["type"]
        types = await self._lineage(f"{kind['path']}:{kind['name']}")
        initializers = [name for name, found in types.items() if _spec(found).get("initializer")]
        agreed = (body["metadata"].get("annotations") or {}).get(TYPE_UID)
        first = next(iter(types.values()), {})
        # What another has put under the name of a lent type since is not what the workspace was made of.
        same = agreed is None or (first.get("metadata") or {}).get("uid") == agreed
        bindings = await self._default_bindings(path, types) if same else []
        if bindings:
            initializers.append(defaultbindings.INITIALIZER)
        url = f"{self._url}/clusters/{path}"
        made = logical_cluster_objects(
            path,
            body,
            initializers=initializers,
            required=await self._required(stored.key.space),
            url=url,
            now=timestamp(time.time()),
            uids=[str(uuid.uuid4()) for _ in range(5)],
        )
        made += bindings
        body["spec"] |= {"cluster": path, "URL": url}
        body["status"] = {**(body.get("status") or {}), "phase": Phase.INITIALIZING, "initializers": initializers}
        # What it begins with was chosen by whoever wrote its types and their exports: their tenant's room is its bound (AD8).
        room = await self._room(stored.key) if bindings else None
        # One transaction: there is no workspace that is scheduled without its first objects, or the other way round.
        scheduled = Update(stored.key, stored.revision, body)
        try:
            await self._store.commit(scheduled, *(Create(Key(path, *place), made_) for place, made_ in made), room=room)
        except Forbidden:
            self._queue.add_later(stored.key, FULL_SECONDS)
            shown = orjson.loads(stored.data)
            told = defaultbindings.no_room(storedbytes.full(room.limit if room else 0), now=timestamp(time.time()))
            if _tell(shown.setdefault("status", {}), told):
                await self._store.commit(Update(stored.key, stored.revision, shown))

    async def _initialize(self, stored: Stored, body: Body, cluster: Stored) -> None:
        inside = orjson.loads(cluster.data)
        status = inside.setdefault("status", {})
        waiting = status.get("initializers") or []
        seen = body.setdefault("status", {})
        if defaultbindings.INITIALIZER in waiting and await self._is_bound(stored, body, cluster, inside):
            return  # What was written brings the workspace back here.
        if waiting:
            if seen.get("initializers") != waiting:
                seen["initializers"] = waiting
                await self._store.commit(Update(stored.key, stored.revision, body))
            return
        for shown in (status, seen):
            shown.pop("initializers", None)
            shown["phase"] = Phase.READY
        status["phase"] = seen["phase"] = phase_wanted(inside)
        await self._store.commit(
            Update(cluster.key, cluster.revision, inside), Update(stored.key, stored.revision, body)
        )

    async def _is_bound(self, stored: Stored, body: Body, cluster: Stored, inside: Body) -> bool:
        """Look at the bindings that a workspace began with; whether what is to be told of them was not known yet."""
        bindings = (await self._store.list(Range(cluster.key.space, *BINDINGS))).items
        waiting = defaultbindings.unfinished(orjson.loads(item.data) for item in bindings)
        told = defaultbindings.condition(waiting, now=timestamp(time.time()))
        writes: list[Operation] = []
        for shown, at in ((inside, cluster), (body, stored)):
            status = shown.setdefault("status", {})
            if not waiting:
                kept = [name for name in status.get("initializers") or () if name != defaultbindings.INITIALIZER]
                status["initializers"] = kept
            if _tell(status, told) or not waiting:
                writes.append(Update(at.key, at.revision, shown))
        if writes:
            await self._store.commit(*writes)
        return bool(writes)

    async def _default_bindings(self, path: str, types: Mapping[str, Body]) -> list[tuple[Place, Body]]:
        """The bindings that a workspace begins with: one to each export that its types name."""
        found: dict[tuple[str, str], tuple[Place, Body]] = {}
        for kind, body in types.items():
            for export in defaultbindings.known(body):
                stored = await self._store.get(Key(export.path, *EXPORTS, "", export.name))
                exported = orjson.loads(stored.data) if stored is not None else {}
                same = identity_of(exported) == export.identity
                claims = ((exported.get("spec") or {}).get("permissionClaims") or ()) if same else ()
                made = defaultbindings.binding(
                    path, export, claims, kind=kind, uid=str(uuid.uuid4()), now=timestamp(time.time())
                )
                found.setdefault((export.path, export.name), made)
        return list(found.values())

    async def _lineage(self, kind: str) -> dict[str, Body]:
        """A type and those that it extends, by name; an empty body for one that is not there."""
        found: dict[str, Body] = {}
        queue = [kind]
        while queue and len(found) < BASES_MAX:
            name = queue.pop(0)
            path, short = split_type(name)
            if name in found or not is_valid(path):
                continue
            stored = await self._store.get(Key(path, *TYPES, "", short))
            found[name] = orjson.loads(stored.data) if stored else {}
            for value in (_spec(found[name]).get("extend") or {}).get("with") or ():
                base, base_name = reference(value)
                queue.append(f"{base or path}:{base_name}")
        return found

    async def _required(self, parent: str) -> str | None:
        """The parent's required groups, which its workspaces inherit when they are scheduled."""
        stored = await self._store.get(logical_cluster_key(parent))
        if stored is None:
            return None
        annotation = (orjson.loads(stored.data)["metadata"].get("annotations") or {}).get(REQUIRED_GROUPS)
        return annotation if isinstance(annotation, str) else None

    # The end.

    async def _finalize(self, stored: Stored, body: Body, path: str) -> None:
        if (body.get("status") or {}).get("phase") != Phase.DELETING:
            # Shown first; its own event brings the object back here for the rest.
            body["status"] = {**(body.get("status") or {}), "phase": Phase.DELETING}
            await self._store.commit(Update(stored.key, stored.revision, body))
            return
        # Closed to everybody, it keeps what it has until its tenant's doors open again, or ends with the tenant.
        await self._close(path)
        if self._holds(path, ""):
            self._queue.set_aside(stored.key)
            return
        await self._delete_contents(path)
        kept = [name for name in body["metadata"].get("finalizers") or () if name != FINALIZER]
        body["metadata"] = {**body["metadata"], "finalizers": kept}
        if kept:
            if FINALIZER in (orjson.loads(stored.data)["metadata"].get("finalizers") or ()):
                await self._store.commit(Update(stored.key, stored.revision, body))
        else:
            await self._store.commit(Delete(stored.key, stored.revision, body))

    async def _delete_contents(self, path: str) -> None:
        """Close a workspace, empty the workspaces below it, then itself; the logical cluster goes last."""
        await self._close(path)
        # From the deepest upward: the workspaces below are found by their objects in this one, which go afterwards.
        for child in (await self._store.list(Range(path, *WORKSPACES))).items:
            await self._delete_contents(f"{path}:{child.key.name}")
        for group, resource in await self._store.resources(path):
            if (group, resource) != LOGICAL_CLUSTERS:
                await self._delete_all(Range(path, group, resource))
        await self._delete_all(Range(path, *LOGICAL_CLUSTERS))

    async def _close(self, path: str) -> None:
        if doors := await closing(self._store, path):
            await self._store.commit(*doors)

    async def _delete_all(self, selection: Range) -> None:
        """So many at a time as may be read in one turn, for all that one commit deletes is decoded at once."""
        while items := together((await self._store.list(selection, limit=_CHUNK)).items):
            await self._store.commit(*(Delete(item.key, item.revision, orjson.loads(item.data)) for item in items))


def _tell(status: Body, told: Body) -> bool:
    """Put a condition into a status; whether it was not known yet."""
    conditions = status.get("conditions") or ()
    known = [one for one in conditions if one.get("type") == told["type"]]
    if known and all(known[0].get(field) == told[field] for field in ("status", "reason", "message")):
        return False
    status["conditions"] = [*(one for one in conditions if one.get("type") != told["type"]), told]
    return True


def _spec(body: Body) -> Body:
    return body.get("spec") or {}


def _is_default_binding(event: Event) -> bool:
    return event.key[1:3] == BINDINGS and _DEFAULT_BINDING in event.data


def _owner_of(cluster: Stored) -> str:
    """The uid of the ``Workspace`` that a logical cluster was made for."""
    owner = (orjson.loads(cluster.data).get("spec") or {}).get("owner") or {}
    return str(owner.get("uid") or "")


def _workspace_key(path: str) -> Key:
    parent, name = parent_cluster(path)
    return Key(parent, *WORKSPACES, "", name)
