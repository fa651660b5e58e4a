"""Lists and watches across namespaces of which one is on a cluster that means harm: the others' go on (GW4, GW5, D8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from gateway.filters.requestinfo import resolve
from gateway.handlers import acrossnamespaces
from gateway.handlers.acrossnamespaces import watching
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from gateway.resources.kinds import Catalogs
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.client import Upstream
from gateway.upstream.placements import Placements
from gateway.upstream.versions import MergedVersions
from kube.authentication.identity import Principal
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.requests.status import Forbidden, StatusError
from store.engine import Engine, Options
from store.types import Create, Key
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tests.databases import migrated
from tests.gateway.upstream.asking import PATIENT, until
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster

SPACE = "root:acme"
NAMESPACES = {"acme-evil": "evil", "acme-good": "good"}
SUSPENDED = Forbidden("the workspace is suspended: unpaid")
TABLE = b"application/json;as=Table;v=v1;g=meta.k8s.io"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
COLUMNS = [{"name": name, "type": "string"} for name in ("Name", "Data", "Age")]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("merged") as url:
        yield url


def config_map(name: str, namespace: str, version: int = 7) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


def event(type_: str, shown: Any) -> bytes:
    return json.dumps({"type": type_, "object": shown}).encode() + b"\n"


def status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": f"it says {code}"}


def answer(code: int) -> bytes:
    return ok(json.dumps(status(code)).encode()).replace(b"200 OK", b"%d Said" % code)


class Side:
    """A cluster with one config map in one namespace. ``harm`` is what it says instead to a list, or to a watch."""

    def __init__(self, name: str) -> None:
        self.namespace = next(namespace for namespace, cluster in NAMESPACES.items() if cluster == name)
        self.name = name
        self.lists: list[str] = []
        self.watches = 0
        self.harm: dict[str, bytes] = {}
        self.continues = ""
        self.head: dict[str, Any] = {}
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def behave(self, visit: Visit) -> None:
        while True:
            line, headers, _ = await visit.request()
            path = line.split()[1].decode()
            if "watch=true" in path:
                self.watches += 1
                await self._watched(visit)
                return
            self.lists.append(path)
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
            return WorkspaceRoles.of({"viewer": (Rule(("*",), ("",), ("*",)),)}, {"viewer": "viewer"})

        async def token(*_: Any) -> str:
            return "workspace"

        async def trusted() -> None:
            """It hears of everything."""

        self.sides, self.closed = sides, False
        self.streams = OpenStreams()
        self.placements = Placements(store)
        self.runtime = SimpleNamespace(
            store=store,
            placements=self.placements,
            clusters=SimpleNamespace(upstream=lambda name: upstreams[name], roles=roles),
            workspace_tokens=SimpleNamespace(get=token),
            held_answers=HeldAnswers(),
            merged_versions=MergedVersions(),
            open_streams=self.streams,
            throttle=SimpleNamespace(require_room=lambda _: None),
            trustworthy=True,
            require_trustworthy=trusted,
        )

    async def recheck(self) -> None:
        if self.closed:
            raise SUSPENDED

    def _asked(self, accept: bytes, query: dict[str, str]) -> Request:
        info = resolve("GET", b"/api/v1/configmaps", b"watch=true" if "watch" in query else b"", "acme", None)
        who = Principal(name="anna", tenant="acme", groups=("tenantry:owner",), authenticator="test")
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

    async def list(self, accept: bytes = b"application/json", **query: str) -> tuple[dict[str, Any], list[str]]:
        """The list, and what is warned of."""
        request = self._asked(accept, query)
        kind = Catalogs().require(request.info)
        places, _ = await self.placements.in_space(SPACE)
        runtime = cast("Runtime", self.runtime)
        found = await acrossnamespaces.list_(runtime, request, kind, self.recheck, places)
        return orjson.loads(found.body), request.warnings

    async def watch(self, **query: str) -> AsyncIterator[bytes]:
        request = self._asked(b"application/json", {"watch": "true", **query})
        kind = Catalogs().require(request.info)
        places, since = await self.placements.in_space(SPACE)
        runtime = cast("Runtime", self.runtime)
        stream = await acrossnamespaces.watch(runtime, request, kind, self.recheck, places, since)
        return stream.chunks


@asynccontextmanager
async def space(database: str) -> AsyncIterator[Space]:
    async with AsyncExitStack() as stack:
        sides, upstreams = {name: Side(name) for name in ("evil", "good")}, {}
        for name, side in sides.items():
            cluster = await stack.enter_async_context(raw_cluster(side.behave))
            upstreams[name] = Upstream(replace(cluster.cluster, name=name), PATIENT)
            stack.push_async_callback(upstreams[name].close)
        store = await stack.enter_async_context(Engine(database, Options(poll_seconds=0.05)))
        for number, (namespace, cluster_name) in enumerate(NAMESPACES.items()):
            key = Key(SPACE, "", "namespaces", "", namespace)
            labels = {CLUSTER_LABEL: cluster_name, WORKSPACE_LABEL: f"w{number}"}
            if await store.get(key) is None:
                body = {"metadata": {"name": namespace, "labels": labels}, "status": {"phase": "Active"}}
                await store.commit(Create(key, body))
        here = Key(SPACE, "", "configmaps", "here", "stored")
        if await store.get(here) is None:
            await store.commit(Create(here, config_map("stored", "here")))
        async with asyncio.timeout(300):
            yield Space(store, sides, upstreams)


def namespaces(body: dict[str, Any]) -> set[str]:
    return {each.get("object", each)["metadata"]["namespace"] for each in body.get("rows", body.get("items"))}


HARM = {
    "400": answer(400),
    "410": answer(410),
    "429": answer(429),
    "500": answer(500),
    "no JSON": ok(b"{"),
    "no list": ok(b"[]"),
    "a Status": ok(json.dumps({**status(410), "metadata": 5}).encode()),
    "no HTTP": b"nonsense\r\n\r\n",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("harm", HARM)
async def test_a_cluster_that_refuses_what_is_right_is_named_and_the_others_rows_are_shown(
    database: str, harm: str
) -> None:
    async with space(database) as there:
        there.sides["evil"].harm["list"] = HARM[harm]
        body, warnings = await there.list(TABLE)
        assert namespaces(body) == {"here", "acme-good"}
        (warning,) = warnings
        assert warning.startswith('the namespace "acme-evil" is missing: ')


@pytest.mark.parametrize("harm", HARM)
async def test_nobody_is_told_that_what_was_right_is_wrong_or_that_a_version_expired_that_was_not_named(
    database: str, harm: str
) -> None:
    """An informer takes no part for the whole; and it does not begin anew, again and again, because of one cluster."""
    async with space(database) as there:
        there.sides["evil"].harm["list"] = HARM[harm]
        with pytest.raises(StatusError) as refused:
            await there.list()
        assert refused.value.code == (429 if harm == "429" else 502)
        assert "evil" in refused.value.message or harm == "429"


@pytest.mark.parametrize("code", [400, 410])
async def test_who_names_a_version_or_a_token_is_told_what_its_cluster_says_of_it(database: str, code: int) -> None:
    async with space(database) as there:
        evil = there.sides["evil"]
        evil.continues = "more"
        body, _ = await there.list(limit="500")
        number, token = body["metadata"]["resourceVersion"], body["metadata"]["continue"]
        evil.harm |= {"list": answer(code), "continue": answer(code)}
        with pytest.raises(StatusError) as refused:
            await there.list(limit="500", **{"continue": token})
        assert (refused.value.code, refused.value.message) == (code, f"it says {code}")
        with pytest.raises(StatusError) as refused:
            await there.list(resourceVersion=number, resourceVersionMatch="Exact")
        assert refused.value.code == (410 if code == 410 else 502)
        with pytest.raises(StatusError) as refused:
            await there.list(labelSelector="a=b")
        assert refused.value.code == (400 if code == 400 else 502)


@pytest.mark.parametrize("code", [400, 410])
async def test_a_page_that_nobody_has_asked_for_by_its_token_expires_for_nobody(database: str, code: int) -> None:
    """A whole list is read in pages here."""
    async with space(database) as there:
        there.sides["evil"].continues = "more"
        there.sides["evil"].harm["continue"] = answer(code)
        with pytest.raises(StatusError) as refused:
            await there.list()
        assert refused.value.code == 502


@pytest.mark.parametrize("code", [400, 410, 500])
async def test_of_a_cluster_that_does_not_go_on_the_rest_is_missing(database: str, code: int) -> None:
    async with space(database) as there:
        for side in there.sides.values():
            side.continues = "more"
        first, warnings = await there.list(TABLE, limit="500")
        assert (namespaces(first), warnings) == ({"here", *NAMESPACES}, [])
        there.sides["evil"].harm["continue"] = answer(code)
        there.sides["good"].continues = ""
        second, warnings = await there.list(TABLE, limit="500", **{"continue": first["metadata"]["continue"]})
        assert namespaces(second) == {"acme-good"}
        assert [said.partition(":")[0] for said in warnings] == ['the rest of the namespace "acme-evil" is missing']
        assert not second["metadata"].get("continue")


@pytest.mark.parametrize("accept", [TABLE, b"application/json"])
async def test_what_a_cluster_says_of_a_list_is_not_said_of_the_others(database: str, accept: bytes) -> None:
    """Also where it is the first whose part is shown."""
    async with space(database) as there:
        for side in there.sides.values():
            side.continues = "more"
        first, _ = await there.list(accept, limit="500")
        there.sides["evil"].head = {"kind": "Status", "apiVersion": "v9", "code": 410, "columnDefinitions": []}
        there.sides["evil"].harm = {"continue": ok(json.dumps(there.sides["evil"]._list(as_table=False)).encode())}
        if accept == TABLE:
            table = {**there.sides["evil"]._list(as_table=True), "rows": [], "continue": ""}
            there.sides["evil"].harm = {"continue": ok(json.dumps(table).encode())}
        second, _ = await there.list(accept, limit="500", **{"continue": first["metadata"]["continue"]})
        assert "acme-good" in namespaces(second)
        names = ("kind", "apiVersion", "columnDefinitions")
        assert {name: second.get(name) for name in names} == {name: first.get(name) for name in names}
        assert "code" not in second


LIES = {
    "400": answer(400),
    "500": answer(500),
    "no HTTP": b"nonsense\r\n\r\n",
    "an error of 400": event("ERROR", status(400)),
    "no event": event("ADDED", 5),
    "another kind's": event("ADDED", {**config_map("x", "acme-evil"), "kind": "Status"}),
    "another version's": event("MODIFIED", {**config_map("x", "acme-evil"), "apiVersion": "v9"}),
    "no kind's": event("DELETED", {"metadata": config_map("x", "acme-evil")["metadata"]}),
    "another namespace's": event("ADDED", config_map("x", "acme-good")),
}


async def told(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Types and names of events, or the code of an error."""
    async for chunk in chunks:
        for line in chunk.splitlines():
            said = orjson.loads(line)
            shown = said["object"]
            yield said["type"], str(shown["code"] if said["type"] == "ERROR" else shown["metadata"].get("name"))


