"""What must happen to objects after a deletion: namespaces are emptied, dependents follow their owners.

One worker for a database (an advisory lock chooses it); the others wait to take over. It keeps no state of its own:
whoever takes over finds out from the objects what is unfinished, then goes by the change log. Every step is a write
with preconditions, so a step done twice, or raced by a client, changes nothing that it should not.

The rules are those of Kubernetes' namespace and garbage collector controllers; owners and dependents always are of
one space (TS3). What goes is told to end as a DELETE tells it (``ending``): a namespace is emptied, its pods first, a
definition's objects go first, and a workspace is closed by whoever ends those. What nobody may delete outlives its owners.

What is closed or frozen loses nothing: what a deletion sets off there is set aside, and taken up when the doors change
(GW5, GW28). A workspace's namespace that ends is the product's own work, and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from kube.customresources.definitions import CRDS
from kube.customresources.endings import PODS, ending, waiting
from kube.objects.managedfields import without_owners
from kube.objects.strategies import finished
from kube.requests.logicalclusters import ROOT
from store.engine import Engine
from store.fairqueue import FairQueue
from store.pace import Pace
from store.postgresql.leadership import RETRY_SECONDS, CheckLeadership, lead
from store.types import Delete, Event, EventType, Key, PreconditionFailed, Range, Stored, StoreError, Update

logger = logging.getLogger(__name__)

T = TypeVar("T")

ResourceOf = Callable[[str, str, str], tuple[str, bool] | None]
"""(space, apiVersion, kind) → the resource's plural and whether it is namespaced; ``None`` when it is not served."""

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

Holds = Callable[[str, str], bool]
"""(space, namespace) → whether what people have set off there waits. An empty namespace asks for the space's own objects."""

Outlives = Callable[[Key, Mapping[str, Any]], bool]
"""(an object's key, the object) → whether it stays when its owners go, and forgets them."""

CIRCLE_MAX = 1_000
"""The owners, and theirs, that are looked at to find whether one of them waits for its own end."""

LEADER_LOCK = 7_236_018_501
"""The advisory lock of the one worker; any number that nothing else in the database uses."""

_MARKS = (b'"ownerReferences"', b'"deletionTimestamp"')
_NAMESPACES = ("", "namespaces")


