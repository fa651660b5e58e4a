"""Connections to a cluster: kept, bounded, and never used twice for what must not happen twice (GW4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.upstream.client import Answer, BadGateway, Upstream
from gateway.upstream.tunnel import Tunnel
from kube.requests.status import ServiceUnavailable
from tests.gateway.upstream.asking import HEADERS, PATIENT, ask, until, upstream_of, whole
from tests.gateway.upstream.rawcluster import Visit, answering, ok


async def test_a_connection_is_kept_and_used_again() -> None:
    async with upstream_of(answering(ok(b"abc"))) as (cluster, upstream):
        for _ in range(5):
            answer = await ask(upstream)
            assert await whole(answer) == b"abc"
        assert (cluster.visits, upstream.connections) == (1, 1)


async def test_idle_connections_are_bounded_and_let_go() -> None:
    entered = asyncio.Semaphore(0)
    go = asyncio.Event()

    async def behave(visit: Visit) -> None:
        while True:
            await visit.request()
            entered.release()
            await go.wait()
            await visit.say(ok())

    async with upstream_of(behave, replace(PATIENT, idle_connections=2, idle_seconds=0.05)) as (_, upstream):
        asking = [asyncio.ensure_future(ask(upstream)) for _ in range(5)]
        for _ in range(5):
            await entered.acquire()
        assert upstream.connections == 5
        go.set()
        await asyncio.gather(*asking)
        await until(lambda: upstream.connections == 0)


async def test_more_connections_than_a_cluster_is_worth_are_refused() -> None:
    async def behave(visit: Visit) -> None:
        await visit.reader.read()

    async with upstream_of(behave, replace(PATIENT, connections=2)) as (_, upstream):
        asking = [asyncio.ensure_future(ask(upstream)) for _ in range(2)]
        await until(lambda: upstream.connections == 2)
        with pytest.raises(ServiceUnavailable) as refused:
            await ask(upstream)
        assert refused.value.retry_after == 1
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        await until(lambda: upstream.connections == 0)


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("POST", 1), ("PUT", 1), ("PATCH", 1), ("DELETE", 1)])
async def test_only_a_get_on_a_kept_connection_is_sent_twice(method: str, times: int) -> None:
    """A write may have been done: whoever asked for it is told that nobody knows."""
    heard = []

    async def behave(visit: Visit) -> None:
        while True:
            line, _, _ = await visit.request()
            if not line.endswith(b"/first HTTP/1.1"):
                heard.append(line)
                if visit.number == 0:
                    visit.cut()
                    return
            await visit.say(ok(b"done"))

    async with upstream_of(behave) as (_, upstream):
        await ask(upstream, target=b"/first")
        if times == 2:
            assert await whole(await ask(upstream, method)) == b"done"
        else:
            with pytest.raises(BadGateway, match="whether the request took effect is unknown") as refused:
                await ask(upstream, method)
            assert refused.value.retry_after is None
    assert len(heard) == times


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2"])
async def test_nothing_is_sent_twice_over_a_new_connection_or_once_an_answer_has_begun(said: bytes) -> None:
    heard = []

    async def behave(visit: Visit) -> None:
        while True:
            line, _, _ = await visit.request()
            if line.startswith(b"GET /first") and said:
                await visit.say(ok())
                continue
            heard.append(line)
            await visit.say(said)
            visit.writer.close()
            return

    async with upstream_of(behave) as (_, upstream):
        if said:
            await ask(upstream, target=b"/first")
        with pytest.raises(BadGateway):
            await ask(upstream)
    assert len(heard) == 1


@pytest.mark.parametrize("way", ["request", "upgrade"])
async def test_a_cluster_that_hangs_up_before_it_is_asked_is_not_waited_for(way: str) -> None:
    """GW4: nothing hangs. Whether the right still holds may take its time to be said, and the cluster need not wait for it."""

    async def behave(visit: Visit) -> None:
        visit.cut()

    async def asked(upstream: Upstream) -> Answer | Tunnel:
        async def permit() -> None:
            await until(lambda: not upstream.connections)

        if way == "request":
            return await upstream.request("GET", b"/api", HEADERS, b"", token="t", audit_id="a", permit=permit)
        upgrade = (*HEADERS, (b"upgrade", b"websocket"))
        return await upstream.upgrade("GET", b"/exec", upgrade, token="t", audit_id="a", permit=permit)

    async with upstream_of(behave, replace(PATIENT, answer_seconds=5)) as (_, upstream):
        with pytest.raises(BadGateway, match="it closed the connection"):
            await asked(upstream)
