"""What goes on behind the requests in one API server process of a database: ends of namespaces and owners, recounts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import orjson

from access.admission.kubernetes.namespacelifecycle import IMMORTAL
from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from access.admission.tenancy.workspaceobjectprotection import marks_of
from access.reloading import ReloadedFile
from gateway.controllers.apibindings import BindingController
from gateway.controllers.clusterroles import ClusterRoleController
from gateway.controllers.definitions import DefinitionController
from gateway.controllers.namespacecontents import NamespaceContentsController
from gateway.controllers.policytypes import PolicyTypesController
from gateway.controllers.publications import PublicationController
from gateway.controllers.workspaces import WorkspaceController
from gateway.resources.customresources import CustomResources
from kube.customresources.endings import PODS
from kube.objects import publications
from kube.objects.publications import NAMESPACES
from kube.quota import tenantquotas
from kube.quota.tenantquotas import PLACED_RESERVATIONS, PLACED_USAGES, TENANT_QUOTAS
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.workspaces.types import LOGICAL_CLUSTERS
from store.engine import Engine
from store.fairqueue import FairQueue
from store.garbagecollection import GarbageCollector
from store.supervision import Supervised
from store.types import Event, EventType, Key, PreconditionFailed, Range, Room, StoreError
from tenants.clusters.objects import NAMESPACE

logger = logging.getLogger(__name__)

_RESOURCE_QUOTAS: Final = ("", "resourcequotas")
_PLACED: Final = frozenset({PLACED_RESERVATIONS, PLACED_USAGES})
"""What says what is used, and takes nothing itself."""

_TENANTS: Final = (ROOT, "", "tenants")
_WITH_THE_SPACE: Final = frozenset({LOGICAL_CLUSTERS, TENANT_QUOTAS})
_PUBLISHED_COPY: Final = f'"{publications.ORIGIN}"'.encode()
_MARK: Final = b'"deletionTimestamp"'
_SETTLE_SECONDS: Final = 0.2
"""Deletions come in swarms: a namespace's quotas are counted once they have passed."""


