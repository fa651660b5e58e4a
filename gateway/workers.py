"""What goes on behind the requests in one API server process of a database: ends of namespaces and owners, recounts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from access.admission.resourcequota import ResourceQuota
from gateway.apibindings import BindingController
from gateway.customresources import CustomResources
from gateway.definitioncontroller import DefinitionController
from gateway.workspaces import WorkspaceWorker
from store.engine import Engine
from store.lifecycle import Lifecycle
from store.types import Event, EventType, PreconditionFailed, Range, StoreError

logger = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 0.2
"""Deletions come in swarms: a namespace's quotas are counted once they have passed."""


class QuotaRecounts:
    """Counts the quotas of a namespace afresh after deletions, which the garbage collector does not settle."""

    def __init__(self, store: Engine, plugin: ResourceQuota, custom: CustomResources) -> None:
        self._store = store
        self._plugin = plugin
        self._custom = custom
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
        if listing.items:
            await self._custom.ensure(space)
        for stored in listing.items:
            await self._plugin.recount(stored, time.time())


@asynccontextmanager
async def running(
    store: Engine, database_url: str, url: str, custom: CustomResources, quotas: ResourceQuota
) -> AsyncIterator[None]:
    """The workers run; an advisory lock makes sure that one process does what only one may."""
    recounts = QuotaRecounts(store, quotas, custom)
    controller = DefinitionController(store)
    bindings = BindingController(store)
    tree = WorkspaceWorker(store, database_url, url)
    undos = [store.subscribe(worker.on_events) for worker in (recounts, controller, bindings, tree)]
    tasks = [
        asyncio.create_task(controller.run()),
        asyncio.create_task(Lifecycle(store, database_url, custom.resource_of).run()),
        asyncio.create_task(recounts.run()),
        asyncio.create_task(bindings.run()),
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
