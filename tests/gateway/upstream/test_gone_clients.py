"""Clients that go while their cluster takes nothing: their connections into pods end too (GW4, GW5, DOS-02)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.http.protocol import UNREAD_SECONDS, GatewayProtocol
from gateway.http.requestresponse import HIGH_WATER
from tests.gateway.upstream.door import Client, Door
from tests.gateway.upstream.rawcluster import Visit
from tests.gateway.upstream.test_streams import CHUNKED, EXEC, LOG, SPDY, SWITCH, opened, until

RESET = struct.pack("ii", 1, 0)
"""To linger for no time: what is closed is cut off."""


class Stuck:
    """A cluster that agrees to a tunnel, and reads nothing until it ``reads``."""

    def __init__(self) -> None:
        self.reads, self.taken, self.over = asyncio.Event(), bytearray(), asyncio.Event()

    async def behave(self, visit: Visit) -> None:
        await visit.request()
        visit.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await visit.say(SWITCH % (b"SPDY/3.1", b""))
        await self.reads.wait()
        visit.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            while data := await visit.reader.read(65536):
                self.taken += data
        self.over.set()


@asynccontextmanager
async def tunnel() -> AsyncIterator[tuple[Stuck, Door, Client]]:
    stuck = Stuck()
    async with opened(stuck.behave) as (door, client):
        client.ask(EXEC, *SPDY, method="POST")
        await client.head()
        await until(lambda: len(door.streams) == 1)
        yield stuck, door, client
        stuck.reads.set()


def connection_of(door: Door) -> GatewayProtocol:
    (found,) = door.state.connections
    assert isinstance(found, GatewayProtocol)
    return found


def is_paused(door: Door) -> bool:
    """Whether nothing more is read of what the client sends."""
    return not connection_of(door)._reading


async def typed(client: Client, data: bytes) -> None:
    """Until all of it has left the client."""
    client.writer.write(data)
    await client.writer.drain()
    await until(lambda: client.writer.transport.get_write_buffer_size() == 0)


async def stuffed(door: Door, client: Client) -> int:
    """Until nothing more goes on, neither there nor here; how many bytes that took."""
    sent = 0
    while not is_paused(door):
        await typed(client, bytes(HIGH_WATER // 4))
        sent += HIGH_WATER // 4
        await asyncio.sleep(0.01)
    return sent


async def nobody(door: Door) -> None:
    await until(lambda: len(door.streams) == door.upstream.connections == len(door.state.connections) == 0)


async def test_a_client_that_hangs_up_is_gone_whatever_its_cluster_does_not_take() -> None:
    """Some of what it sent waits for the cluster; its end has been read."""
    async with tunnel() as (_, door, client):
        upstream = next(iter(door.upstream._open))
        while upstream._writable is None:
            await typed(client, bytes(HIGH_WATER // 4))
            await asyncio.sleep(0.01)
        await typed(client, b"last words")
        assert not is_paused(door)
        client.close()
        await nobody(door)


async def test_a_client_that_is_cut_off_is_gone_though_nothing_of_it_is_read() -> None:
    async with tunnel() as (_, door, client):
        await stuffed(door, client)
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.writer.transport.abort()
        loop = asyncio.get_running_loop()

        def is_gone() -> bool:
            for connection in tuple(door.state.connections):
                connection.expire(loop.time())  # type: ignore[attr-defined]
            return not door.state.connections

        await until(is_gone)
        await nobody(door)


async def test_an_end_behind_what_nobody_takes_is_noticed_in_a_while() -> None:
    """Sooner would take from a cluster that is only slow what its client has sent before."""
    async with tunnel() as (_, door, client):
        await stuffed(door, client)
        await typed(client, b"unread")
        client.close()
        connection, now = connection_of(door), asyncio.get_running_loop().time()

        def is_heard() -> bool:
            connection.expire(now)
            return connection._end_heard == now

        await until(is_heard)
        connection.expire(now + UNREAD_SECONDS)
        assert len(door.streams) == 1
        connection.expire(now + UNREAD_SECONDS + 1)
        await nobody(door)


async def test_a_cluster_that_takes_something_now_and_then_gets_everything() -> None:
    """However long its client has been gone."""
    async with tunnel() as (stuck, door, client):
        sent = await stuffed(door, client)
        await typed(client, b"the end")
        client.close()
        connection, now = connection_of(door), asyncio.get_running_loop().time()
        for tick in range(3):
            connection.expire(now + tick)
        stuck.reads.set()
        await stuck.over.wait()
        assert bytes(stuck.taken) == bytes(sent) + b"the end"
        connection.expire(now + 2 * UNREAD_SECONDS)
        await nobody(door)


async def test_a_client_that_waits_for_its_cluster_is_not_gone() -> None:
    async with tunnel() as (_, door, client):
        await stuffed(door, client)
        await typed(client, b"more")
        connection, now = connection_of(door), asyncio.get_running_loop().time()
        for tick in range(5):
            connection.expire(now + tick * 2 * UNREAD_SECONDS)
        await asyncio.sleep(0.1)
        assert len(door.streams) == door.upstream.connections == 1


@pytest.mark.parametrize("cut_off", [True, False])
async def test_who_asks_for_more_behind_a_log_and_goes_is_gone(cut_off: bool) -> None:
    """A request behind it waits, and nothing is read as long as one does."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"text/plain")
        await visit.reader.read()

    async with opened(behave) as (door, client):
        client.ask(LOG)
        await client.head()
        client.ask(LOG)
        await until(lambda: is_paused(door))
        if cut_off:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()
        now = asyncio.get_running_loop().time()

        def is_gone() -> bool:
            nonlocal now
            now += UNREAD_SECONDS / 2
            for connection in tuple(door.state.connections):
                connection.expire(now)  # type: ignore[attr-defined]
            return not door.state.connections

        await until(is_gone)
        await nobody(door)
