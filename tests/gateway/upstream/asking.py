"""The client of a cluster, asked as the gateway asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.upstream.client import Answer, Limits, Upstream
from tests.gateway.upstream.rawcluster import RawCluster, Visit, raw_cluster

PATIENT = Limits(connect_seconds=60, answer_seconds=60)
HEADERS = ((b"accept", b"application/json"),)


@asynccontextmanager
async def upstream_of(
    behave: Callable[[Visit], Awaitable[None]], limits: Limits = PATIENT
) -> AsyncIterator[tuple[RawCluster, Upstream]]:
    async with raw_cluster(behave) as cluster:
        upstream = Upstream(cluster.cluster, limits)
        try:
            async with asyncio.timeout(300):
                yield cluster, upstream
        finally:
            await upstream.close()


async def ask(
    upstream: Upstream, method: str = "GET", target: bytes = b"/api", headers=HEADERS, body: bytes = b""
) -> Answer:
    return await upstream.request(method, target, headers, body, token="workspace", audit_id="a-1")


async def whole(answer: Answer) -> bytes:
    return b"".join([data async for data in answer.chunks])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
