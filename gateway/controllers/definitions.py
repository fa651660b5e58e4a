"""What happens to CRDs behind requests: objects of deleted ones are removed, names that came free are given (TS10)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from access.admission.kubernetes.customresourcedefinitions import statuses_in_group
from gateway.resources.objects import timestamp
from kube.customresources.definitions import CLEANUP, CRDS, crd_status, terminating
from kube.customresources.endings import ending
from kube.objects.strategies import finished
from kube.requests.logicalclusters import ROOT
from store.engine import Engine
from store.fairqueue import FairQueue
from store.garbagecollection import Holds
from store.pace import Pace
from store.types import (
    AllSpaces,
    Delete,
    Event,
    EventType,
    Key,
    PreconditionFailed,
    Range,
    Stored,
    StoreError,
    Update,
)

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
_DELETED: Final = b'"deletionTimestamp"'
_REFUSED: Final = b"not all names are accepted"


class DefinitionController:
    """Every process may run one: each step is a write with preconditions, so doing it twice changes nothing."""

    def __init__(self, store: Engine, holds: Holds) -> None:
        self._store = store
        self._holds = holds
        self._queue = FairQueue(self._reconcile_safely)
        self._waiting: dict[tuple[str, str], Key] = {}
        """(group, resource in the store's keys) → the deleted CRD that waits for its objects to go."""
        self._refused: dict[str, set[Key]] = {}
        """Logical cluster → its CRDs that have not got all of their names."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Note deleted CRDs, the going of what they wait for, and names that may have come free."""
        for event in events:
            key = event.key
            if key[1:3] == CRDS:
                self._see(key, event)
            elif event.type is EventType.DELETED and self._waiting:
                crd = self._waiting.get((key.group, key.resource))
                if crd is not None:
                    self._queue.add(crd)

    def _see(self, key: Key, event: Event) -> None:
        gone = event.type is EventType.DELETED
        if not gone and _DELETED in event.data:
            self._queue.add(key)
        refused = self._refused.setdefault(key.space, set())
        if not gone and _REFUSED in event.data:
            refused.add(key)
        else:
            refused.discard(key)
        if gone or event.previous is not None:
            for other in refused - {key}:
                self._queue.add(other)
        if not refused:
            del self._refused[key.space]

    def on_doors(self) -> None:
        """Go on with what waited for a door."""
        self._queue.take_up()

    async def run(self) -> None:
        """Work until cancelled; begins with what an earlier process left."""
        for item in (await self._store.list(AllSpaces(*CRDS), cached=True)).items:
            if _DELETED in item.data or _REFUSED in item.data:
                self._queue.add(item.key)
            if _REFUSED in item.data:
                self._refused.setdefault(item.key.space, set()).add(item.key)
        await self._queue.run()

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            await self._reconcile(key)
        except (PreconditionFailed, StoreError) as error:
            if not isinstance(error, PreconditionFailed):
                logger.warning("the CRD %s of %s was not settled: %s", key.name, key.space, error)
            self._queue.add(key)
            await asyncio.sleep(_RETRY_SECONDS)
        except (KeyError, TypeError, ValueError):
            logger.exception("the CRD %s of %s cannot be settled", key.name, key.space)

    async def _reconcile(self, key: Key) -> None:
        stored = await self._store.get(key)
        if stored is None:
            return
        body = orjson.loads(stored.data)
        if "deletionTimestamp" in body["metadata"]:
            await self._empty(stored, body)
        else:
            await self._name(stored, body)

    async def _name(self, stored: Stored, body: dict[str, Any]) -> None:
        """Ask again for the names that another CRD had when this one came."""
        others = await self._store.list(Range(stored.key.space, *CRDS))
        taken = await statuses_in_group(others.items, body["spec"]["group"], but=stored.key.name)
        status = crd_status(body, taken.values(), now=timestamp(time.time()))
        if status != body.get("status"):
            await self._store.commit(Update(stored.key, stored.revision, {**body, "status": status}))

    async def _empty(self, stored: Stored, body: dict[str, Any]) -> None:
        """Remove all objects of a deleted CRD, of a system CRD in every space; then let the CRD go."""
        metadata, spec = body["metadata"], body["spec"]
        if CLEANUP not in (metadata.get("finalizers") or ()):
            return
        group, kept = place = (spec["group"], f"{spec['names']['plural']}:{metadata['uid']}")
        self._waiting[place] = stored.key
        where = AllSpaces(*place) if stored.key.space == ROOT else Range(stored.key.space, group, kept)
        held = False
        async for item in Pace().over((await self._store.list(where)).items):
            # What operators end for everybody ends in closed and frozen spaces, too.
            if stored.key.space != ROOT and self._holds(item.key.space, item.key.namespace):
                self._queue.set_aside(stored.key)
                held = True
                continue
            held |= not await self._remove(item, timestamp(time.time()))
        if held:
            begun = terminating(body, now=timestamp(time.time()), begun=True)
            if begun != body:
                await self._store.commit(Update(stored.key, stored.revision, begun))
            return
        self._waiting.pop(place, None)
        finalizers = [name for name in metadata["finalizers"] if name != CLEANUP]
        done = {**body, "metadata": {**metadata, "finalizers": finalizers}}
        operation = Update if finalizers else Delete
        await self._store.commit(operation(stored.key, stored.revision, done))

    async def _remove(self, item: Stored, now: str) -> bool:
        body = orjson.loads(item.data)
        marked = ending(item.key[1:3], body, now=now)
        if finished(marked):
            await self._store.commit(Delete(item.key, item.revision, body))
            return True
        if marked != body:
            await self._store.commit(Update(item.key, item.revision, marked))
        return False
