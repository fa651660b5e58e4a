"""What a watch across namespaces holds, whatever its clusters send and however slowly its client reads (GW4, DOS-03)."""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace

import orjson
import pytest

from gateway.handlers.acrossnamespaces import watching
from gateway.handlers.acrossnamespaces.turns import ROOM, Turn, Turns
from gateway.upstream.answers import LINE_MAX, SHORT
from kube.requests.status import TooManyRequests
from tests.databases import migrated
from tests.gateway.upstream.asking import HEADERS, PATIENT, until
from tests.gateway.upstream.mergedspace import TABLE, Space, config_map, event, space, told
from tests.gateway.upstream.rawcluster import ok

KIB = 1024


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("merged-bounds") as url:
        yield url


class Counted:
    """The most that a watch has held, and its longest turn."""

    most = longest = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, put = Counted(), Turns.put

    async def noted(turns: Turns, turn: Turn) -> None:
        await put(turns, turn)
        counted.most, counted.longest = max(counted.most, turns.held), max(counted.longest, len(turn.lines))

    monkeypatch.setattr(Turns, "put", noted)
    return counted


def large(name: str, namespace: str, version: int, size: int) -> bytes:
    return event("ADDED", {**config_map(name, namespace, version), "data": {"a": "x" * size}})


async def begun(there: Space, **query: str) -> AsyncIterator[bytes]:
    """A watch of what happens from now on."""
    body, _ = await there.list()
    return await there.watch(resourceVersion=body["metadata"]["resourceVersion"], **query)


@pytest.mark.parametrize("size", [KIB, 200 * KIB, ROOM + KIB], ids=["short", "long", "longer than all the room"])
async def test_a_client_that_reads_slowly_makes_its_clusters_wait(database: str, size: int, counted: Counted) -> None:
    """None of 24 MiB is lost or told twice, and never more than the room is held, or one event that is longer."""
    number = 24 * ROOM // size // 2
    async with space(database) as there:
        for name, side in there.sides.items():
            for n in range(number):
                side.events.put_nowait(large(f"{name}{n}", side.namespace, 8 + n, size))
        async with aclosing(await begun(there)) as chunks:
            names = []
            async for chunk in chunks:
                names += [orjson.loads(line)["object"]["metadata"]["name"] for line in chunk.splitlines()]
                # The readers go as far as they are let, and no further.
                await until(lambda: counted.most > ROOM - size - KIB)
                for _ in range(20):
                    await asyncio.sleep(0)
                if len(names) == 2 * number:
                    break
            assert counted.most <= max(ROOM, size + 2 * KIB)
    for name in there.sides:
        assert [found for found in names if found.startswith(name)] == [f"{name}{n}" for n in range(number)]


async def test_what_was_told_is_held_by_nobody(database: str, counted: Counted) -> None:
    """Thousands of watches wait for their next event: none keeps the last."""
    async with space(database) as there:
        async with aclosing(await begun(there)) as chunks:
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for side in there.sides.values():
                    side.events.put_nowait(large("long", side.namespace, 9, 4 * ROOM))
                    while len(await anext(chunks)) < 4 * ROOM:
                        pass
                following = asyncio.ensure_future(anext(chunks))
                assert counted.longest > 4 * ROOM
                try:
                    await until(lambda: tracemalloc.get_traced_memory()[0] - before < 3 * ROOM)
                finally:
                    following.cancel()
                    await asyncio.wait([following])
            finally:
                tracemalloc.stop()


