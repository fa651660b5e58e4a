"""What goes on behind the requests in one API server process of a database: ends of namespaces and owners, recounts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import orjson

from access.admission.customresourcedefinitions import CLEANUP
from access.admission.resourcequota import ResourceQuota
from gateway.customresources import CRDS
from gateway.kinds import Catalogs
from gateway.workspaces import WorkspaceWorker
from kube.resources import parse_api_version
from store.engine import Engine
from store.lifecycle import Lifecycle
from store.types import (
    Delete,
    Event,
    EventType,
    Everywhere,
    Key,
    PreconditionFailed,
    Range,
    Stored,
    StoreError,
    Update,
)

logger = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 0.2
"""Deletions come in swarms: a namespace's quotas are counted once they have passed."""


class QuotaRecounts:
    """Counts the quotas of a namespace afresh after deletions, which the garbage collector does not settle."""

    def __init__(self, store: Engine, plugin: ResourceQuota) -> None:
        self._store = store
        self._plugin = plugin
        self._due: set[tuple[str, str]] = set()
        self._wake = asyncio.Event()

    def on_events(self, events: Sequence[Event]) -> None:
        """Note the namespaces that lost something, or got a quota."""
        for event in events:
            key = event.key
            new_quota = key.resource == "resourcequotas" and not key.group and event.type is EventType.ADDED
            if key.namespace and (event.type is EventType.DELETED or new_quota):
                self._due.add((key.space, key.namespace))
                self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._wake.clear()
            due, self._due = self._due, set()
            for space, namespace in due:
                try:
                    await self._recount(space, namespace)
                except PreconditionFailed:
                    self._due.add((space, namespace))
                    self._wake.set()
                except StoreError as error:
                    logger.warning("quotas of %s/%s were not recounted: %s", space, namespace, error)

    async def _recount(self, space: str, namespace: str) -> None:
        listing = await self._store.list(Range(space, "", "resourcequotas", namespace))
        for stored in listing.items:
            await self._plugin.recount(stored, time.time())


class CustomResourceCleanup:
    """Empties the resources of deleted CRDs, then lets the CRDs go."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self._due: dict[Key, None] = {}
        self._waiting: dict[tuple[str, str, str], Key] = {}
        self._wake = asyncio.Event()

    def on_events(self, events: Sequence[Event]) -> None:
        """Note deleted CRDs, and the going of what they wait for."""
        for event in events:
            key = event.key
            if key[1:3] == CRDS and b'"deletionTimestamp"' in event.data:
                self._note(key)
            elif event.type is EventType.DELETED and self._waiting:
                crd = self._waiting.get((key.space, key.group, key.resource))
                if crd is not None:
                    self._note(crd)

    def _note(self, key: Key) -> None:
        self._due[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled; begins with what an earlier process left."""
        for item in (await self._store.list(Everywhere(*CRDS), cached=True)).items:
            if b'"deletionTimestamp"' in item.data:
                self._note(item.key)
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = list(self._due), {}
            for key in due:
                try:
                    await self._settle(key)
                except PreconditionFailed:
                    self._note(key)
                    await asyncio.sleep(_SETTLE_SECONDS)
                except StoreError as error:
                    logger.warning("the CRD %s of %s was not cleaned up: %s", key.name, key.space, error)

    async def _settle(self, key: Key) -> None:
        stored = await self._store.get(key)
        body = orjson.loads(stored.data) if stored else {}
        metadata = body.get("metadata", {})
        if stored is None or "deletionTimestamp" not in metadata:
            return
        spec = body["spec"]
        place = (key.space, spec["group"], spec["names"]["plural"])
        self._waiting[place] = key
        held = False
        for item in (await self._store.list(Range(*place))).items:
            held |= not await self._remove(item, metadata["deletionTimestamp"])
        if held:
            return
        self._waiting.pop(place, None)
        kept = [name for name in metadata.get("finalizers") or () if name != CLEANUP]
        body["metadata"] = {**metadata, "finalizers": kept}
        operation = Update if kept else Delete
        if kept != metadata.get("finalizers"):
            await self._store.commit(operation(key, stored.revision, body))

    async def _remove(self, item: Stored, now: str) -> bool:
        body = orjson.loads(item.data)
        metadata = body["metadata"]
        if not metadata.get("finalizers"):
            await self._store.commit(Delete(item.key, item.revision, body))
            return True
        if "deletionTimestamp" not in metadata:
            metadata |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
            await self._store.commit(Update(item.key, item.revision, body))
        return False


@asynccontextmanager
async def running(
    store: Engine, database_url: str, url: str, catalogs: Catalogs, quotas: ResourceQuota
) -> AsyncIterator[None]:
    """The workers run; an advisory lock makes sure that one process does what only one may."""

    def resource_of(space: str, api_version: str, kind: str) -> tuple[str, bool] | None:
        try:
            group, version = parse_api_version(api_version)
        except ValueError:
            return None
        resource = catalogs.of(space).by_kind(group, version, kind)
        return (resource.plural, resource.namespaced) if resource else None

    recounts = QuotaRecounts(store, quotas)
    cleanup = CustomResourceCleanup(store)
    tree = WorkspaceWorker(store, database_url, url)
    undos = [store.subscribe(worker.on_events) for worker in (recounts, cleanup, tree)]
    tasks = [
        asyncio.create_task(cleanup.run()),
        asyncio.create_task(Lifecycle(store, database_url, resource_of).run()),
        asyncio.create_task(recounts.run()),
        asyncio.create_task(tree.run()),
    ]
    try:
        yield
    finally:
        for undo in undos:
            undo()
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
