"""Streams through the door: passed on as they come, in both directions, until the right to them ends (GW4, GW5)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import orjson
import pytest

from gateway.http.protocol import REQUEST_SECONDS
from gateway.upstream.client import Limits, Upstream
from kube.requests.ratelimits import UNLIMITED
from tests.gateway.upstream.door import SUSPENDED, Client, Door, client_of, door_to
from tests.gateway.upstream.rawcluster import Behave, Visit, answering, ok, raw_cluster

PODS = "/api/v1/namespaces/acme-web/pods"
WATCH = f"{PODS}?watch=1"
LOG = f"{PODS}/web/log?follow=true"
EXEC = f"{PODS}/web/exec?command=sh&stdin=true"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\n%b\r\n"
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io",
)
V5 = SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n")
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")


@asynccontextmanager
async def opened(behave: Behave) -> AsyncIterator[tuple[Door, Client]]:
    async with raw_cluster(behave) as cluster:
        upstream = Upstream(cluster.cluster, Limits(connect_seconds=60, answer_seconds=60, idle_seconds=0.5))
        async with door_to(upstream) as door, asyncio.timeout(300):
            client = await client_of(door)
            yield door, client
            client.close()
        await upstream.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def echo(visit: Visit) -> None:
    _, headers, _ = await visit.request()
    subprotocol = b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n" if headers[b"upgrade"] == b"websocket" else b""
    await visit.say(SWITCH % (headers[b"upgrade"], subprotocol))
    while data := await visit.reader.read(65536):
        await visit.say(data.upper())


async def test_an_answer_is_passed_on_while_it_comes() -> None:
    go = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"application/json" + chunk(b'{"type":"ADDED"}\n'))
        await go.wait()
        await visit.say(chunk(b'{"type":"DELETED"}\n') + b"0\r\n\r\n")

    async with opened(behave) as (door, client):
        client.ask(WATCH)
        line, headers = await client.head()
        assert line == b"HTTP/1.1 200 OK"
        assert headers[b"content-type"] == b"application/json"
        assert await client.chunk() == b'{"type":"ADDED"}\n'
        assert len(door.streams) == 1
        go.set()
        assert [await client.chunk(), await client.chunk()] == [b'{"type":"DELETED"}\n', b""]
        await until(lambda: len(door.streams) == 0)
        client.ask(PODS)


async def test_statuses_and_small_answers_pass_whole() -> None:
    async with opened(answering(ok(b"{}", b"ETag: b").replace(b"200 OK", b"418 Teapot"))) as (_, client):
        for _ in range(2):
            client.ask(PODS)
            line, headers = await client.head()
            assert (line, headers[b"content-length"], headers[b"etag"]) == (b"HTTP/1.1 418 I'm a Teapot", b"2", b"b")
            assert await client.reader.readexactly(2) == b"{}"


@pytest.mark.parametrize("long", [False, True])
async def test_what_a_cluster_answers_is_no_page_of_this_host(long: bool) -> None:
    """A browser shows a certificate to whatever the host asks of it: a script from a cluster would act as its person."""
    page = b"<script>steal()</script>" + b" " * (2**20 if long else 0)
    async with opened(answering(ok(page, b"Content-Type: text/html"))) as (_, client):
        client.ask(PODS)
        _, headers = await client.head()
    assert headers[b"content-security-policy"] == b"default-src 'none'; sandbox"
    assert headers[b"x-content-type-options"] == b"nosniff"


async def test_a_status_without_a_name_passes() -> None:
    async with opened(answering(ok(b"{}").replace(b"200 OK", b"299 Odd"))) as (_, client):
        client.ask(PODS)
        assert (await client.head())[0] == b"HTTP/1.1 299 "


async def test_a_cut_answer_is_cut_for_the_client_too() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"application/json" + chunk(b"begun"))
        visit.cut()

    async with opened(behave) as (_, client):
        client.ask(PODS)
        await client.head()
        assert await client.reader.read() == chunk(b"begun")


@pytest.mark.parametrize(("headers", "method"), [(WEBSOCKET, "GET"), (SPDY, "POST")])
async def test_a_connection_into_a_pod_carries_bytes_both_ways(headers: tuple[str, ...], method: str) -> None:
    async with opened(echo) as (door, client):
        client.ask(EXEC, *headers, method=method)
        # What is sent before the answer waits for it, and is lost to nobody.
        client.writer.write(b"early ")
        line, answered = await client.head()
        assert line == b"HTTP/1.1 101 Switching Protocols"
        assert await client.reader.readexactly(6) == b"EARLY "
        assert answered[b"connection"] == b"Upgrade"
        assert answered[b"upgrade"].decode() == headers[1].removeprefix("Upgrade: ")
        assert b"content-type" not in answered
        client.writer.write(b"late")
        assert await client.reader.readexactly(4) == b"LATE"
        client.close()
        await until(lambda: len(door.streams) == door.upstream.connections == 0)


async def test_what_a_cluster_says_last_arrives_before_the_end() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(SWITCH % (b"SPDY/3.1", b"") + b"x" * 300_000)

    async with opened(behave) as (door, client):
        client.ask(EXEC, *SPDY, method="POST")
        await client.head()
        assert await client.reader.read() == b"x" * 300_000
        await until(lambda: len(door.streams) == 0)


async def test_a_request_that_need_not_be_upgraded_is_answered_and_its_connection_ends() -> None:
    async with opened(answering(ok(b"{}"))) as (_, client):
        client.ask(PODS, "Connection: Upgrade", "Upgrade: h2c")
        assert (await client.reader.read()).endswith(b"{}")


async def test_a_declined_upgrade_is_an_answer() -> None:
    async with opened(answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        said = await client.reader.read()
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert said.endswith(b"\r\n\r\nno")


async def test_an_upgrade_that_nothing_speaks_is_refused_with_a_status() -> None:
    async with opened(echo) as (_, client):
        client.ask(EXEC, "Connection: Upgrade", "Upgrade: h2c")
        said = await client.reader.read()
        assert json.loads(said.partition(b"\r\n\r\n")[2])["reason"] == "BadRequest"


@pytest.mark.parametrize("reads", ["the client", "the cluster"])
async def test_who_does_not_read_makes_the_other_side_wait(reads: str) -> None:
    sent = 0

    async def behave(visit: Visit) -> None:
        nonlocal sent
        await visit.request()
        await visit.say(SWITCH % (b"SPDY/3.1", b""))
        while reads == "the cluster":
            await visit.say(bytes(65536))
            sent += 65536
        await asyncio.Event().wait()

    async with opened(behave) as (_, client):
        client.ask(EXEC, *SPDY, method="POST")
        await client.head()

        async def flood() -> None:
            nonlocal sent
            while True:
                client.writer.write(bytes(65536))
                await client.writer.drain()
                sent += 65536

        task = asyncio.ensure_future(flood()) if reads == "the client" else None
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 64 * 2**20
        if task is not None:
            task.cancel()


# The right ends.


def silent(head: bytes, first: bytes) -> Behave:
    """Says one thing, and then nothing for ever."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(head + first)
        await visit.reader.read()

    return behave


