"""Keeps copies of the system space's published objects in tenants' spaces (AZ8): one worker of a database.

A tenant is looked at as a whole: what is due there is read from the database at once, and each copy is written by
itself. What makes that safe:

1. Only the leader works. Should two believe so for a moment, every write holds the revisions of what it rests on: the
   source, the tenant, the namespace. So no copy comes of an object that is not published any more, none into a space
   that ends, and none over what somebody else has made meanwhile.
2. Nothing is kept between two looks. Events, and a scan when somebody begins to lead, only say where to look: published
   objects and tenants are remembered by name.
3. A copy is found by its mark, which nobody but this worker can write, and is of the source whose UID it bears.
4. What is to be in a placed namespace is kept as a record, by the same rules; ``gateway.upstream.placed.copies`` makes the
   cluster follow it, and writes into it how it stands there.

One change of a source is about every tenant: they are looked at in swarms, each read by one statement, and written by as
few as the store's committer makes of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.resources.objects import timestamp
from kube.customresources.endings import ending
from kube.kinds.reststrategies import counts_generations
from kube.objects import publications
from kube.objects.publications import (
    DEFINITIONS,
    NAMESPACES,
    ORIGIN,
    PLACED_COPIES,
    PUBLISHED,
    REPORT,
    Publication,
    Reason,
    Step,
)
from kube.requests.logicalclusters import ROOT, full_path, is_tenant_space, space_of, tenant_of
from kube.workspaces.namespacecontents import ROOT_CERTIFICATES, SERVICE_ACCOUNT, service_account
from store.engine import Engine
from store.fairqueue import FairQueue
from store.pace import Pace
from store.postgresql.leadership import RETRY_SECONDS, CheckLeadership, lead
from store.types import (
    Check,
    Create,
    Delete,
    Event,
    EventType,
    Key,
    Operation,
    PreconditionFailed,
    Range,
    Stored,
    StoreError,
    Update,
)
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 7_236_018_503
_TENANTS: Final = (ROOT, "", "tenants")
_PUBLISHED: Final = f'"{PUBLISHED}"'.encode()
_ORIGIN: Final = f'"{ORIGIN}"'.encode()
_REPORT: Final = f'"{REPORT}"'.encode()
_SWARM: Final = Key(*_TENANTS, "", "")
"""In the queue: some of what is due."""

_TOGETHER: Final = 256
"""Copies that are looked at together, as many as the store's committer takes at once."""

_REPORT_SECONDS: Final = 0.5
"""Tenants are settled in swarms: a source is told of them once they have passed."""

Body = dict[str, Any]
ResourceOf = Callable[[str, str, str], tuple[str, bool] | None]
"""(space, apiVersion, kind) → the resource in the store's keys and whether it is namespaced; ``None`` if not served."""


