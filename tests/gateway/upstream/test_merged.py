"""Lists and watches across namespaces of which one is on a cluster that means harm: the others' go on (GW4, GW5, D8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson
import pytest

from gateway.handlers.acrossnamespaces import watching
from gateway.http.negotiation import YAML_MAX
from kube.requests.status import StatusError
from tests.databases import migrated
from tests.gateway.upstream.asking import until
from tests.gateway.upstream.mergedspace import (
    COLUMNS,
    NAMESPACES,
    NO_PAGE,
    SUSPENDED,
    TABLE,
    Side,
    Space,
    answer,
    config_map,
    event,
    namespaces,
    space,
    status,
    told,
)
from tests.gateway.upstream.rawcluster import ok


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("merged") as url:
        yield url


DEEP: Any = "the innermost"
for _ in range(300):
    DEEP = [DEEP]
"""Values within others, further in than are written anywhere."""

SHOWN = {**config_map("deep", "acme-evil"), "data": DEEP}
DEEP_LIST = json.dumps(
    {"metadata": {"resourceVersion": "7"}, "items": [SHOWN], "rows": [{"cells": [DEEP, "", ""], "object": SHOWN}]}
    | {"columnDefinitions": COLUMNS}
).encode()

HARM = {
    "400": answer(400),
    "404": answer(404),
    "404 page not found": NO_PAGE,
    "410": answer(410),
    "429": answer(429),
    "500": answer(500),
    "no JSON": ok(b"{"),
    "no list": ok(b"[]"),
    "a Status": ok(json.dumps({**status(410), "metadata": 5}).encode()),
    "no HTTP": b"nonsense\r\n\r\n",
    "too deep": ok(DEEP_LIST),
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


@pytest.mark.parametrize("code", [400, 404, 410])
async def test_a_page_that_nobody_has_asked_for_by_its_token_expires_for_nobody(database: str, code: int) -> None:
    """A whole list is read in pages here."""
    async with space(database) as there:
        there.sides["evil"].continues = "more"
        there.sides["evil"].harm["continue"] = answer(code)
        with pytest.raises(StatusError) as refused:
            await there.list()
        assert refused.value.code == 502


@pytest.mark.parametrize("code", [400, 404, 410, 500])
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


async def test_the_chunks_of_what_has_no_version_and_knows_no_limit_go_on(database: str) -> None:
    """As of metrics.k8s.io: no API server takes version 0 for an exact one, in a chunk or in a list that names a number."""
    async with space(database) as there:
        for side in there.sides.values():
            items = [config_map(f"{side.name}{number}", side.namespace) for number in range(3)]
            side.head = {"metadata": {}, "items": items}
        body, _ = await there.list(limit="2")
        found = list(body["items"])
        while token := body["metadata"].get("continue"):
            body, _ = await there.list(limit="2", **{"continue": token})
            found += body["items"]
        names = [item["metadata"]["name"] for item in found]
        assert sorted(names) == ["evil0", "evil1", "evil2", "good0", "good1", "good2", "stored"]
        version = body["metadata"]["resourceVersion"]
        await there.list(resourceVersion=version, resourceVersionMatch="Exact")
        asked = [path for side in there.sides.values() for path in side.lists]
        assert len(asked) > 4
        assert not [path for path in asked if "resourceVersion" in path]


async def test_chunks_of_other_sizes_bring_each_object_once(database: str) -> None:
    """A client may ask for less than before: a part that has no room any more goes on from where it was."""

    def page(side: Side, query: dict[str, str]) -> dict[str, Any]:
        begin = int(query.get("continue", "0"))
        end = begin + min(2, int(query["limit"]))
        items = [config_map(f"{side.name}{number}", side.namespace) for number in range(begin, min(end, 6))]
        return {"metadata": {"resourceVersion": "7", "continue": str(end) if end < 6 else ""}, "items": items}

    async with space(database) as there:
        for side in there.sides.values():
            side.page = partial(page, side)
        body, _ = await there.list(limit="500")
        found = list(body["items"])
        while token := body["metadata"].get("continue"):
            body, _ = await there.list(limit="1", **{"continue": token})
            assert len(body["items"]) <= 1
            found += body["items"]
        names = [item["metadata"]["name"] for item in found]
        assert sorted(names) == sorted([f"{name}{number}" for name in there.sides for number in range(6)] + ["stored"])


async def test_a_page_that_is_longer_than_it_was_asked_for_is_none(database: str) -> None:
    async with space(database) as there:
        evil = there.sides["evil"]
        evil.continues = "more"
        evil.head = {"items": [config_map(f"e{number}", evil.namespace) for number in range(9)]}
        with pytest.raises(StatusError) as refused:
            await there.list(limit="9")
        assert (refused.value.code, "more objects" in refused.value.message) == (502, True)


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
    "404": answer(404),
    "404 page not found": NO_PAGE,
    "500": answer(500),
    "no HTTP": b"nonsense\r\n\r\n",
    "an error of 400": event("ERROR", status(400)),
    "a deep error": event("ERROR", {**status(500), "details": DEEP}),
    "no event": event("ADDED", 5),
    "another kind's": event("ADDED", {**config_map("x", "acme-evil"), "kind": "Status"}),
    "another version's": event("MODIFIED", {**config_map("x", "acme-evil"), "apiVersion": "v9"}),
    "no kind's": event("DELETED", {"metadata": config_map("x", "acme-evil")["metadata"]}),
    "another namespace's": event("ADDED", config_map("x", "acme-good")),
}


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


ENDED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("ended", [ENDED, event("BOOKMARK", config_map("x", "acme-evil", 8))], ids=["empty", "brief"])
async def test_a_cluster_whose_watches_end_at_once_is_asked_no_more_often_than_one_that_fails(
    database: str, ended: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D8: each of them is a connection and a handshake, in every watch of every tenant there, and all share the process."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, *given: Any) -> None:
        if seconds in watching._PAUSES:
            pauses.append(seconds)
            seconds = 0
        await sleep(seconds, *given)

    # However long anything takes here.
    monkeypatch.setattr(watching, "_BRIEF_SECONDS", 600.0)
    monkeypatch.setattr(watching, "_FORGIVEN_SECONDS", 6000.0)
    monkeypatch.setattr(asyncio, "sleep", noted)
    async with space(database) as there:
        there.sides["evil"].harm["watch"] = ended
        async with aclosing(await there.watch()) as chunks, aclosing(told(chunks)) as events:
            assert {await anext(events) for _ in range(3)} == {("ADDED", "there"), ("ADDED", "stored")}
            following = asyncio.ensure_future(anext(events))
            await until(lambda: len(pauses) >= 6)
            there.sides["good"].events.put_nowait(event("ADDED", config_map("g", "acme-good", 8)))
            assert await following == ("ADDED", "g")
    assert pauses[:6] == [0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


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


async def test_what_is_long_is_no_yaml_across_namespaces_either(database: str) -> None:
    """DOS-03: nobody's turn beside the loop is taken by the writing of it."""
    async with space(database) as there:
        long = {**config_map("long", "acme-evil"), "data": {f"k{number}": "v" for number in range(YAML_MAX)}}
        listed = {"metadata": {"resourceVersion": "7"}, "items": [long]}
        there.sides["evil"].harm["list"] = ok(json.dumps(listed).encode())
        body, _ = await there.list()
        assert "acme-evil" in namespaces(body)
        with pytest.raises(StatusError) as refused:
            await there.list(b"application/yaml")
        assert refused.value.code == 406


