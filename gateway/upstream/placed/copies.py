"""Keeps copies of published objects in placed namespaces, where their objects live: on clusters (AZ8).

``gateway.controllers.publications`` says in records what is to be where. One process of a database makes it so:

1. A record is there before its copy, and goes after it: whoever leads next finds every copy that there may be.
2. What is there is read as the workspace, by the least of its roles that may; it is written as the gateway, which may
   write there nothing but what bears the mark, and nobody else may (``tenants/manifests/fences.yaml``).
3. A record is looked at when it or its namespace changes, again while its cluster is away, and now and then: what an
   administrator of the cluster has changed comes back, and what was in the way may be gone.
4. The mark of what is to go stays for as long as a cluster may work at a write of somebody who has crashed: what comes of
   it late is found and taken away.
5. How it stands is written into the record, on its revision. Whoever finds it gone by then, frozen in between say, takes
   away what it has just made.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from gateway.controllers.publications import source_of
from gateway.upstream.answers import Room, says_not_found, whole
from gateway.upstream.clusters import ClusterQueues, Clusters
from gateway.upstream.placements import Placement, placement_in
from gateway.upstream.reading import Unserved, read_object_as
from gateway.upstream.served import is_served
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.rbac import Attributes
from kube.objects import publications
from kube.objects.publications import PLACED_COPIES, Publication, Reason
from kube.requests.durations import parse_time
from kube.requests.status import ServiceUnavailable, StatusError
from store.engine import Engine
from store.postgresql.leadership import RETRY_SECONDS, CheckLeadership, lead
from store.types import AllSpaces, Delete, Event, Key, PreconditionFailed, Range, Stored, StoreError, Update
from tenants.clusters.client import object_path

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_000A
LOOK_SECONDS: Final = 60.0
REST_SECONDS: Final = 5.0
_IN_FLIGHT_SECONDS: Final = 75.0
"""How long after it was begun a write may still take effect: a cluster's usual ``--request-timeout``, and some."""

_PATIENCE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.1

Body = dict[str, Any]


