"""Browsers that go while the API server takes nothing of what they have typed: their terminals end too (GW27, DOS-02)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.upstream.client import Upstream
from gateway.upstream.tunnel import Tunnel
from portal.contents import relay
from portal.contents.relay import Doors, Relay
from tests.gateway.upstream.asking import PATIENT, until
from tests.gateway.upstream.rawcluster import Visit, raw_cluster

AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
PIECE = bytes(16 * 1024)


class Terminal(Relay):
    """One whose API server has agreed."""

    upstream: Upstream

    async def _serve(self) -> None:
        headers = ((b"upgrade", b"websocket"),)
        opened = await self.upstream.upgrade("GET", b"/exec", headers, token="t", audit_id="a")
        assert isinstance(opened, Tunnel)
        await self._pass_on(opened)


class Terminals:
    """One terminal, its browser, and the API server, which reads nothing."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.open: set[Any] = set()
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    @property
    def terminal(self) -> Terminal:
        (found,) = self.open
        return found

    def made(self) -> asyncio.Protocol:
        terminals = self

        class Begins(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                async def nothing(*_: Any) -> None:
                    """There is no page."""

                terminal = Terminal(nothing, {"headers": []}, Doors(), terminals.open)
                terminal.upstream = terminals.upstream
                terminal.begin(transport)

        return Begins()

    async def type(self) -> None:
        self.writer.write(PIECE)
        await self.writer.drain()
        await asyncio.sleep(0.01)

    def cut(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()


@asynccontextmanager
async def terminals() -> AsyncIterator[Terminals]:
    async def behave(visit: Visit) -> None:
        await visit.request()
        visit.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await visit.say(AGREED)
        await asyncio.Event().wait()

    async with raw_cluster(behave) as cluster, asyncio.timeout(300):
        upstream = Upstream(cluster.cluster, PATIENT)
        found = Terminals(upstream)
        server = await asyncio.get_running_loop().create_server(found.made, "127.0.0.1", 0)
        found.reader, found.writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await found.reader.readuntil(b"\r\n\r\n")
        try:
            yield found
        finally:
            server.close()
            await upstream.close()


@pytest.mark.parametrize("cut_off", [True, False])
async def test_a_browser_whose_end_is_read_is_gone(cut_off: bool) -> None:
    async with terminals() as there:
        upstream = next(iter(there.upstream._open))
        while upstream._writable is None:
            await there.type()
        assert not there.terminal._paused
        there.cut() if cut_off else there.writer.close()
        await until(lambda: there.upstream.connections == 0)


@pytest.mark.parametrize("cut_off", [True, False])
async def test_a_browser_whose_end_nobody_reads_is_gone_in_a_while(
    cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(relay, "UNREAD_SECONDS", 60.0 if cut_off else 0.1)
    async with terminals() as there:
        while not there.terminal._paused:
            await there.type()
        # Who waits is there, however long.
        await asyncio.sleep(0.3)
        assert there.upstream.connections == 1
        there.cut() if cut_off else there.writer.close()
        await until(lambda: there.upstream.connections == 0)