async def ended(behave: Behave, path: str, *headers: str, first: int, method: str = "GET") -> bytes:
    """What a client hears after the first bytes when its workspace is suspended."""
    async with opened(behave) as (door, client):
        client.ask(path, *headers, method=method)
        await client.head()
        await client.reader.readexactly(first)
        door.suspend()
        said = await client.reader.read()
        await until(lambda: len(door.streams) == door.upstream.connections == 0)
        return said


async def test_a_watch_ends_with_an_error_event() -> None:
    event = chunk(b'{"type":"ADDED","object":{}}\n')
    said = await ended(silent(CHUNKED % b"application/json", event), WATCH, first=len(event))
    last = orjson.loads(said.split(b"\r\n")[1])
    assert (last["type"], last["object"]["message"]) == ("ERROR", SUSPENDED.message)


@pytest.mark.parametrize(
    ("media", "begun"), [(b"application/json", b'{"type":'), (b"application/vnd.kubernetes.protobuf", b"\0\0\0\1")]
)
async def test_nothing_is_added_to_half_an_event_or_to_what_is_no_line(media: bytes, begun: bytes) -> None:
    assert await ended(silent(CHUNKED % media, chunk(begun)), WATCH, first=len(chunk(begun))) == b""


async def test_a_log_ends_with_a_line_and_without_its_end() -> None:
    said = await ended(silent(CHUNKED % b"text/plain", chunk(b"half a line")), LOG, first=len(chunk(b"half a line")))
    assert said == chunk(b"\nerror: the workspace is suspended: unpaid\n")


