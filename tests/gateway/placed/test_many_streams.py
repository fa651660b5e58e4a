"""Everything that a tenant has open ends with its suspension: watches, logs and shells, stored and on clusters (GW5).

``python -m bench door`` plays it with a thousand.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice

import pytest

from bench.measuring.processes import processor_seconds
from tenants.models import Role, Tier
from tenants.services import tenant_suspend
from tests.gateway.callers import PATIENCE, Caller
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.holdingkubelet import holding_kubelet, pod_there
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

STREAMS = int(os.environ.get("SUSPENDED_STREAMS", "100"))
SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n"
)


@dataclass(frozen=True)
class Kind:
    """What is opened, and what stands at its end; nothing can be said on SPDY."""

    name: str
    path: str
    last_words: bytes
    method: str = "GET"
    headers: str = "Connection: close\r\n"


class Opened:
    """One stream, over a connection of its own."""

    def __init__(self, kind: Kind, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.kind, self._reader, self._writer = kind, reader, writer

    async def ended(self) -> tuple[str, float]:
        """What it is, or what it should have said at its end; and when that was, by the loop's clock."""
        said = bytearray()
        while piece := await self._reader.read(65536):
            said += piece
        at = asyncio.get_running_loop().time()
        self._writer.transport.abort()
        return self.kind.name if self.kind.last_words in said else f"{self.kind.name} without its end: {said!r}", at


async def opened(caller: Caller, kind: Kind) -> Opened:
    """A stream that has begun."""
    host, _, port = caller.host.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=caller.context)
    writer.write(f"{kind.method} {kind.path} HTTP/1.1\r\nHost: {caller.host}\r\n{kind.headers}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    status = b"101" if "Upgrade:" in kind.headers else b"200"
    assert head.split(b" ")[1] == status, (kind, head, await reader.read(2000))
    return Opened(kind, reader, writer)


async def ends(caller: Caller, kinds: list[Kind], suspend: Callable[[], object]) -> tuple[Counter[str], list[float]]:
    """How many of each kind have ended as they should, and after how many seconds from the order on, in order."""
    async with asyncio.timeout(PATIENCE + STREAMS):
        gate = asyncio.Semaphore(20)

        async def begun(kind: Kind) -> Opened:
            async with gate:
                return await opened(caller, kind)

        streams = await asyncio.gather(*map(begun, kinds))
        waiting = asyncio.gather(*(stream.ended() for stream in streams))
        await asyncio.sleep(0)
        ordered = asyncio.get_running_loop().time()
        await asyncio.to_thread(suspend)
        found = await waiting
    return Counter(name for name, _ in found), sorted(at - ordered for _, at in found)


def test_nothing_stays_open_when_a_tenant_is_suspended(door: Door) -> None:
    """Watches of a stored and two placed namespaces and across all of them, ``logs -f``, shells and a port: all end and say why."""
    Tier.objects.update(workspaces_per_user=9)
    owner = door.person("olga", Role.OWNER)
    assert owner.post("/api/v1/namespaces", {"metadata": {"name": "here"}}).status == 201
    first, second = door.place(owner, f"{door.name}-a"), door.place(owner, f"{door.name}-b")
    closed = b"locked: unpaid"
    watch = "/api/v1/{}configmaps?watch=true&resourceVersion=0"
    pod = f"/api/v1/namespaces/{first}/pods/web"
    shell = f"{pod}/exec?command=sh&stdin=true&stdout=true"
    kinds = [
        Kind("stored watch", watch.format("namespaces/here/"), closed),
        Kind("placed watch", watch.format(f"namespaces/{first}/"), closed),
        Kind("watch of another namespace", watch.format(f"namespaces/{second}/"), closed),
        Kind("watch across namespaces", watch.format(""), closed),
        Kind("log", f"{pod}/log?follow=true", closed),
        Kind("shell", shell, b"", "POST", SPDY),
        Kind("shell over a WebSocket", shell, closed, headers=WEBSOCKET % "v5.channel.k8s.io"),
        Kind("older shell over a WebSocket", shell, closed, headers=WEBSOCKET % "v4.channel.k8s.io"),
        Kind("port over a WebSocket", f"{pod}/portforward", closed, headers=WEBSOCKET % "SPDY/3.1+portforward.k8s.io"),
    ]
    wanted = list(islice(cycle(kinds), STREAMS))
    with holding_kubelet(door.cluster):
        pod_there(door.cluster, first)
        spent = 0.0

        def suspend() -> None:
            nonlocal spent
            spent = processor_seconds(door.server.process.pid)
            tenant_suspend(actor=OPERATOR, name=door.name, reason="unpaid")

        found, seconds = asyncio.run(ends(owner, wanted, suspend))
        spent = processor_seconds(door.server.process.pid) - spent
        door.cluster.kubectl("delete", "pod", "web", "-n", first)
    assert found == Counter(kind.name for kind in wanted)
    half, last = seconds[len(seconds) // 2], seconds[-1]
    print(
        f"\n  {STREAMS} streams ended by a suspension: half after {half:.2f} s, the last after {last:.2f} s (aim 0.5, must 1); "
        f"{spent:.2f} s of the door's core"
    )