class PlacedCopies:
    """The work of one process; ``run`` until it is cancelled."""

    def __init__(self, store: Engine, clusters: Clusters, tokens: WorkspaceTokens, database_url: str) -> None:
        self._store = store
        self._clusters = clusters
        self._tokens = tokens
        self._conninfo = database_url
        self._leads = False
        self._queues = ClusterQueues("copies", self._settle_safely)

    def on_events(self, events: Sequence[Event]) -> None:
        """Note what is to be somewhere, and namespaces that come, become ready, or go."""
        if not self._leads:
            return
        for event in events:
            key = event.key
            if key[1:3] == PLACED_COPIES:
                self._enqueue(key, event.data)
            elif key[1:3] == ("", "namespaces") and (placement := placement_in(event.data, key)) is not None:
                self._queues.add(placement.cluster, key)

    def _enqueue(self, key: Key, data: bytes) -> None:
        self._queues.add(orjson.loads(data)["spec"]["cluster"], key)

    async def run(self) -> None:
        """Wait until this process leads, and work for every cluster by itself."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-copies", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        looked = float("-inf")
        self._leads = True
        try:
            while True:
                if time.monotonic() - looked > LOOK_SECONDS:
                    for stored in (await self._store.list(AllSpaces(*PLACED_COPIES))).items:
                        self._enqueue(stored.key, stored.data)
                    looked = time.monotonic()
                await self._queues.part(self._clusters.names)
                await check_leadership()
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._leads = False
            await self._queues.stop()

    async def _settle_safely(self, key: Key) -> None:
        try:
            if key[1:3] == PLACED_COPIES:
                await self._settle(key)
                return
            for stored in (await self._store.list(Range(key.space, *PLACED_COPIES, key.name))).items:
                self._enqueue(stored.key, stored.data)
        except StoreError as error:
            # Everything is looked at again within a minute.
            logger.warning("a copy on a cluster was not looked at: %s", type(error).__name__)

    async def _settle(self, key: Key) -> None:
        """Make a cluster have what a record says, and the record say whether it has."""
        stored = await self._store.get(key)
        if stored is None:
            return
        record = orjson.loads(stored.data)
        cluster = record["spec"]["cluster"]
        namespace = await self._store.get(Key(key.space, "", "namespaces", "", key.namespace))
        placement = placement_in(namespace.data, namespace.key) if namespace is not None else None
        if placement is None or (placement.cluster, placement.workspace) != (cluster, record["spec"]["workspace"]):
            # The namespace that it was for is gone, and all that was in it.
            await self._commit(Delete(key, stored.revision, record), None)
            return
        if not placement.is_active:
            await self._tell(stored, record, placement, Reason.NAMESPACE_CLOSED)
            return
        try:
            publication = await self._wanted(key, record)
            async with asyncio.timeout(_PATIENCE_SECONDS):
                reason = await self._copy(placement, stored.key, record).follow(publication)
        except (StatusError, TimeoutError) as error:
            logger.info("the cluster %s is asked for a copy again: %s", cluster, type(error).__name__)
            reason = Reason.CLUSTER_AWAY
            self._queues.add_later(cluster, key, REST_SECONDS)
        except _Overtaken:
            self._queues.add_later(cluster, key, _AGAIN_SECONDS)
            return
        await self._tell(stored, record, placement, reason)

    async def _wanted(self, key: Key, record: Mapping[str, Any]) -> Publication | None:
        """What the cluster is to have. Raises ``_Overtaken`` where another record is about to say so."""
        if "deletionTimestamp" in record["metadata"]:
            return None
        source = source_of(key)
        stored = await self._store.get(source)
        publication = publications.publication_of(source[1:3], orjson.loads(stored.data)) if stored else None
        if publication is None or publications.digest_of(publication) != record["spec"]["digest"]:
            raise _Overtaken
        return publication

    async def _tell(self, stored: Stored, record: Body, placement: Placement, reason: Reason | None) -> None:
        ended = record["metadata"].get("deletionTimestamp")
        if ended is not None and reason is None:
            if time.time() - (parse_time(ended) or 0.0) > _IN_FLIGHT_SECONDS:
                await self._commit(Delete(stored.key, stored.revision, record), placement)
            else:
                self._queues.add_later(placement.cluster, stored.key, REST_SECONDS)
        elif publications.told_of(record) != reason:
            await self._commit(Update(stored.key, stored.revision, {**record, "status": {"reason": reason}}), placement)
        elif reason is None and await self._store.get(stored.key) is None:
            await self._undo(stored.key, record, placement)

    async def _commit(self, operation: Update | Delete, placement: Placement | None) -> None:
        try:
            await self._store.commit(operation)
        except PreconditionFailed as error:
            # Another state of the record is looked at by its own event.
            if error.current is None and placement is not None:
                await self._undo(operation.key, operation.body, placement)

    async def _undo(self, key: Key, record: Body, placement: Placement) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._copy(placement, key, record).follow(None)
        except (StatusError, TimeoutError, _Overtaken):
            logger.warning("a copy in the namespace %s was published no more when it was made", key.namespace)

    def _copy(self, placement: Placement, key: Key, record: Body) -> _Copy:
        return _Copy(self._clusters, self._tokens, placement, key, record["spec"]["apiVersion"])


class _Overtaken(Exception):
    """Look again in a moment."""


class _Copy:
    """One object on a cluster; ``version`` is its API's."""

    def __init__(
        self, clusters: Clusters, tokens: WorkspaceTokens, placement: Placement, record: Key, version: str
    ) -> None:
        source = source_of(record)
        self._clusters = clusters
        self._tokens = tokens
        self._placement = placement
        self._place = (source.group, source.resource.partition(":")[0])
        self._version = version.rpartition("/")[2]
        self._name = source.name
        self._collection = object_path(source.group, self._version, self._place[1], namespace=placement.namespace)

    async def follow(self, publication: Publication | None) -> Reason | None:
        """Make it as it must be, or say why it is not. Raises ``StatusError``, and ``_Overtaken``."""
        role = await self._reader()
        if role is None:
            # What nobody in the namespace may see, nobody asks for; an older copy goes without having been looked at.
            return Reason.KIND_NOT_SERVED if publication is not None else await self._remove({})
        found = await self._read(role)
        if found is not None and not publications.is_copy(found):
            return None if publication is None else Reason.NAME_TAKEN
        if publication is None or (found is not None and publications.origin_of(found) != publication.uid):
            reason = await self._delete(found)
            if reason is not None or publication is None:
                return reason
            found = None
        wanted = publications.placed_form(publication, found)
        if wanted is None:
            return None
        metadata = {**wanted["metadata"], "name": self._name, "namespace": self._placement.namespace}
        if found is not None:
            held = {**metadata, "resourceVersion": found["metadata"].get("resourceVersion")}
            status = await self._send("PUT", {**wanted, "metadata": held}, name=self._name)
            if status != 422:
                return _reason(status)
            # What cannot be changed, an immutable Secret say, is made anew.
            if (reason := await self._delete(found)) is not None:
                return reason
        return _reason(await self._send("POST", {**wanted, "metadata": metadata}))

    async def _reader(self) -> str | None:
        wanted = Attributes("get", *self._place, "", self._placement.namespace, self._name)
        return (await self._clusters.roles(self._placement.cluster)).least(wanted)

    async def _read(self, role: str) -> Body | None:
        path = f"{self._collection}/{quote(self._name, safe=':')}"
        try:
            return await read_object_as(self._clusters, self._tokens, self._placement, role, path)
        except Unserved:
            await self._require_unserved()
            return None

    async def _require_unserved(self) -> None:
        """Raise ``ServiceUnavailable`` unless the cluster has not the kind: what else answers 404 does not say that a copy is gone."""
        group, plural = self._place
        if await is_served(self._clusters, self._placement.cluster, (group, self._version, plural)):
            raise ServiceUnavailable("it answers 404")

    async def _delete(self, found: Body | None) -> Reason | None:
        return None if found is None else await self._remove({"uid": found["metadata"].get("uid")})

    async def _remove(self, preconditions: Mapping[str, Any]) -> Reason | None:
        """The fence lets nothing be removed that does not bear the mark."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        status = await self._send("DELETE", options, name=self._name)
        return None if status == 404 else _reason(status)

    async def _send(self, method: str, body: Body, name: str = "") -> int:
        """The status of a write as the gateway. Raises ``StatusError``, and ``_Overtaken``."""
        upstream, token = self._clusters.as_gateway(self._placement.cluster)
        path = f"{self._collection}/{quote(name, safe=':')}" if name else self._collection
        headers = (
            (b"accept", b"application/json"),
            (b"content-type", b"application/json"),
            (b"user-agent", b"tenantry"),
        )
        data = orjson.dumps(body)
        answer = await upstream.request(
            method, path.encode("ascii"), headers, data, token=token, audit_id=str(uuid.uuid4())
        )
        said = await whole(answer, self._placement.cluster, Room())
        if answer.status == 409:
            raise _Overtaken
        if answer.status in (401, 429) or answer.status >= 500:
            raise ServiceUnavailable(f"it answers {answer.status}")
        if answer.status == 404 and not says_not_found(said):
            await self._require_unserved()
        if answer.status >= 400:
            # What it says may repeat the object, and a copy of a Secret is one.
            logger.info(
                "the cluster %s refuses a copy: %d, %d bytes", self._placement.cluster, answer.status, len(said)
            )
        return answer.status


def _reason(status: int) -> Reason | None:
    """What an answer to a write means."""
    if status < 300:
        return None
    return Reason.KIND_NOT_SERVED if status == 404 else Reason.CLUSTER_REFUSES