class PublicationController:
    """The worker; ``run`` works until it is cancelled. ``refused`` are the kinds that no tenant's space may hold."""

    def __init__(
        self, store: Engine, conninfo: str, resource_of: ResourceOf, refused: Collection[tuple[str, str]]
    ) -> None:
        self._store = store
        self._conninfo = conninfo
        self._resource_of = resource_of
        self._refused = refused
        self._queue = FairQueue(self._reconcile_safely)
        self._restart = asyncio.Event()
        self._sources: dict[Key, Publication] = {}
        self._tenants: set[str] = set()
        self._due: dict[str, dict[Key, None]] = {}
        """Tenant → the sources that are to be looked at there."""
        self._waiting: defaultdict[Key, set[str]] = defaultdict(set)
        """The same by source, whose report waits for them."""
        self._outcomes: defaultdict[Key, dict[str, Reason | None]] = defaultdict(dict)
        self._reports: dict[Key, asyncio.TimerHandle] = {}
        self._writing: set[Key] = set()
        """Copies that are being written: what the log brings of it needs no further look."""

    async def run(self) -> None:
        """Wait to become the leader, work, and wait again whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-published", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._forget()
        undo = self._store.subscribe(self._note, lost=self._restart.set)

        async def go_on() -> None:
            if self._restart.is_set():
                raise StoreError("the history was replaced")
            await check_leadership()

        try:
            await self._begin()
            await self._queue.run(go_on, every=RETRY_SECONDS)
        finally:
            undo()
            self._forget()

    def _forget(self) -> None:
        self._restart.clear()
        self._queue.clear()
        for known in (self._sources, self._tenants, self._due, self._waiting, self._outcomes, self._writing):
            known.clear()
        for timer in self._reports.values():
            timer.cancel()
        self._reports.clear()

    async def _begin(self) -> None:
        """Find what is published, and every copy, whatever an earlier leader has done of its work."""
        for item in (await self._store.list(Range(*_TENANTS))).items:
            self._tenants.add(item.key.name)
        for key in await self._store.keys_containing(_PUBLISHED, _ORIGIN, _REPORT):
            if key.space == ROOT:
                stored = await self._store.get(key, cached=True)
                publication = publications.publication_of(key[1:3], orjson.loads(stored.data)) if stored else None
                if publication is not None:
                    self._sources[key] = publication
                self._report_later(key)
            elif is_tenant_space(key.space):
                self._enqueue(tenant_of(key.space), [source_of(key)])
        # Those that came meanwhile, too: when they did, not all tenants were known.
        for tenant in self._tenants:
            self._enqueue(tenant, self._sources)

    # What the log brings.

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.key
            if key.space == ROOT:
                if key[:3] == _TENANTS:
                    self._note_tenant(event)
                self._note_source(event)
                if key[1:3] == DEFINITIONS:
                    for tenant in self._tenants:
                        self._enqueue(tenant, self._sources_of_definition(event))
            elif is_tenant_space(key.space):
                self._note_in_space(event, tenant_of(key.space))

    def _note_tenant(self, event: Event) -> None:
        name = event.key.name
        if event.type is EventType.DELETED:
            self._tenants.discard(name)
            self._due.pop(name, None)
            for source in self._sources:
                self._settled(source, name, None, meant=False)
            return
        self._tenants.add(name)
        before = orjson.loads(event.previous)["metadata"] if event.previous is not None else {}
        after = orjson.loads(event.data)["metadata"]
        if any(before.get(field) != after.get(field) for field in ("uid", "labels", "deletionTimestamp")):
            self._enqueue(name, self._sources)

    def _note_source(self, event: Event) -> None:
        key, publication = event.key, None
        if event.type is not EventType.DELETED and _PUBLISHED in event.data:
            publication = publications.publication_of(key[1:3], orjson.loads(event.data))
        if publication is not None or key in self._sources:
            self._learn(key, publication)
            self._report_later(key)

    def _learn(self, key: Key, publication: Publication | None) -> None:
        if publication is not None and self._sources.get(key) == publication:
            return
        if publication is None:
            self._sources.pop(key, None)
        else:
            self._sources[key] = publication
        for tenant in self._tenants:
            self._enqueue(tenant, [key])

    def _note_in_space(self, event: Event, tenant: str) -> None:
        key = event.key
        source, is_copy = source_of(key), _ORIGIN in event.data
        if event.type is EventType.DELETED:
            is_due = source in self._sources
        else:
            is_due = (is_copy and key not in self._writing) or (not is_copy and source in self._sources)
        if is_due:
            self._enqueue(tenant, [source])
        if key[1:3] == NAMESPACES:
            self._enqueue(tenant, [each for each in self._sources if each.namespace == key.name])
        elif key[1:3] == DEFINITIONS:
            self._enqueue(tenant, self._sources_of_definition(event))

    def _sources_of_definition(self, event: Event) -> list[Key]:
        group = orjson.loads(event.data)["spec"]["group"]
        return [key for key in self._sources if key.group == group]

    def _enqueue(self, tenant: str, sources: Iterable[Key]) -> None:
        due = self._due.setdefault(tenant, {})
        for source in sources:
            due[source] = None
            self._waiting[source].add(tenant)
        if due:
            self._queue.add(_SWARM)
        else:
            del self._due[tenant]

    # Copies.

    async def _reconcile_safely(self, key: Key) -> None:
        if self._restart.is_set():
            return
        if key == _SWARM:
            await self._reconcile_swarm(self._next())
        else:
            await self._tell(key)

    def _next(self) -> list[tuple[str, Key]]:
        """Some of what is due, of as many tenants as there are; those with more take turns."""
        share, pairs = max(1, _TOGETHER // max(1, len(self._due))), list[tuple[str, Key]]()
        for tenant in list(self._due)[:_TOGETHER]:
            sources = list(self._due.pop(tenant))
            pairs += [(tenant, source) for source in sources[:share]]
            self._enqueue(tenant, sources[share:])
        if self._due:
            self._queue.add(_SWARM)
        return pairs

    async def _reconcile_swarm(self, pairs: Sequence[tuple[str, Key]]) -> None:
        """Look at sources at tenants: all is read at once, each copy is written by itself."""
        keys: dict[Key, None] = {}
        for tenant, source in pairs:
            place = source._replace(space=space_of(tenant))
            keys[place] = None
            if source.namespace:
                keys |= dict.fromkeys((record_key(place), _namespace_key(place.space, place.namespace)))
        found = await self._store.current(list(keys))
        outcomes = await asyncio.gather(
            *(self._settle(tenant, source, found) for tenant, source in pairs), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _settle(self, name: str, source: Key, found: Mapping[Key, Stored]) -> None:
        tenant = await self._store.get(Key(*_TENANTS, "", name), cached=True)
        metadata = orjson.loads(tenant.data)["metadata"] if tenant is not None else {}
        if tenant is None or "deletionTimestamp" in metadata:
            # What is there goes with the space.
            self._settled(source, name, None, meant=False)
            return
        place = source._replace(space=space_of(name))
        namespace = found.get(_namespace_key(place.space, source.namespace)) if source.namespace else None
        try:
            stored = await self._store.get(source, cached=True)
            publication = self._sources.get(source) if stored is not None else None
            if publication is not None and not publication.means(metadata.get("labels") or {}):
                publication = None
            obstacle = self._obstacle(publication, source, place, namespace)
            cluster = _placement(namespace)
            there = found.get(place if cluster is None else record_key(place))
            body = orjson.loads(there.data) if there is not None else None
            if cluster is None:
                step, reason = publications.step(publication, body, obstacle)
                operations = await self._operations(step, publication, place, there, body)
            else:
                step, reason = publications.placed_step(publication, body, cluster, obstacle)
                operations = _recorded(step, publication, record_key(place), cluster, there, body)
            if operations:
                rests_on = [Check(source, stored.revision if stored is not None else 0)]
                if step is Step.CREATE or cluster is not None:
                    rests_on.append(Check(tenant.key, tenant.revision))
                    if namespace is not None:
                        rests_on.append(Check(namespace.key, namespace.revision))
                await self._write(place, operations, rests_on)
            self._settled(source, name, reason, meant=publication is not None)
        except PreconditionFailed:
            await asyncio.sleep(0.01)
            self._enqueue(name, [source])
        except (KeyError, TypeError, ValueError, AttributeError):
            # An object that is not shaped as it should be must not stop the work for all others.
            logger.exception("%s %s/%s cannot be published to %s", *source[2:], name)

    async def _write(self, place: Key, operations: Sequence[Operation], rests_on: Sequence[Operation]) -> None:
        self._writing.add(place)
        try:
            await self._store.commit(*operations, *rests_on)
        finally:
            self._writing.discard(place)

    def _obstacle(
        self, publication: Publication | None, source: Key, place: Key, namespace: Stored | None
    ) -> Reason | None:
        """What is in the way of a new copy."""
        if publication is None:
            return None
        served = self._resource_of(place.space, publication.form["apiVersion"], publication.form["kind"])
        if served != (source.resource, bool(source.namespace)) or source[1:3] in self._refused:
            return Reason.KIND_NOT_SERVED
        if not source.namespace:
            return None
        if namespace is None:
            return Reason.NO_NAMESPACE
        ends = "deletionTimestamp" in orjson.loads(namespace.data)["metadata"]
        return Reason.NAMESPACE_ENDING if ends else None

    async def _operations(
        self, step: Step, publication: Publication | None, place: Key, there: Stored | None, body: Body | None
    ) -> list[Operation]:
        if step is Step.CREATE and publication is not None:
            made: list[Operation] = [Create(place, _new(publication, place))]
            if place[1:3] == NAMESPACES:
                group, resource, name = SERVICE_ACCOUNT
                account = Key(place.space, group, resource, place.name, name)
                now = timestamp(time.time())
                made.append(Create(account, service_account(place.space, place.name, uid=str(uuid.uuid4()), now=now)))
            return made
        if step is Step.NONE or there is None or body is None:
            return []
        if step is Step.REPLACE and publication is not None:
            return [Update(place, there.revision, publications.replaced(body, publication))]
        if place[1:3] == NAMESPACES:
            return [Update(place, there.revision, await self._ended(place, body))]
        return [Delete(place, there.revision, body)]

    async def _ended(self, place: Key, body: Body) -> Body:
        """A namespace that is published no more: deleted, or, when the tenant has something in it, the tenant's own."""
        if await self._is_in_use(place):
            labels = {name: value for name, value in body["metadata"]["labels"].items() if name != ORIGIN}
            return {**body, "metadata": {**body["metadata"], "labels": labels}}
        return ending(NAMESPACES, body, now=timestamp(time.time()))

    async def _is_in_use(self, place: Key) -> bool:
        pace = Pace()
        for group, resource in await self._store.resources(place.space, place.name):
            async for item in pace.over(
                (await self._store.list(Range(place.space, group, resource, place.name))).items
            ):
                held = (*item.key[1:3], item.key.name) in (SERVICE_ACCOUNT, ROOT_CERTIFICATES)
                if not held and not publications.is_copy(orjson.loads(item.data)):
                    return True
        return False

    # What the source is told.

    def _settled(self, source: Key, tenant: str, reason: Reason | None, *, meant: bool) -> None:
        """A tenant has the object, has not for a reason, or is not meant."""
        if meant:
            self._outcomes[source][tenant] = reason
        else:
            self._outcomes[source].pop(tenant, None)
        self._waiting[source].discard(tenant)
        self._report_later(source)

    def _report_later(self, source: Key) -> None:
        if source not in self._reports and not self._waiting[source]:
            loop = asyncio.get_running_loop()
            self._reports[source] = loop.call_later(_REPORT_SECONDS, self._report, source)

    def _report(self, source: Key) -> None:
        self._reports.pop(source, None)
        if not self._waiting[source]:
            self._queue.add(source)

    async def _tell(self, key: Key) -> None:
        """Write the report into a source, and take it out of what is published no more."""
        stored = await self._store.get(key, cached=True)
        wanted = publications.report(self._outcomes[key]) if key in self._sources else None
        if wanted is None and not self._waiting[key]:
            del self._waiting[key]
            self._outcomes.pop(key, None)
        body = orjson.loads(stored.data) if stored is not None else None
        if stored is None or body is None or publications.reported(body) == wanted:
            return
        try:
            await self._store.commit(Update(key, stored.revision, publications.with_report(body, wanted)))
        except PreconditionFailed:
            self._report_later(key)