async def test_a_shell_over_a_websocket_is_told_why_and_closed() -> None:
    prompt = b"\x82\x03\x01$ "
    said = await ended(silent(V5, prompt), EXEC, *WEBSOCKET, first=len(prompt))
    assert said[:2] == b"\x82\x7e"
    length = int.from_bytes(said[2:4], "big")
    assert said[4:5] == b"\x03"
    assert json.loads(said[5 : 4 + length])["message"] == SUSPENDED.message
    assert (
        said[4 + length :] == b"\x88" + bytes([2 + len(SUSPENDED.message)]) + b"\x03\xf0" + SUSPENDED.message.encode()
    )


async def test_a_port_over_a_websocket_is_closed_with_the_reason() -> None:
    switch = SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n")
    offered = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io")
    said = await ended(silent(switch, b"\x82\x01x"), f"{PODS}/web/portforward", *offered, first=3)
    assert said[:1] + said[2:] == b"\x88\x03\xf0" + SUSPENDED.message.encode()


@pytest.mark.parametrize("begun", [b"\x82", b"\x82\x7e\x10", b"\x82\x05ab", b"\x02\x01a"])
async def test_nothing_is_said_within_a_frame_or_a_message_of_several(begun: bytes) -> None:
    assert await ended(silent(V5, begun), EXEC, *WEBSOCKET, first=len(begun)) == b""


