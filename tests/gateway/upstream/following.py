"""A space on three clusters, one of which means harm, and what the product follows there (GW12, GW15, D8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson

from access.credentials.tokenrequests import ClusterToken
from gateway.upstream.client import Cluster, Upstream
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.leastrole import ROLES, WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.kinds.openings import openings_from
from kube.objects.publications import PLACED_COPIES
from kube.quota.tenantquotas import PLACED_USAGES, used_of
from store.engine import Engine, Options
from store.types import Create, Delete, Key, Range
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tenants.quotas import tenant_quota_key
from tests.gateway.upstream.asking import PATIENT
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster

SPACE = "root:acme"
EVIL = "acme-1"
NAMESPACES = {"acme-0": "good", EVIL: "evil", "acme-2": "good"}
"""Wherever names are in order, one comes before that on the cluster that means harm, and one behind it."""

Reply = Callable[[str], Any]
"""Of the path: what is answered, JSON or bytes; ``None`` for never anything."""


def list_of(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": list(items)}


def answering(reply: Reply, heard: list[str]) -> Callable[[Visit], Awaitable[None]]:
    async def behave(visit: Visit) -> None:
        while True:
            line, _, _ = await visit.request()
            heard.append(line.split()[1].decode())
            said = reply(heard[-1])
            if said is None:
                await asyncio.Event().wait()
            elif callable(said):
                await said(visit)
                return
            else:
                await visit.say(ok(said if isinstance(said, bytes) else json.dumps(said).encode()))

    return behave


class Following:
    """The store, and two clusters as the product knows them; ``heard`` are the paths that each was asked for."""

    def __init__(self, store: Engine, database: str, upstreams: dict[str, Upstream], heard: dict[str, list[str]]):
        self.store, self.database, self.heard = store, database, heard
        self.names = frozenset(upstreams)
        self._upstreams = upstreams
        rules = dict.fromkeys(ROLES, (Rule(("*",), groups=("*",), resources=("*",)),))
        self._roles = WorkspaceRoles.of(rules, {f"tenantry-{role}": role for role in ROLES})
        self.opened = openings_from("storageclasses.storage.k8s.io")

    @property
    def all(self) -> frozenset[Cluster]:
        return frozenset(replace(self._upstreams[name].cluster, name=name) for name in self.names)

    def upstream(self, name: str) -> Upstream:
        return self._upstreams[name]

    def as_gateway(self, name: str) -> tuple[Upstream, str]:
        return self._upstreams[name], "gateway"

    async def roles(self, _name: str) -> WorkspaceRoles:
        return self._roles

    def openings(self, _name: str) -> Any:
        return self.opened

    @property
    def tokens(self) -> WorkspaceTokens:
        return WorkspaceTokens(lambda *_: ClusterToken("t", None, datetime.now(UTC) + timedelta(hours=1)))

    async def place(self) -> None:
        """Namespaces on both clusters, and a quota."""
        for name, cluster in NAMESPACES.items():
            labels = {CLUSTER_LABEL: cluster, WORKSPACE_LABEL: str(uuid4())}
            body = {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}}
            await self.store.commit(Create(Key(SPACE, "", "namespaces", "", name), body))
        hard = {"pods": "9", "requests.cpu": "9"}
        quota = {"metadata": {"name": "quota"}, "spec": {"hard": hard}, "status": {"used": dict.fromkeys(hard, "0")}}
        await self.store.commit(Create(tenant_quota_key("acme"), quota))

    async def used(self) -> dict[str, str]:
        stored = await self.store.get(tenant_quota_key("acme"))
        assert stored is not None
        return {name: str(amount) for name, amount in used_of(orjson.loads(stored.data)).items()}

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.timeout(300):
            while not await condition():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def following(database: str, evil: Reply, good: Reply) -> AsyncIterator[Following]:
    replies, heard = {"evil": evil, "good": good}, {"evil": [], "good": []}
    async with AsyncExitStack() as stack:
        upstreams = {}
        for name, reply in replies.items():
            cluster = await stack.enter_async_context(raw_cluster(answering(reply, heard[name])))
            upstreams[name] = Upstream(cluster.cluster, PATIENT)
            stack.push_async_callback(upstreams[name].close)
        store = await stack.enter_async_context(Engine(database, Options(poll_seconds=0.05)))
        followed = Following(store, database, upstreams, heard)
        await followed.place()
        try:
            yield followed
        finally:
            kept = Range(SPACE, "", "namespaces"), Range(SPACE, *PLACED_USAGES), Range(SPACE, *PLACED_COPIES)
            for each in (*kept, tenant_quota_key("acme")):
                await _remove(store, each)


async def _remove(store: Engine, what: Range | Key) -> None:
    found = [await store.get(what)] if isinstance(what, Key) else (await store.list(what)).items
    for stored in found:
        await store.commit(Delete(stored.key, stored.revision, orjson.loads(stored.data)))


@asynccontextmanager
async def at_work(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def pod(cpu: Any, namespace: str = "acme-2") -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"name": "p", "namespace": namespace, "uid": "u"}, "spec": {"containers": containers}}
