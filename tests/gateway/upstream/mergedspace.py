"""A tenant's space across a stored namespace and two on clusters, of which each says what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import orjson

from gateway.filters.requestinfo import resolve
from gateway.handlers import acrossnamespaces
from gateway.http.messages import Request
from gateway.process.metrics import Metrics
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from gateway.resources.kinds import Catalogs
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.client import Limits, Upstream
from gateway.upstream.placements import Placements
from gateway.upstream.versions import MergedVersions
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden
from store.engine import Engine, Options
from store.types import Create, Delete, Key, Update
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tests.gateway.upstream.asking import PATIENT
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster

SPACE = "root:acme"
NAMESPACES = {"acme-evil": "evil", "acme-good": "good"}
TABLE = b"application/json;as=Table;v=v1;g=meta.k8s.io"
SUSPENDED = Forbidden("the workspace is suspended: unpaid")
NO_PAGE = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 19\r\n\r\n"
    b"404 page not found\n"
)
"""What kube-apiserver answers for a group that it does not serve, and any proxy for whatever it likes."""

CONFIG_MAPS, CLAIMS = "/api/v1/configmaps", "/apis/resource.k8s.io/v1/resourceclaims"
"""A kind that every cluster has, and one that some have."""
VERSIONS = [{"version": "v1"}]
GROUPS = {
    "/apis": {"groups": [{"name": "apps", "versions": VERSIONS}, {"name": "resource.k8s.io", "versions": VERSIONS}]}
}
DISCOVERY = {**GROUPS, "/apis/resource.k8s.io/v1": {"resources": [{"name": "resourceclaims"}]}}
"""What a cluster says that has both."""

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
COLUMNS = [{"name": name, "type": "string"} for name in ("Name", "Data", "Age")]


def config_map(name: str, namespace: str, version: int = 7) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


def claim(name: str, namespace: str, version: int = 7) -> dict[str, Any]:
    return {**config_map(name, namespace, version), "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1"}


def event(type_: str, shown: Any) -> bytes:
    return json.dumps({"type": type_, "object": shown}).encode() + b"\n"


def status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": f"it says {code}"}


def answer(code: int) -> bytes:
    return ok(json.dumps(status(code)).encode()).replace(b"200 OK", b"%d Said" % code)


class Side:
    """A cluster with one object in one namespace. ``harm`` is what it says instead to a list, or to a watch."""

    def __init__(self, name: str) -> None:
        self.namespace = next(namespace for namespace, cluster in NAMESPACES.items() if cluster == name)
        self.name = name
        self.lists: list[str] = []
        self.watches = 0
        self.harm: dict[str, bytes] = {}
        self.continues = ""
        self.head: dict[str, Any] = {}
        self.discovery: dict[str, Any] = DISCOVERY
        self.page: Callable[[dict[str, str]], dict[str, Any]] | None = None
        """What it answers to a list instead, by its query."""
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def behave(self, visit: Visit) -> None:
        while True:
            line, headers, _ = await visit.request()
            path = line.split()[1].decode()
            if "watch=true" in path:
                self.watches += 1
                await self._watched(visit)
                return
            if path.startswith("/apis") and "/namespaces/" not in path:
                told = self.discovery.get(path, NO_PAGE)
                await visit.say(told if isinstance(told, bytes) else ok(json.dumps(told).encode()))
                continue
            self.lists.append(path)
            if self.page is not None:
                query = dict(parse_qsl(urlsplit(path).query))
                await visit.say(ok(json.dumps(self.page(query)).encode()))
                continue
            harm = self.harm.get("continue" if "continue=" in path else "list")
            await visit.say(harm or ok(json.dumps(self._list(as_table=b"as=Table" in headers[b"accept"])).encode()))

    async def _watched(self, visit: Visit) -> None:
        harm = self.harm.get("watch")
        if harm is not None and not harm.startswith(b"{"):
            await visit.say(harm)
            return
        await visit.say(CHUNKED)
        if harm is not None:
            await visit.say(b"%x\r\n%b\r\n0\r\n\r\n" % (len(harm), harm))
            return
        # What comes is told to who is still there.
        gone = asyncio.ensure_future(visit.reader.read(1))
        while True:
            coming = asyncio.ensure_future(self.events.get())
            await asyncio.wait((gone, coming), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                coming.cancel()
                gone.exception()
                return
            data = coming.result()
            await visit.say(b"%x\r\n%b\r\n" % (len(data), data))
            del coming, data

    def _list(self, *, as_table: bool) -> dict[str, Any]:
        metadata = {"resourceVersion": "7", "continue": self.continues}
        shown = config_map("there", self.namespace)
        if as_table:
            rows = [{"cells": ["there", "0", "1d"], "object": shown}]
            return {"kind": "Table", "columnDefinitions": COLUMNS, "metadata": metadata, "rows": rows, **self.head}
        return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [shown], **self.head}


class Space:
    """A tenant's, with a stored namespace and one on each cluster; once it is ``closed`` nobody may look any more."""

    def __init__(self, store: Engine, sides: dict[str, Side], upstreams: dict[str, Upstream]) -> None:
        async def roles(_cluster: str) -> WorkspaceRoles:
            return WorkspaceRoles.of({self.account: (Rule(("*",), ("*",), ("*",)),)}, {self.account: self.account})

        async def authorize(_principal: Principal, info: RequestInfo) -> Decision:
            bound = info.namespace in self.bound
            return Decision(Verdict.ALLOW if bound else Verdict.NO_OPINION, "rbac")

        async def token(*_: Any) -> str:
            return "workspace"

        async def trusted() -> None:
            """It hears of everything."""

        self.store, self.sides, self.upstreams, self.closed = store, sides, upstreams, False
        self.path = CONFIG_MAPS
        self.account, self.group, self.bound = "viewer", "tenantry:owner", set[str]()
        """The account that may everything on the clusters, what anna is in the tenant, and where a RoleBinding is hers."""
        self.streams = OpenStreams()
        self.placements = Placements(store)
        self.runtime = SimpleNamespace(
            store=store,
            placements=self.placements,
            clusters=SimpleNamespace(
                upstream=lambda name: upstreams[name],
                as_gateway=lambda name: (upstreams[name], "gateway"),
                roles=roles,
            ),
            authorization=SimpleNamespace(authorize=authorize),
            workspace_tokens=SimpleNamespace(get=token),
            held_answers=HeldAnswers(),
            merged_versions=MergedVersions(),
            metrics=Metrics(),
            open_streams=self.streams,
            throttle=SimpleNamespace(require_room=lambda _: None),
            trustworthy=True,
            require_trustworthy=trusted,
        )

    async def recheck(self) -> None:
        if self.closed:
            raise SUSPENDED

    def _asked(self, accept: bytes, query: dict[str, str]) -> Request:
        info = resolve("GET", self.path.encode(), b"watch=true" if "watch" in query else b"", "acme")
        who = Principal(name="anna", tenant="acme", groups=(self.group,), authenticator="test")
        headers = ((b"accept", accept),)
        return Request(
            principal=who,
            info=info,
            query=query,
            headers=dict(headers),
            raw_headers=headers,
            body=b"",
            now=time.time(),
        )

    async def place(self, namespace: str, cluster: str, workspace: str, phase: str = "Active") -> None:
        """Have a namespace be on a cluster, as the worker says it."""
        key = Key(SPACE, "", "namespaces", "", namespace)
        labels = {CLUSTER_LABEL: cluster, WORKSPACE_LABEL: workspace}
        body = {"metadata": {"name": namespace, "labels": labels}, "status": {"phase": phase}}
        known = await self.store.get(key)
        await self.store.commit(Create(key, body) if known is None else Update(key, known.revision, body))

    async def remove(self, namespace: str) -> None:
        key = Key(SPACE, "", "namespaces", "", namespace)
        known = await self.store.get(key)
        assert known is not None
        await self.store.commit(Delete(key, known.revision, orjson.loads(known.data)))

    async def list(self, accept: bytes = b"application/json", **query: str) -> tuple[dict[str, Any], list[str]]:
        """The list, and what is warned of."""
        request = self._asked(accept, query)
        kind = Catalogs().require(request.info)
        places, _ = await self.placements.in_space(SPACE)
        runtime = cast("Runtime", self.runtime)
        found = await acrossnamespaces.list_(runtime, request, kind, self.recheck, places)
        return orjson.loads(found.body), request.warnings

    async def watch(self, accept: bytes = b"application/json", **query: str) -> AsyncIterator[bytes]:
        request = self._asked(accept, {"watch": "true", **query})
        kind = Catalogs().require(request.info)
        places, since = await self.placements.in_space(SPACE)
        runtime = cast("Runtime", self.runtime)
        stream = await acrossnamespaces.watch(runtime, request, kind, self.recheck, places, since)
        return stream.chunks


