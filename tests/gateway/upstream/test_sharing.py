"""The connections to a cluster, when several tenants want many."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import replace

import pytest

from gateway.upstream.availability import Availability
from gateway.upstream.client import Answer, Upstream
from kube.requests.status import ServiceUnavailable, TooManyRequests
from tests.gateway.upstream.asking import HEADERS, PATIENT, until, upstream_of, whole
from tests.gateway.upstream.rawcluster import Visit, ok


async def _stream(visit: Visit) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            line, *_ = await visit.request()
            if b"/watch" not in line:
                await visit.say(ok(b"short"))
                continue
            await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n")
            await visit.reader.read()
            return


async def test_whoever_holds_much_leaves_connections_to_others() -> None:
    """DOS-02: alone a tenant gets half; however much others hold, who comes next gets half of what is left."""
    async with upstream_of(_stream, replace(PATIENT, connections=48)) as (_, upstream):
        held: dict[str, list[Answer]] = {"": []}
        for tenant, at_most in (("one", 24), ("two", 12), ("three", 6), ("four", 3)):
            held[tenant] = []
            with pytest.raises(TooManyRequests, match=r'too many open watches.*"prod"') as refused:
                while True:
                    held[tenant].append(await watch(upstream, tenant))
            assert refused.value.retry_after == 5
            assert len(held[tenant]) == at_most
        # Operators, and the gateway itself, are bound by what there is alone.
        held[""].append(await watch(upstream, ""))
        # Whoever ends some lets others in, not himself first.
        for answer in held["one"][:8]:
            answer.close()
        await until(lambda: upstream.connections == 38)
        with pytest.raises(TooManyRequests):
            await watch(upstream, "one")
        held["four"].append(await watch(upstream, "four"))


async def test_kept_connections_are_left_to_others_too() -> None:
    """What others have used and given back is no way past the share, however often they do."""
    async with upstream_of(_stream, replace(PATIENT, connections=16)) as (_, upstream):
        held = []
        for _ in range(20):
            answer = await upstream.request("GET", b"/short", HEADERS, b"", token="t", audit_id="a", tenant="many")
            assert await whole(answer) == b"short"
            with contextlib.suppress(TooManyRequests):
                held.append(await watch(upstream, "one"))
        assert len(held) == 8


async def test_what_each_tenant_holds_is_known_whatever_begins_ends_breaks_or_fails() -> None:
    async with upstream_of(_stream, replace(PATIENT, connections=24, idle_connections=2)) as (cluster, upstream):
        upstream._availability = Availability(0)
        order = random.Random(7)
        held: list[tuple[str, Answer]] = []
        for _ in range(300):
            tenant = order.choice(("a", "b", "c"))
            match order.choice(("watch", "watch", "ask", "end", "away")):
                case "watch":
                    with contextlib.suppress(TooManyRequests):
                        held.append((tenant, await watch(upstream, tenant)))
                case "ask":
                    with contextlib.suppress(TooManyRequests):
                        answer = await upstream.request(
                            "GET", b"/short", HEADERS, b"", token="t", audit_id="a", tenant=tenant
                        )
                        assert await whole(answer) == b"short"
                case "end" if held:
                    held.pop(order.randrange(len(held)))[1].close()
                case "away":
                    cluster.close()
                    with contextlib.suppress(ServiceUnavailable, TooManyRequests):
                        held.append((tenant, await watch(upstream, tenant)))
                    await cluster.open()
            truth = Counter(name for name, _ in held)
            await until(lambda truth=truth: upstream._held == truth)
        for _, answer in held:
            answer.close()
        await until(lambda: not upstream._held)


async def watch(upstream: Upstream, tenant: str) -> Answer:
    return await upstream.request(
        "GET", b"/watch", HEADERS, b"", token="t", audit_id="a", long_running=True, tenant=tenant
    )