async def test_who_comes_first_has_room_first_and_nobody_who_leaves_takes_any_along() -> None:
    """Many short turns of one part keep no long one of another's out; a thousand orders of putting, taking, giving up."""
    order = random.Random(11)
    turns, put, taken = Turns(), list[asyncio.Task[None]](), list[int]()
    for number in range(1000):
        size = order.choice((0, 10, ROOM // 3, ROOM // 2, 2 * ROOM))
        put.append(asyncio.create_task(turns.put(Turn(version=str(number), lines=b"x" * size))))
        await asyncio.sleep(0)
        put = [task for task in put if not task.done()]
        if put and order.random() < 0.2:
            order.choice(put).cancel()
        await asyncio.sleep(0)
        if turns._waiting and order.random() < 0.5:
            some = await turns.take()
            assert sum(len(turn.lines) for turn in some) <= ROOM or len(some) == 1
            taken += [int(turn.version) for turn in some]
        assert turns.held <= ROOM or turns.held == 2 * ROOM + 256
    assert taken == sorted(taken)
    for task in put:
        task.cancel()
    await asyncio.gather(*put, return_exceptions=True)
    if turns._waiting:
        await turns.take()
    async with asyncio.timeout(300):
        await turns.put(Turn(lines=b"last"))
        assert (await turns.take())[-1].lines == b"last"


async def test_a_line_that_does_not_end_is_held_by_its_tenant_and_given_back(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))
    async with space(database) as there:
        evil, held = there.sides["evil"], there.runtime.held_answers
        async with aclosing(await begun(there)) as chunks, aclosing(told(chunks)) as events:
            following = asyncio.ensure_future(anext(events))
            evil.events.put_nowait(b"{" + b"x" * (4 * SHORT))
            await until(lambda: held.total > 4 * SHORT)
            assert set(held._held) == {"acme"}
            for _ in range(LINE_MAX // (32 * SHORT)):
                evil.events.put_nowait(b"x" * (32 * SHORT))
            # It is asked anew, and what was held is no more.
            await until(lambda: evil.watches == 2 and not held.total)
            there.sides["good"].events.put_nowait(event("ADDED", config_map("g", "acme-good", 8)))
            assert await following == ("ADDED", "g")
        text = there.runtime.metrics.render(
            open_streams=0, revision=0, silence=0, replaced=0, dropped=0, untraced=0, restarts={}
        ).decode()
        assert 'tenantry_cluster_watch_pauses_total{cluster="evil"} 1\n' in text


async def test_versions_that_go_back_end_what_a_cluster_says(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told of is not told again, from any older version on."""
    monkeypatch.setattr(watching, "_PAUSES", (0.01,))
    async with space(database) as there:
        evil = there.sides["evil"]
        async with aclosing(await begun(there)) as chunks, aclosing(told(chunks)) as events:
            evil.events.put_nowait(event("ADDED", config_map("e", "acme-evil", 20)))
            evil.events.put_nowait(event("ADDED", config_map("old", "acme-evil", 12)))
            assert await anext(events) == ("ADDED", "e")
            following = asyncio.ensure_future(anext(events))
            await until(lambda: evil.watches == 2)
            evil.events.put_nowait(event("MODIFIED", config_map("e", "acme-evil", 21)))
            assert await following == ("MODIFIED", "e")


async def test_a_flood_of_bookmarks_is_nothing_to_tell(database: str) -> None:
    async with space(database) as there:
        evil = there.sides["evil"]
        async with aclosing(await begun(there, allowWatchBookmarks="true")) as chunks, aclosing(told(chunks)) as events:
            for number in range(20):
                marks = (event("BOOKMARK", config_map("", "acme-evil", 8 + 500 * number + n)) for n in range(500))
                evil.events.put_nowait(b"".join(marks))
            evil.events.put_nowait(event("ADDED", config_map("e", "acme-evil", 90_000)))
            seen = [await anext(events)]
            while seen[-1] != ("ADDED", "e"):
                seen.append(await anext(events))
            assert len(seen) < 1000


async def test_a_long_beginning_is_held_by_its_tenant_until_it_is_shown(database: str) -> None:
    async with space(database) as there:
        held = there.runtime.held_answers
        shown = {**config_map("there", "acme-evil"), "data": {"a": "x" * (2 * ROOM)}}
        listed = {"kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}, "items": [shown]}
        there.sides["evil"].harm["list"] = ok(json.dumps(listed).encode())
        async with aclosing(await there.watch()) as chunks:
            assert held.total > 2 * ROOM
            for _ in range(3):
                await anext(chunks)
                assert held.total > 2 * ROOM
            following = asyncio.ensure_future(anext(chunks))
            await until(lambda: not held.total)
            following.cancel()
            await asyncio.wait([following])
        # One that nobody begins to read.
        chunks = await there.watch()
        assert held.total
        del chunks
        assert not held.total


async def test_a_client_that_does_not_take_a_long_beginning_is_told_so(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_BEGINNING_SECONDS", 0.0)
    async with space(database) as there, aclosing(await there.watch()) as chunks:
        await anext(chunks)
        (stream,) = there.streams._open
        await stream.ended
        assert [each async for each in told(chunks)] == [("ERROR", "504")]


async def test_what_the_tenant_itself_holds_is_no_pause_of_the_cluster(database: str) -> None:
    """DOS-02: the watch ends with 429 and when to come back, a list is refused so; others go on at that cluster."""
    async with space(database, replace(PATIENT, connections=4)) as there:
        body, _ = await there.list()
        evil = there.upstreams["evil"]
        watch = b"/api/v1/namespaces/acme-evil/configmaps?watch=true"
        held = [
            await evil.request("GET", watch, HEADERS, b"", token="t", audit_id="a", long_running=True, tenant="acme")
            for _ in range(2)
        ]
        async with aclosing(await there.watch(resourceVersion=body["metadata"]["resourceVersion"])) as chunks:
            (line,) = [line async for line in chunks]
        refused = orjson.loads(line)
        assert (refused["type"], refused["object"]["code"], refused["object"]["reason"]) == (
            "ERROR", 429, "TooManyRequests",
        )  # fmt: skip
        assert refused["object"]["details"]["retryAfterSeconds"] == 5
        for accept in (b"application/json", TABLE):
            with pytest.raises(TooManyRequests, match=r'open watches.*"evil"') as told_so:
                await there.list(accept)
            assert told_so.value.retry_after == 5
        other = await evil.request("GET", b"/api/v1/configmaps", HEADERS, b"", token="t", audit_id="a", tenant="other")
        assert other.status == 200
        for each in (*held, other):
            each.close()
        assert there.runtime.metrics._pauses == {}