class Doors(Protocol):
    """Where people may write, answered from memory."""

    def holds(self, cluster: str, namespace: str) -> bool:
        """Whether what people have set off there waits."""
        ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told when any door has changed; what this returns ends it."""
        ...


class QuotaController:
    """Counts quotas of namespaces and tenants afresh after what no admission settles: collections, first objects."""

    def __init__(
        self, store: Engine, plugin: ResourceQuota, tenants: TenantQuotaAdmission, custom: CustomResources
    ) -> None:
        self._store = store
        self._plugin = plugin
        self._tenants = tenants
        self._custom = custom
        self._queue = FairQueue(self._reconcile_safely)
        self._lost: dict[tuple[str, str], set[tuple[str, str]] | None] = {}
        """By space and namespace, of which resources something went there; ``None`` where everything is to be counted."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Note the namespaces and tenants that lost something, or got a quota."""
        self._note_tenants(events)
        self._note_namespaces(events)

    def on_remade(self, space: str, namespace: str) -> None:
        """Note a namespace in which something was made that no admission has counted."""
        self._note(space, namespace, None)

    def _note_namespaces(self, events: Sequence[Event]) -> None:
        """What went is counted afresh, unless a change of the namespace's quotas follows, as for tenants; so is what is marked."""
        pending: Key | None = None
        for event in events:
            key = event.key
            if pending is not None and not _settles(event, pending):
                self._note(pending.space, pending.namespace, {pending[1:3]})
            pending = None
            if not key.namespace:
                continue
            if key[1:3] == _RESOURCE_QUOTAS and (
                event.type is EventType.ADDED
                or _counts_anew(event)
                or (_PUBLISHED_COPY in event.data and not _is_settled(event.data))
            ):
                self._note(key.space, key.namespace, None)
            elif _marks(event):
                self._note(key.space, key.namespace, {key[1:3]})
            elif event.type is EventType.DELETED and not _is_copy(event.data):
                pending = key
        if pending is not None:
            self._note(pending.space, pending.namespace, {pending[1:3]})

    def _note(self, space: str, namespace: str, lost: set[tuple[str, str]] | None) -> None:
        place = space, namespace
        known = self._lost.get(place, set())
        self._lost[place] = None if lost is None or known is None else known | lost
        self._enqueue(Key(space, "", "resourcequotas", namespace, ""))

    def _note_tenants(self, events: Sequence[Event]) -> None:
        """What came or went counts afresh, unless a change of the tenant's quota follows: its admission has settled it."""
        pending: Key | None = None
        for event in events:
            key = event.key
            if key[1:3] == TENANT_QUOTAS:
                if pending is not None and tenant_of(pending.space) != tenant_of(key.space):
                    self._enqueue_tenant(pending)
                pending = None
                if not tenantquotas.is_counted(orjson.loads(event.data)) or _counts_anew(event):
                    self._enqueue_tenant(key)
            elif key[1:3] != _RESOURCE_QUOTAS:
                counts = event.type is not EventType.MODIFIED and key[1:3] not in _PLACED
                # Most change what is there, and need not be looked through.
                if (counts or pending is not None) and not _is_copy(event.data):
                    if pending is not None:
                        self._enqueue_tenant(pending)
                    pending = key if counts else None
        if pending is not None:
            self._enqueue_tenant(pending)

    def _enqueue_tenant(self, key: Key) -> None:
        self._enqueue(Key(key.space, key.group, key.resource, "", ""))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    def _enqueue(self, key: Key) -> None:
        self._queue.add_later(key, _SETTLE_SECONDS)

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            if key.namespace:
                await self._recount(key.space, key.namespace)
            elif (key[1:3] == TENANT_QUOTAS or await self._tenants.concerns(key)) and await self._tenants.recount(
                tenant_of(key.space)
            ):
                # To whoever reads the log, this settles what went meanwhile.
                self._enqueue(key)
        except StoreError as error:
            if not isinstance(error, PreconditionFailed):
                logger.warning("quotas of %s %s were not recounted: %s", key.space, key.namespace, error)
            self._enqueue(key)
        except BaseException:
            # Whatever it was, it must be done when this begins anew.
            self._queue.add(key)
            raise

    async def _recount(self, space: str, namespace: str) -> None:
        lost = self._lost.pop((space, namespace), set())
        try:
            if not (await self._store.list(Range(space, "", "resourcequotas", namespace))).items:
                return
            await self._custom.ensure(space)
            written = await self._plugin.recount(space, namespace, lost)
        except BaseException:
            self._note(space, namespace, lost)
            raise
        if written:
            # To whoever reads the log, this settles what went meanwhile.
            self._note(space, namespace, lost)


def _settles(event: Event, lost: Key) -> bool:
    """Whether this is what the admission has kept together with a deletion: another status of a quota there."""
    key = event.key
    if key[1:3] != _RESOURCE_QUOTAS or (key.space, key.namespace) != (lost.space, lost.namespace):
        return False
    if event.type is not EventType.MODIFIED or event.previous is None:
        return False
    before, after = (_without_status(orjson.loads(data)) for data in (event.previous, event.data))
    return before == after


def _marks(event: Event) -> bool:
    """Whether a pod has been deleted and waits for its finalizers: from now on it takes less, and nobody settles that."""
    if event.key[1:3] != PODS or event.type is not EventType.MODIFIED or event.previous is None:
        return False
    return _MARK in event.data and _MARK not in event.previous


def _counts_anew(event: Event) -> bool:
    """Whether a quota counts something else than before: who wrote while that was counted did not know that it counts."""
    if event.type is not EventType.MODIFIED or event.previous is None:
        return False
    before, after = (orjson.loads(data).get("spec") for data in (event.previous, event.data))
    return bool(before != after)