def _new(publication: Publication, place: Key) -> Body:
    """A copy as it comes into a space."""
    form = publication.form
    plural, _, defined = place.resource.partition(":")
    version = form["apiVersion"].rpartition("/")[2]
    metadata: Body = {
        **form["metadata"],
        "name": place.name,
        "uid": str(uuid.uuid4()),
        "creationTimestamp": timestamp(time.time()),
        "tenant": tenant_of(place.space),
        "selfLink": full_path(place.space, place.group, version, plural, namespace=place.namespace, name=place.name),
    }
    if place.namespace:
        metadata["namespace"] = place.namespace
    if defined or counts_generations((place.group, plural)):
        metadata["generation"] = 1
    first = {"status": {"phase": "Active"}} if place[1:3] == NAMESPACES else {}
    return {**form, "metadata": metadata, **first}


def _recorded(
    step: Step, publication: Publication | None, key: Key, place: Body, there: Stored | None, body: Body | None
) -> list[Operation]:
    """Writes the record of a copy in a placed namespace; ``place`` is where that is."""
    now = timestamp(time.time())
    if step is Step.CREATE and publication is not None:
        identity = {"name": key.name, "namespace": key.namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now}
        return [Create(key, publications.placed_record(publication, place, identity))]
    if there is None or body is None or step is Step.NONE:
        return []
    if step is Step.REPLACE and publication is not None:
        kept = {name: value for name, value in body["metadata"].items() if name != "deletionTimestamp"}
        return [Update(key, there.revision, publications.placed_record(publication, place, kept))]
    return [Update(key, there.revision, {**body, "metadata": {**body["metadata"], "deletionTimestamp": now}})]


def _placement(namespace: Stored | None) -> Body | None:
    """Where a placed namespace is, as records say it; ``None`` for a stored one."""
    labels = (orjson.loads(namespace.data)["metadata"].get("labels") or {}) if namespace is not None else {}
    if CLUSTER_LABEL not in labels:
        return None
    return {"cluster": labels[CLUSTER_LABEL], "workspace": labels.get(WORKSPACE_LABEL, "")}


def source_of(key: Key) -> Key:
    """The object of the system space that a copy, or the record of one on a cluster, is of."""
    if key[1:3] == PLACED_COPIES and key.name.count("|") >= 2:
        group, resource, name = key.name.split("|", 2)
        return Key(ROOT, group, resource, key.namespace, name)
    return key._replace(space=ROOT)


def record_key(place: Key) -> Key:
    """Where it is kept what a placed namespace is to have in this place."""
    return Key(place.space, *PLACED_COPIES, place.namespace, f"{place.group}|{place.resource}|{place.name}")


def _namespace_key(space: str, name: str) -> Key:
    return Key(space, *NAMESPACES, "", name)
