"""Streams begin only where the end of the right to them would be heard, and nothing is written once it was (GW5, CT-07)."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.http.protocol import GatewayProtocol
from tests.gateway.upstream.rawcluster import Behave, Visit, ok
from tests.gateway.upstream.test_streams import (
    CHUNKED,
    EXEC,
    LOG,
    PODS,
    SPDY,
    SWITCH,
    V5,
    WATCH,
    WEBSOCKET,
    chunk,
    opened,
    until,
)

DENIED = "cannot verify permissions"
STREAMS = pytest.mark.parametrize(
    ("path", "headers", "method", "head"),
    [
        (WATCH, (), "GET", CHUNKED % b"application/json"),
        (LOG, (), "GET", CHUNKED % b"text/plain"),
        (EXEC, WEBSOCKET, "GET", V5),
        (EXEC, SPDY, "POST", SWITCH % (b"SPDY/3.1", b"")),
    ],
    ids=["watch", "log", "WebSocket", "SPDY"],
)


def held(head: bytes, go: asyncio.Event, met: asyncio.Event) -> Behave:
    """A cluster that takes its time to begin."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        met.set()
        await go.wait()
        await visit.say(head + chunk(b"secret"))
        await visit.reader.read()

    return behave


@STREAMS
async def test_no_stream_begins_whose_end_would_not_be_heard(
    path: str, headers: tuple[str, ...], method: str, head: bytes
) -> None:
    """D8: its cluster takes its time, and the news stop meanwhile. The client is told as one whose write is not sent."""
    go, met = asyncio.Event(), asyncio.Event()
    async with opened(held(head, go, met)) as (door, client):
        client.ask(path, *headers, method=method)
        await met.wait()
        door.runtime.trustworthy = False
        go.set()
        line, answered = await client.head()
        assert line == b"HTTP/1.1 503 Service Unavailable"
        assert answered[b"retry-after"] == b"1"
        said = await client.reader.readexactly(int(answered[b"content-length"]))
        assert DENIED in json.loads(said)["message"]
        await until(lambda: len(door.streams) == door.upstream.connections == 0)


@STREAMS
async def test_a_stream_is_not_shown_where_the_news_stop_as_it_begins(
    path: str, headers: tuple[str, ...], method: str, head: bytes
) -> None:
    """The head has been sent by then: it ends with the reason, and nothing that is typed goes on."""
    heard = bytearray()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(head + chunk(b"secret"))
        while data := await visit.reader.read(65536):
            heard.extend(data)

    async with opened(behave) as (door, client):

        async def recheck() -> None:
            door.runtime.trustworthy = False

        door.recheck = recheck  # type: ignore[method-assign]
        client.ask(path, *headers, method=method)
        client.writer.write(b"typed" if headers else b"")
        line, _ = await client.head()
        assert line.split()[1] in (b"101", b"200")
        said = await client.reader.read()
        assert b"secret" not in said
        assert DENIED.encode() in said or headers == SPDY
        await until(lambda: len(door.streams) == door.upstream.connections == 0)
    assert heard == b""


async def test_operators_look_at_a_cluster_whatever_is_heard() -> None:
    """They are nobody's tenant: what is not heard of takes nothing from them."""
    go, met = asyncio.Event(), asyncio.Event()
    async with opened(held(CHUNKED % b"application/json", go, met)) as (door, client):
        door.principal = door.operator
        client.ask(WATCH)
        await met.wait()
        door.runtime.trustworthy = False
        go.set()
        assert (await client.head())[0] == b"HTTP/1.1 200 OK"
        assert await client.chunk() == b"secret"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_was_read_is_not_shown_and_what_was_written_is_not_asked_for_again(method: str) -> None:
    """An answer that took longer than a moment. ``Retry-After`` would have a write done twice."""
    go, met = asyncio.Event(), asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        met.set()
        await go.wait()
        await visit.say(ok(b'"secret"'))

    async with opened(behave) as (door, client):
        client.ask(PODS, *(("Content-Length: 0",) if method == "POST" else ()), method=method)
        await met.wait()
        door.runtime.trustworthy = False
        await asyncio.sleep(0.5)
        go.set()
        line, headers = await client.head()
        said = await client.reader.readexactly(int(headers[b"content-length"]))
        assert (line.split()[1], b"secret" in said) == ((b"503", False) if method == "GET" else (b"200", True))


@pytest.mark.parametrize(
    ("path", "headers", "method", "head"),
    [(LOG, (), "GET", CHUNKED % b"text/plain"), (EXEC, SPDY, "POST", SWITCH % (b"SPDY/3.1", b""))],
    ids=["log", "SPDY"],
)
async def test_what_waits_for_a_client_is_not_written_once_its_right_has_ended(
    path: str, headers: tuple[str, ...], method: str, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads again a moment after the end was heard: what it gets is what had been written by then, and why."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(head)
        while True:
            await visit.say(chunk(b"x" * 65536))

    written: list[bytes] = []
    write = GatewayProtocol.write

    def noted(connection: GatewayProtocol, data: bytes | memoryview) -> None:
        written.append(bytes(data))
        write(connection, data)

    async with opened(behave) as (door, client):
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(path, *headers, method=method)
        await until(lambda: any(connection.is_writing_paused for connection in door.state.connections))
        (stream,) = door.streams._open
        monkeypatch.setattr(GatewayProtocol, "write", noted)
        door.suspend()
        await stream.ended
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        while await client.reader.read(2**20):
            pass
        await until(lambda: len(door.streams) == 0)
    assert not [data for data in written if b"xxxx" in data]