OTHERS = [{"name": name, "type": "string"} for name in ("Age", "Name", "Immutable", "Data")]
"""The columns of a cluster of another version."""


def rows(type_: str, columns: list[dict[str, str]] | None, namespace: str, *cells: str, version: int = 8) -> bytes:
    metadata = {"name": "any", "namespace": namespace, "resourceVersion": str(version)}
    shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    row = {"cells": list(cells), "object": shown}
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": str(version)}}
    return event(type_, {**table, "columnDefinitions": columns, "rows": [row]})


async def test_rows_of_a_watch_stand_under_one_head_whatever_columns_each_cluster_has(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in lists; and what a cluster says of its columns with a bookmark, which nobody is told, is known all the same."""
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))

    def head_and_cells(line: bytes) -> tuple[list[str], list[str]]:
        table = orjson.loads(line)["object"]
        (row,) = table["rows"]
        return [column["name"] for column in table["columnDefinitions"] or ()], row["cells"]

    async with space(database) as there:
        evil, good = there.sides["evil"], there.sides["good"]
        shown = config_map("there", evil.namespace)
        evil.head = {"columnDefinitions": OTHERS, "rows": [{"cells": ["1d", "there", "no", "0"], "object": shown}]}
        async with aclosing(await there.watch(TABLE)) as chunks:
            lines = (line async for chunk in chunks for line in chunk.splitlines())
            begun = [head_and_cells(await anext(lines)) for _ in range(3)]
            ours = begun[0][0]
            assert ours == ["Name", "Data", "Age"]
            assert (ours, ["there", "0", "1d"]) in begun
            assert all(head == ours for head, _ in begun)
            following = asyncio.ensure_future(anext(lines))
            evil.events.put_nowait(rows("BOOKMARK", OTHERS, evil.namespace, version=8))
            evil.events.put_nowait(rows("ADDED", None, evil.namespace, "2d", "a", "no", "1", version=9))
            assert head_and_cells(await following) == (ours, ["a", "1", "2d"])
            evil.events.put_nowait(rows("MODIFIED", None, evil.namespace, "3d", "a", "no", "2", version=10))
            assert head_and_cells(await anext(lines)) == ([], ["a", "2", "3d"])
            good.events.put_nowait(rows("ADDED", COLUMNS, good.namespace, "g", "1", "2d"))
            assert head_and_cells(await anext(lines)) == (ours, ["g", "1", "2d"])
            plain = rows("MODIFIED", None, good.namespace, "g", "2", "3d", version=9)
            good.events.put_nowait(plain)
            assert await anext(lines) == plain.rstrip()
            following = asyncio.ensure_future(anext(lines))
            evil.events.put_nowait(rows("MODIFIED", None, evil.namespace, "too few", version=11))
            await until(lambda: evil.watches == 2)
            good.events.put_nowait(rows("MODIFIED", None, good.namespace, "g", "3", "4d", version=10))
            assert head_and_cells(await following) == ([], ["g", "3", "4d"])