async def goes_on(there: Space, events: AsyncIterator[tuple[str, str]]) -> None:
    """While one cluster has been asked again and again, whatever is added elsewhere is told of, and nothing else."""
    evil, good = there.sides["evil"], there.sides["good"]
    for number in range(3):
        before, following = evil.watches, asyncio.ensure_future(anext(events))
        await until(lambda before=before: evil.watches > before)
        good.events.put_nowait(event("ADDED", config_map(f"g{number}", "acme-good", 8 + number)))
        assert await following == ("ADDED", f"g{number}")


@pytest.mark.parametrize("lie", LIES)
async def test_a_watch_goes_on_whatever_one_cluster_says(
    database: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))
    async with space(database) as there:
        there.sides["evil"].harm["watch"] = LIES[lie]
        async with aclosing(await there.watch()) as chunks, aclosing(told(chunks)) as events:
            assert {await anext(events) for _ in range(3)} == {("ADDED", "there"), ("ADDED", "stored")}
            await goes_on(there, events)


@pytest.mark.parametrize("expired", [answer(410), event("ERROR", status(410))], ids=["status", "event"])
async def test_a_cluster_that_calls_everything_expired_ends_what_the_others_give_once(
    database: str, expired: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be true: then a new list and what follows it are. Who says the same of these is one that does not answer."""
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))
    async with space(database) as there:
        there.sides["evil"].harm["watch"] = expired
        body, _ = await there.list()
        async with aclosing(told(await there.watch(resourceVersion=body["metadata"]["resourceVersion"]))) as events:
            assert [each async for each in events] == [("ERROR", "410")]
        for again in (True, False):
            body, _ = await there.list()
            query = {"resourceVersion": body["metadata"]["resourceVersion"]} if again else {}
            async with aclosing(await there.watch(**query)) as chunks, aclosing(told(chunks)) as events:
                if not again:
                    assert {await anext(events) for _ in range(3)} == {("ADDED", "there"), ("ADDED", "stored")}
                await goes_on(there, events)


async def test_what_a_cluster_calls_its_objects_is_told_as_objects_of_the_kind(database: str) -> None:
    async with space(database) as there:
        shown = {**config_map("there", "acme-evil"), "kind": "Status", "apiVersion": "v9"}
        listed = {"kind": "x", "metadata": {"resourceVersion": "7"}, "items": [shown]}
        there.sides["evil"].harm["list"] = ok(json.dumps(listed).encode())
        async with aclosing(await there.watch()) as chunks:
            lines = [orjson.loads(await anext(chunks)) for _ in range(3)]
    assert {(line["object"]["kind"], line["object"]["apiVersion"]) for line in lines} == {("ConfigMap", "v1")}


async def test_nothing_that_waits_is_shown_once_the_right_has_ended(database: str) -> None:
    """GW5: a client that does not keep up has hundreds of events before it."""
    async with space(database) as there:
        good = there.sides["good"]
        async with aclosing(await there.watch()) as chunks:
            for _ in range(3):
                await anext(chunks)
            for number in range(400):
                good.events.put_nowait(event("ADDED", config_map(f"g{number}", "acme-good", 8 + number)))
            said = b""
            while not said:
                said = await anext(chunks)
            assert b'"g0"' in said
            # Nobody reads on, and what comes meanwhile waits.
            await until(good.events.empty)
            for _ in range(20):
                await asyncio.sleep(0)
            there.closed = True
            there.streams.reauthorize(None)
            (stream,) = there.streams._open
            await stream.ended
            lines = [orjson.loads(line) async for chunk in chunks for line in chunk.splitlines()]
    assert [(line["type"], line["object"]["message"]) for line in lines] == [("ERROR", SUSPENDED.message)]
    assert len(there.streams) == 0


async def test_nothing_of_a_long_beginning_is_shown_once_the_right_has_ended(database: str) -> None:
    async with space(database) as there, aclosing(await there.watch()) as chunks:
        assert orjson.loads(await anext(chunks))["type"] == "ADDED"
        there.closed = True
        there.streams.reauthorize(None)
        (stream,) = there.streams._open
        await stream.ended
        assert [event_ async for event_ in told(chunks)] == [("ERROR", "403")]