@pytest.mark.parametrize(("path", "goes_on"), [(PODS, False), (LOG, True), (WATCH, True)])
async def test_who_does_not_take_an_answer_keeps_no_connection_to_the_cluster(path: str, goes_on: bool) -> None:
    """DOS-02: they are everybody's. What runs long may be read as slowly as people read, and counts as an open stream."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"application/json")
        while True:
            await visit.say(chunk(bytes(65536)))

    async with opened(behave) as (door, client):
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(path)
        await until(lambda: any(connection.is_writing_paused for connection in door.state.connections))
        (connection,) = door.state.connections
        connection.expire(asyncio.get_running_loop().time() + REQUEST_SECONDS + 1)  # type: ignore[attr-defined]
        if not goes_on:
            await until(lambda: len(door.streams) == len(door.state.connections) == door.upstream.connections == 0)
        assert (len(door.streams), len(door.state.connections)) == ((1, 1) if goes_on else (0, 0))


async def test_spdy_is_closed() -> None:
    assert await ended(silent(SWITCH % (b"SPDY/3.1", b""), b"x"), EXEC, *SPDY, first=1, method="POST") == b""


async def test_what_was_taken_away_before_the_stream_was_known_ends_it_too() -> None:
    async with opened(silent(V5, b"\x82\x01x")) as (door, client):
        door.closed = True
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        said = await client.reader.read()
        assert b"suspended" in said
        assert not said.startswith(b"\x82\x01x")


async def test_a_stream_that_its_cluster_kept_waiting_ends_no_later_with_its_credential() -> None:
    """D3: a credential ends at its moment, however long before it the stream was asked for."""
    slow = 2.0

    async def behave(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(slow)
        await visit.say(V5)
        await visit.reader.read()

    async with opened(behave) as (door, client):
        until_then = time.time() + 3600
        door.principal = replace(door.principal, not_after=until_then)
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await until(lambda: bool(door.streams._open))
        (stream,) = door.streams._open
        assert stream.due - asyncio.get_running_loop().time() < until_then - time.time() + slow / 2


@pytest.mark.parametrize("may", [True, False])
async def test_nobody_types_into_a_shell_before_the_right_to_it_was_asked_for_anew(may: bool) -> None:
    """CT-07: what is typed is a write, and whoever has to be asked may take a while to say no."""
    heard, over, asked, go = bytearray(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(SWITCH % (b"SPDY/3.1", b""))
        with suppress(ConnectionError):
            while data := await visit.reader.read(65536):
                heard.extend(data)
        over.set()

    async def recheck() -> None:
        asked.set()
        await go.wait()
        if not may:
            raise SUSPENDED

    async with opened(behave) as (door, client):
        door.recheck = recheck  # type: ignore[method-assign]
        client.ask(EXEC, *SPDY, method="POST")
        client.writer.write(b"early ")
        await client.head()
        await asked.wait()
        client.writer.write(b"late")
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert heard == b""
        go.set()
        if may:
            await until(lambda: bytes(heard) == b"early late")
            client.close()
        await until(lambda: len(door.streams) == door.upstream.connections == 0)
        await over.wait()
    assert heard == (b"early late" if may else b"")


async def test_nobody_types_into_a_shell_that_has_ended() -> None:
    """Not even who does not read, and so cannot be told yet."""
    heard = bytearray()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(SWITCH % (b"SPDY/3.1", b""))
        flood = asyncio.ensure_future(flooding(visit))
        while data := await visit.reader.read(65536):
            heard.extend(data)
        flood.cancel()

    async def flooding(visit: Visit) -> None:
        while True:
            await visit.say(bytes(65536))

    async with opened(behave) as (door, client):
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(EXEC, *SPDY, method="POST")
        client.writer.write(b"before")
        await until(lambda: any(connection.is_writing_paused for connection in door.state.connections))
        await until(lambda: bytes(heard) == b"before")
        (stream,) = door.streams._open
        door.suspend()
        await stream.ended
        client.writer.write(b"after")
        await until(lambda: len(door.streams) == door.upstream.connections == 0)
    assert bytes(heard) == b"before"


@pytest.mark.parametrize(
    ("path", "headers", "head"), [(LOG, (), CHUNKED % b"text/plain"), (EXEC, SPDY, SWITCH % (b"SPDY/3.1", b""))]
)
async def test_a_client_that_does_not_read_holds_nothing_open(path: str, headers: tuple[str, ...], head: bytes) -> None:
    """GW5: where the last words cannot be delivered the connection is cut."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(head)
        while True:
            await visit.say(chunk(bytes(65536)))

    async with opened(behave) as (door, client):
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.ask(path, *headers, method="POST" if headers else "GET")
        await until(lambda: any(connection.is_writing_paused for connection in door.state.connections))
        door.suspend()
        await until(lambda: len(door.streams) == len(door.state.connections) == door.upstream.connections == 0)


@pytest.mark.parametrize(
    ("path", "headers", "head"), [(EXEC, WEBSOCKET, V5), (WATCH, (), CHUNKED % b"application/json")]
)
async def test_of_streams_that_are_asked_for_at_once_no_more_open_than_may(
    path: str, headers: tuple[str, ...], head: bytes
) -> None:
    """AD6: while their cluster takes its time none of them is open, and all of them have come in."""
    came, go = asyncio.Semaphore(0), asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        came.release()
        await go.wait()
        await visit.say(head)
        await visit.reader.read()

    async with opened(behave) as (door, first):
        door.throttle.bound("acme", replace(UNLIMITED, open_watches=2, person_share=100))
        clients = [first, *[await client_of(door) for _ in range(4)]]
        for client in clients:
            client.ask(path, *headers)
        for _ in clients:
            await came.acquire()
        go.set()
        lines = [(await client.head())[0] for client in clients]
        assert sum(line.endswith(b"429 Too Many Requests") for line in lines) == 3
        await until(lambda: len(door.streams) == door.upstream.connections == 2)
        for client in clients:
            client.close()


async def test_many_streams_end_together() -> None:
    async with opened(silent(V5, b"\x82\x01x")) as (door, first):
        clients = [first, *[await client_of(door) for _ in range(99)]]
        for client in clients:
            client.ask(EXEC, *WEBSOCKET)
        for client in clients:
            await client.head()
            await client.reader.readexactly(3)
        assert len(door.streams) == door.upstream.connections == 100
        door.suspend()
        for client in clients:
            assert b"suspended" in await client.reader.read()
            client.close()
        await until(lambda: len(door.streams) == door.upstream.connections == len(door.state.connections) == 0)