def _without_status(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "status": None, "metadata": {**body["metadata"], "resourceVersion": ""}}


def _is_copy(data: bytes) -> bool:
    """Whether this is published to the tenant, and counts in none of its quotas."""
    return _PUBLISHED_COPY in data and publications.is_copy(orjson.loads(data))


def _is_settled(quota: bytes) -> bool:
    """Whether a ResourceQuota's status is about what it limits now: what is published to a tenant changes on no request."""
    body = orjson.loads(quota)
    hard: dict[str, str] = (body.get("status") or {}).get("hard") or {}
    return hard == ((body.get("spec") or {}).get("hard") or {})


def outlives_owners(key: Key, body: Mapping[str, Any]) -> bool:
    """Whether an object stays when its owners go: what a DELETE is refused for, and what ends by a person's order.

    The first namespaces, those of workspaces wherever these are, and what begins and ends with a space.
    """
    if key[1:3] == NAMESPACES:
        return key.name in IMMORTAL or bool(marks_of(body))
    return key[:3] == _TENANTS or key[1:3] in _WITH_THE_SPACE


@asynccontextmanager
async def run_controllers(
    store: Engine,
    database_url: str,
    url: str,
    bundle: ReloadedFile[str],
    custom: CustomResources,
    quotas: ResourceQuota,
    tenant_quotas: TenantQuotaAdmission,
    refused: Collection[tuple[str, str]],
    doors: Doors,
    room: Callable[[Key], Awaitable[Room | None]],
    further: Sequence[tuple[str, Callable[[], Awaitable[None]]]] = (),
) -> AsyncIterator[None]:
    """The workers run; an advisory lock makes sure that one process does what only one may.

    ``bundle`` is what clients verify the server with, at ``url``; ``refused`` are the resources that no tenant's space may
    hold; ``doors`` say where what a deletion sets off waits; ``room`` what a tenant's objects may take; ``further`` are
    workers of floors above, by name.
    """
    recounts = QuotaController(store, quotas, tenant_quotas, custom)
    controller = DefinitionController(store, doors.holds)
    bindings = BindingController(store, doors.holds, room)
    tree = WorkspaceController(store, database_url, url, doors.holds, room)
    roles = ClusterRoleController(store, database_url)
    contents = NamespaceContentsController(store, database_url, bundle, recounts.on_remade)
    types = PolicyTypesController(store, custom)
    published = PublicationController(store, database_url, custom.resource_of, refused)
    lifecycle = GarbageCollector(
        store,
        database_url,
        custom.resource_of,
        doors.holds,
        is_workspaces=NAMESPACE.fullmatch,
        outlives_owners=outlives_owners,
    )

    def knowing(run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Until the definitions of this history are known, nobody is an owner that is gone, or of a kind that is not served."""

        async def work() -> None:
            await custom.load()
            await run()

        return work

    undos = [store.subscribe(worker.on_events) for worker in (recounts, controller)]
    undos += [store.subscribe(worker.on_events, resources=worker.resources) for worker in (bindings, tree, types)]
    undos += [doors.subscribe(worker.on_doors) for worker in (lifecycle, controller, bindings, tree)]
    tasks = [
        Supervised("definitions", controller.run),
        Supervised("lifecycle", knowing(lifecycle.run)),
        Supervised("quotas", recounts.run),
        Supervised("apibindings", bindings.run),
        Supervised("workspaces", tree.run),
        Supervised("clusterroles", roles.run),
        Supervised("namespaces", contents.run),
        Supervised("published", knowing(published.run)),
        Supervised("policytypes", types.run),
        *(Supervised(name, run) for name, run in further),
    ]

    def begin_anew() -> None:
        for task in tasks:
            task.restart()

    # What they have noted is of a history that is no more.
    undos.append(store.subscribe(lambda _: None, lost=begin_anew))
    for task in tasks:
        task.start()
    try:
        yield
    finally:
        for undo in undos:
            undo()
        for task in tasks:
            await task.stop()
