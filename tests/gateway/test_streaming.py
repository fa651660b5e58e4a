"""Answers that go on: one task each while nothing is sent, and all that is sent is handed on, in order (GW4, GW5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.http.messages import Stream
from gateway.http.requestresponse import HIGH_WATER, RequestResponseCycle
from gateway.server.streaming import pass_on
from tests.gateway.test_protocol import GOOD, Served, served

SWITCH = GOOD.replace(b"\r\n\r\n", b"\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")


class Tunnel:
    """What a client has sent through it; it ends when it is told, and takes nothing while it is closed."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.open = asyncio.Event()
        self.open.set()
        self.over = asyncio.Event()
        self.begun = asyncio.Event()
        self.left = asyncio.Event()
        self.failure: Exception | None = None

    async def serve(self, cycle: RequestResponseCycle) -> None:
        switching = cycle.raw_path == b"/a"
        await cycle.start_response(101, (), long_running=True)
        try:
            await pass_on(cycle, Stream(self._chunks(), status=101, send=self._send if switching else None))
        finally:
            self.left.set()

    async def _chunks(self) -> AsyncIterator[bytes]:
        self.begun.set()
        await self.over.wait()
        yield b"the end"

    async def _send(self, data: bytes) -> None:
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.sent += data


async def begun(tunnel: Tunnel, client: Served) -> None:
    client.send(SWITCH)
    await client.reader.readuntil(b"\r\n\r\n")
    await tunnel.begun.wait()


async def until_sent(tunnel: Tunnel, size: int) -> None:
    while len(tunnel.sent) < size:
        await asyncio.sleep(0)


async def test_a_silent_tunnel_has_one_task() -> None:
    """A thousand shells would have two thousand."""
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        before = len(asyncio.all_tasks())
        await begun(tunnel, client)
        assert len(asyncio.all_tasks()) == before + 1
        client.send(b"typed")
        await until_sent(tunnel, 5)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before + 1
        tunnel.over.set()
        assert await client.read() == b"the end"


async def test_what_comes_while_something_is_handed_on_follows_it() -> None:
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        await begun(tunnel, client)
        whole = b"".join(b"%06d" % number for number in range(100_000))
        tunnel.open.clear()
        for start in range(0, len(whole), 50_000):
            client.send(whole[start : start + 50_000])
            await asyncio.sleep(0)
        assert tunnel.sent == b""
        tunnel.open.set()
        await until_sent(tunnel, len(whole))
        assert tunnel.sent == whole
        tunnel.over.set()
        await client.read()


async def test_a_client_waits_for_whoever_takes_nothing() -> None:
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        await begun(tunnel, client)
        tunnel.open.clear()
        client.send(b"x" * 20_000_000)
        while client.connection._reading:
            await asyncio.sleep(0)
        cycle = client.connection._cycle
        assert cycle is not None
        # What one reading of the socket brings comes on top.
        assert cycle._size <= HIGH_WATER + 512 * 1024
        tunnel.open.set()
        await until_sent(tunnel, 20_000_000)


async def test_what_was_sent_before_hanging_up_is_handed_on() -> None:
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        await begun(tunnel, client)
        tunnel.open.clear()
        client.send(b"last words")
        await client.writer.drain()
        client.writer.close()
        while client.state.connections:
            await asyncio.sleep(0)
        assert not tunnel.left.is_set()
        tunnel.open.set()
        await tunnel.left.wait()
        assert tunnel.sent == b"last words"


@pytest.mark.parametrize("how", ["hangs up", "cannot be handed on"])
async def test_a_stream_ends_with_its_client(how: str) -> None:
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        await begun(tunnel, client)
        if how == "hangs up":
            client.writer.close()
        else:
            tunnel.failure = RuntimeError("nobody takes it")
            client.send(b"x")
        await tunnel.left.wait()
        while client.state.tasks:
            await asyncio.sleep(0)


async def test_a_server_that_stops_is_no_client_that_goes() -> None:
    tunnel = Tunnel()
    async with served(tunnel.serve) as client, asyncio.timeout(300):
        await begun(tunnel, client)
        (task,) = client.state.tasks
        task.cancel()
        await tunnel.left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