@asynccontextmanager
async def space(database: str, limits: Limits = PATIENT) -> AsyncIterator[Space]:
    async with AsyncExitStack() as stack:
        sides, upstreams = {name: Side(name) for name in ("evil", "good")}, {}
        for name, side in sides.items():
            cluster = await stack.enter_async_context(raw_cluster(side.behave))
            upstreams[name] = Upstream(replace(cluster.cluster, name=name), limits)
            stack.push_async_callback(upstreams[name].close)
        store = await stack.enter_async_context(Engine(database, Options(poll_seconds=0.05)))
        there = Space(store, sides, upstreams)
        for number, (namespace, where) in enumerate(NAMESPACES.items()):
            await there.place(namespace, where, f"w{number}")
        here = Key(SPACE, "", "configmaps", "here", "stored")
        if await store.get(here) is None:
            await store.commit(Create(here, config_map("stored", "here")))
        async with asyncio.timeout(300):
            yield there


def namespaces(body: dict[str, Any]) -> set[str]:
    return {each.get("object", each)["metadata"]["namespace"] for each in body.get("rows") or body["items"]}


async def told(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Types and names of events, or the code of an error."""
    async for chunk in chunks:
        for line in chunk.splitlines():
            said = orjson.loads(line)
            shown = said["object"]
            yield said["type"], str(shown["code"] if said["type"] == "ERROR" else shown["metadata"].get("name"))