class GarbageCollector:
    """The worker; ``run`` works until it is cancelled.

    ``is_workspaces`` says of a namespace, by its name, that nobody but the product ends it.
    """

    def __init__(
        self,
        store: Engine,
        conninfo: str,
        resource_of: ResourceOf,
        holds: Holds,
        *,
        is_workspaces: Callable[[str], object] = lambda _: False,
        outlives_owners: Outlives = lambda *_: False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._conninfo = conninfo
        self._resource_of = resource_of
        self._holds = holds
        self._is_workspaces = is_workspaces
        self._outlives_owners = outlives_owners
        self._clock = clock
        self._queue = FairQueue(self._reconcile_safely)
        self._pace = Pace()
        """That of all that is read of owners and dependents."""
        self._restart = asyncio.Event()
        self._dependents: dict[tuple[str, str], set[Key]] = {}
        """(space, owner's uid) → who names it as an owner."""
        self._gone: dict[tuple[str, str], tuple[Key, str]] = {}
        """(space, uid) → the key and the kind of an owner that was seen to go, while anybody names it.

        A definition goes right behind the last of its objects: then nobody could say any more that they are gone.
        """
        self._unserved: dict[tuple[str, str], set[Key]] = {}
        """(space, API group) → who names an owner of a kind that it does not have there; a definition may bring that."""
        self._ending: set[Key] = set()
        """Namespaces that wait for what is in them: elsewhere an object that goes is nothing to look at."""

    def on_doors(self) -> None:
        """Go on with what waited for a door."""
        self._queue.take_up()

    async def run(self) -> None:
        """Wait to become the leader, work, and wait again whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-lifecycle", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._restart.clear()
        self._queue.clear()
        self._dependents.clear()
        self._gone.clear()
        self._unserved.clear()
        self._ending.clear()
        undo = self._store.subscribe(self._note, lost=self._restart.set)

        async def go_on() -> None:
            if self._restart.is_set():
                raise StoreError("the history was replaced")
            # Whoever lost the session lost the lock with it.
            await check_leadership()

        try:
            pace = Pace()
            for key in await self._store.keys_containing(*_MARKS):
                self._queue.add(key)
                stored = await self._store.get(key, cached=True)
                if stored is not None:
                    await pace.step(len(stored.data))
                    self._index(key, orjson.loads(stored.data))
            await self._queue.run(go_on, every=RETRY_SECONDS)
        finally:
            undo()

    async def _reconcile_safely(self, key: Key) -> None:
        if self._restart.is_set():
            return
        try:
            await self._reconcile(key)
        except PreconditionFailed:
            self._queue.add(key)
        except (KeyError, TypeError, ValueError, AttributeError):
            # An object that is not shaped as it should be must not stop the work for all others.
            logger.exception("the lifecycle of %s %s/%s cannot go on", key.resource, key.namespace, key.name)

    def _enqueue(self, *keys: Key) -> None:
        for key in keys:
            self._queue.add(key)

    def _note(self, events: Sequence[Event]) -> None:
        """Listen to the change log: remember who depends on whom, and what has work to be done."""
        for event in events:
            key, gone = event.key, event.type is EventType.DELETED
            body = orjson.loads(event.data) if gone or any(mark in event.data for mark in _MARKS) else {}
            if event.previous is not None and _MARKS[0] in event.previous:
                named = set() if gone else {owner["uid"] for owner in owners_of(body)}
                for owner in owners_of(orjson.loads(event.previous)):
                    if owner["uid"] not in named:
                        self._let_go(key, owner)
                    # A blocking dependent that goes, or lets go, may be the last that its owner waits for.
                    owner_key = self._owner_key(key, owner)
                    if owner_key is not None:
                        self._enqueue(owner_key)
            if gone:
                uid = body.get("metadata", {}).get("uid", "")
                if dependents := self._dependents.get((key.space, uid)):
                    self._gone[key.space, uid] = key, body.get("kind", "")
                    self._queue.add_all(key.space, dependents)
                self._ending.discard(key)
                if (namespace := Key(key.space, *_NAMESPACES, "", key.namespace)) in self._ending:
                    self._enqueue(namespace)
            elif body:
                self._index(key, body)
                self._enqueue(key)
            if key[1:3] == CRDS:
                self._look_again(key.space, key.name.partition(".")[2])

    def _look_again(self, space: str, group: str) -> None:
        """Kinds may have come; those of the system space may be everybody's. Whom none helps is noted again."""
        for place in [place for place in self._unserved if place[1] == group] if space == ROOT else [(space, group)]:
            self._queue.add_all(place[0], self._unserved.pop(place, ()))

    def _let_go(self, key: Key, owner: Mapping[str, Any]) -> None:
        """Somebody does not name an owner any more; the last who does so takes what is known of it along."""
        place = key.space, owner["uid"]
        if _discard(self._dependents, place, key):
            self._gone.pop(place, None)
        _discard(self._unserved, (key.space, _group_of(owner)), key)

    def _index(self, key: Key, body: Mapping[str, Any]) -> None:
        for owner in owners_of(body):
            self._dependents.setdefault((key.space, owner["uid"]), set()).add(key)
        if key[1:3] == _NAMESPACES and "deletionTimestamp" in body.get("metadata", {}):
            self._ending.add(key)

    async def _reconcile(self, key: Key) -> None:
        """Do whatever one object is due for now."""
        stored = await self._store.get(key)
        if stored is None:
            return
        body = orjson.loads(stored.data)
        metadata = body.get("metadata", {})
        if "deletionTimestamp" in metadata:
            finalizers = metadata.get("finalizers") or []
            if await self._waits(key, key):
                return
            if ORPHAN in finalizers:
                await self._orphan(stored, body)
            elif FOREGROUND in finalizers:
                await self._delete_dependents_first(stored, body)
            if key[1:3] == _NAMESPACES:
                await self._empty_namespace(stored, body)
        elif owners_of(body):
            await self._collect(stored, body)

    async def _waits(self, key: Key, place: Key) -> bool:
        """Whether ``place`` is to stay as it is for now; then ``key`` is looked at again when the doors change."""
        space, namespace = place.space, place.name if place[1:3] == _NAMESPACES else place.namespace
        if not self._holds(space, namespace):
            return False
        if self._is_workspaces(namespace):
            stored = await self._store.get(Key(space, *_NAMESPACES, "", namespace))
            if stored is not None and "deletionTimestamp" in orjson.loads(stored.data).get("metadata", {}):
                return False
        # Asked again, for the doors may have changed meanwhile: nothing is waited for between this and the noting.
        if not self._holds(space, namespace):
            return False
        self._queue.set_aside(key)
        return True

    # Namespaces.

    async def _empty_namespace(self, stored: Stored, body: dict[str, Any]) -> None:
        """The pods first: they may need what else there is until they have ended."""
        space, name = stored.key.space, stored.key.name
        left, held, pace = Counter[tuple[str, str]](), Counter[str](), Pace()
        for group, resource in sorted(await self._store.resources(space, name), key=lambda place: place != PODS):
            if left[PODS]:
                break
            async for item in pace.over((await self._store.list(Range(space, group, resource, name))).items):
                there = await self._remove(item, alone=True)
                if there is not None:
                    left[group, resource.partition(":")[0]] += 1
                    held.update(there["metadata"].get("finalizers") or ())
        told = waiting(body, left, held, now=self._now())
        if left:
            # The last object that goes brings the namespace back here.
            if told != body:
                await self._store.commit(Update(stored.key, stored.revision, told))
            return
        if await self._store.resources(space, name):
            self._queue.add(stored.key)
            return
        kept = [item for item in body.get("spec", {}).get("finalizers", []) if item != "kubernetes"]
        emptied = {**told, "spec": {**body.get("spec", {}), "finalizers": kept}}
        if kept or body["metadata"].get("finalizers"):
            if emptied != body:
                await self._store.commit(Update(stored.key, stored.revision, emptied))
        else:
            await self._store.commit(Delete(stored.key, stored.revision, emptied))

    # Owners.

    async def _orphan(self, stored: Stored, body: dict[str, Any]) -> None:
        uid, held = body["metadata"].get("uid", ""), False
        async for dependent in self._dependents_of(stored.key, uid):
            if await self._waits(stored.key, dependent.key):
                held = True
            else:
                await self._disown(dependent, {uid})
        if not held:
            await self._finish(stored, body, ORPHAN)

    async def _delete_dependents_first(self, stored: Stored, body: dict[str, Any]) -> None:
        uid = body["metadata"].get("uid", "")
        awaited: set[str] = set()
        async for dependent in self._dependents_of(stored.key, uid):
            owned = orjson.loads(dependent.data)
            owners = owners_of(owned)
            if not await self._waits(stored.key, dependent.key):
                others = [owner for owner in owners if owner["uid"] != uid]
                if self._outlives_owners(dependent.key, owned) or await self._solid(dependent.key, others):
                    await self._disown(dependent, {uid})
                    continue
                if await self._remove(dependent, first=FOREGROUND) is None:
                    continue
            if any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners):
                awaited.add(owned["metadata"].get("uid", ""))
        if not awaited or await self._is_awaited_by(awaited, stored.key, body):
            await self._finish(stored, body, FOREGROUND)

    async def _is_awaited_by(self, uids: set[str], key: Key, body: Mapping[str, Any]) -> bool:
        """Whether all of these wait for this object themselves: they are among its owners, their owners and so on.

        So it is said of whoever has more than ``CIRCLE_MAX`` of them.
        """
        found: set[str] = set()
        due, looked = deque([(key, body)]), 0
        while due and not uids <= found:
            key, body = due.popleft()
            named: dict[Key, set[str]] = {}
            for owner in owners_of(body):
                owner_key = self._owner_key(key, owner) if owner.get("blockOwnerDeletion") else None
                if owner_key is not None and owner["uid"] not in found:
                    named.setdefault(owner_key, set()).add(owner["uid"])
            for owner_key, theirs in named.items():
                if looked == CIRCLE_MAX:
                    return True
                looked += 1
                # What is not known here yet comes as an event, and brings whom it concerns back.
                stored = await self._store.get(owner_key, cached=True)
                if stored is None:
                    continue
                await self._pace.step(len(stored.data))
                above = orjson.loads(stored.data)
                metadata = above["metadata"]
                waits = "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())
                if waits and metadata.get("uid") in theirs:
                    found.add(metadata["uid"])
                    due.append((owner_key, above))
        return uids <= found

    async def _collect(self, stored: Stored, body: dict[str, Any]) -> None:
        """Delete a dependent whose owners are all gone; let it forget the gone ones if some are there, or if it stays."""
        owners = owners_of(body)
        states = await self._owner_states(stored.key, owners)
        gone = {owner["uid"] for owner, state in zip(owners, states, strict=True) if state == "gone"}
        if not gone or "unknown" in states or await self._waits(stored.key, stored.key):
            return
        if set(states) == {"gone"} and not self._outlives_owners(stored.key, body):
            await self._remove(stored)
        else:
            await self._disown(stored, gone)

    async def _dependents_of(self, owner: Key, uid: str) -> AsyncIterator[Stored]:
        """The objects that rightly name an owner: of its space, and of its namespace if it has one."""
        for key in tuple(self._dependents.get((owner.space, uid), ())):
            stored = await self._store.get(key) if owner.namespace in ("", key.namespace) else None
            if stored is not None:
                await self._pace.step(len(stored.data))
                yield stored

    async def _solid(self, dependent: Key, owners: Sequence[Mapping[str, Any]]) -> bool:
        return any(state != "gone" for state in await self._owner_states(dependent, owners))

    async def _owner_states(self, dependent: Key, owners: Sequence[Mapping[str, Any]]) -> list[str]:
        """``there``, ``gone``, or ``unknown`` when the kind is not served or out of reach: then nothing is deleted.

        What stands where an owner is named is read once, however many name that place.
        """
        states: list[str] = []
        uids: dict[Key, Any] = {}
        for owner in owners:
            key = self._owner_key(dependent, owner)
            if key is None and self._was_seen_to_go(dependent, owner):
                states.append("gone")
            elif key is None:
                self._unserved.setdefault((dependent.space, _group_of(owner)), set()).add(dependent)
                states.append("unknown")
            else:
                if key not in uids:
                    uids[key] = await self._uid_at(key)
                states.append("there" if uids[key] == owner["uid"] else "gone")
        return states

    async def _uid_at(self, key: Key) -> Any:
        """That of what is there; ``None`` where nothing is."""
        stored = await self._store.get(key)
        if stored is None:
            return None
        await self._pace.step(len(stored.data))
        return orjson.loads(stored.data).get("metadata", {}).get("uid")

    def _was_seen_to_go(self, dependent: Key, owner: Mapping[str, Any]) -> bool:
        key, kind = self._gone.get((dependent.space, owner["uid"]), (None, ""))
        if key is None or key.namespace not in ("", dependent.namespace):
            return False
        return (_group_of(owner), owner.get("kind"), owner.get("name")) == (key.group, kind, key.name)

    def _owner_key(self, dependent: Key, owner: Mapping[str, Any]) -> Key | None:
        version, kind, name = (owner.get(field) for field in ("apiVersion", "kind", "name"))
        if not (isinstance(version, str) and isinstance(kind, str) and isinstance(name, str) and name):
            return None
        found = self._resource_of(dependent.space, version, kind)
        if found is None:
            return None
        resource, namespaced = found
        if namespaced and not dependent.namespace:
            return None
        return Key(dependent.space, _group_of(owner), resource, dependent.namespace if namespaced else "", name)

    # Writes.

    async def _disown(self, stored: Stored, uids: set[str]) -> None:
        body = orjson.loads(stored.data)
        metadata = dict(body["metadata"])
        kept = [owner for owner in metadata.pop("ownerReferences", []) if owner.get("uid") not in uids]
        if kept:
            metadata["ownerReferences"] = kept
        if entries := without_owners(metadata.pop("managedFields", None), uids, all_gone=not kept):
            metadata["managedFields"] = entries
        await self._store.commit(Update(stored.key, stored.revision, {**body, "metadata": metadata}))

    async def _remove(
        self, stored: Stored, *, first: str | None = None, alone: bool = False
    ) -> Mapping[str, Any] | None:
        """Delete an object, or mark it as deleted while something holds it: then, what is there of it.

        ``first`` is the finalizer that its own dependents are to be deleted under; ``alone``: it waits for none of them.
        """
        before = orjson.loads(stored.data)
        body = _without(before, FOREGROUND, ORPHAN) if alone else before
        metadata, marked = body["metadata"], body
        if "deletionTimestamp" not in metadata:
            if first is not None and self._dependents.get((stored.key.space, metadata.get("uid", ""))):
                finalizers = [*(metadata.get("finalizers") or ()), first]
                marked = {**body, "metadata": {**metadata, "finalizers": finalizers}}
            marked = ending(stored.key[1:3], marked, now=self._now())
        if finished(marked):
            await self._store.commit(Delete(stored.key, stored.revision, body))
            return None
        if marked is not before:
            await self._store.commit(Update(stored.key, stored.revision, marked))
        return marked

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _finish(self, stored: Stored, body: dict[str, Any], finalizer: str) -> None:
        """Take our finalizer off, and the object away if it was the last."""
        result = _without(body, finalizer)
        operation = Delete if finished(result) else Update
        await self._store.commit(operation(stored.key, stored.revision, result))


def _group_of(owner: Mapping[str, Any]) -> str:
    return str(owner.get("apiVersion", "")).rpartition("/")[0]


def _discard(sets: dict[T, set[Key]], name: T, key: Key) -> bool:
    """Whether nothing is left of the set then."""
    left = sets.get(name, set())
    left.discard(key)
    if not left:
        sets.pop(name, None)
    return not left


def _without(body: dict[str, Any], *finalizers: str) -> dict[str, Any]:
    """The object without them; itself when it has none of them."""
    metadata = dict(body["metadata"])
    held = metadata.pop("finalizers", None) or []
    kept = [item for item in held if item not in finalizers]
    if kept:
        metadata["finalizers"] = kept
    return body if len(kept) == len(held) else {**body, "metadata": metadata}


def gains_owners(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether a write lets an object have owners that it had not."""
    before = owners_of(old or {})
    return any(owner not in before for owner in owners_of(new or {}))


def owners_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The well-formed owner references of an object."""
    metadata = body.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    if not isinstance(references, list):
        return []
    return [item for item in references if isinstance(item, dict) and isinstance(item.get("uid"), str)]
