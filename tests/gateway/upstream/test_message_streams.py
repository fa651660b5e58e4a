"""Watches and logs over WebSockets through the door: the cluster's own messages, until the right to them ends (GW4, GW5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.http.messages import Stream
from gateway.http.websockets import TEXT, closing, frame, framed, messages
from tests.gateway.upstream.door import SUSPENDED
from tests.gateway.upstream.rawcluster import Visit
from tests.gateway.upstream.test_streams import (
    CHUNKED,
    LOG,
    PODS,
    SWITCH,
    WATCH,
    chunk,
    ended,
    opened,
    silent,
    until,
)

ASKED = ("Connection: keep-alive, Upgrade", "Upgrade: websocket")
BINARY = (*ASKED, "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, binary.k8s.io")
PLAIN = SWITCH % (b"websocket", b"")
OF_BYTES = SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: binary.k8s.io\r\n")
FAREWELL = b"\x88" + bytes([2 + len(SUSPENDED.message)]) + b"\x03\xf0" + SUSPENDED.message.encode()
EVENT = framed(b'{"type":"ADDED"}\n')


@pytest.mark.parametrize(("path", "headers"), [(WATCH, ASKED), (LOG, BINARY), (f"{PODS}/web/log", ASKED)])
async def test_the_cluster_is_asked_for_messages_and_they_pass(path: str, headers: tuple[str, ...]) -> None:
    heard: dict[bytes, bytes] = {}

    async def behave(visit: Visit) -> None:
        heard.update((await visit.request())[1])
        await visit.say((OF_BYTES if headers is BINARY else PLAIN) + EVENT)
        assert await visit.reader.readexactly(6) == b"\x88\x80abcd"
        await visit.say(b"\x88\x00")

    async with opened(behave) as (door, client):
        client.ask(path, *headers)
        line, answered = await client.head()
        assert line == b"HTTP/1.1 101 Switching Protocols"
        assert answered[b"upgrade"] == b"websocket"
        assert await client.reader.readexactly(len(EVENT)) == EVENT
        assert len(door.streams) == 1
        assert not door.streams.into_pods
        client.writer.write(b"\x88\x80abcd")
        assert await client.reader.read() == b"\x88\x00"
        await until(lambda: len(door.streams) == 0)
    assert heard[b"upgrade"] == b"websocket"
    assert heard.get(b"sec-websocket-protocol") == (b"binary.k8s.io" if headers is BINARY else None)


@pytest.mark.parametrize(
    "before", [b"", b'{"type":"ADDED","object":{}}\n', b'{"type":"ERROR","object":{"message":"a"}}\n']
)
async def test_the_reason_is_closed_with_whatever_comes_in_one_piece_with_it(before: bytes) -> None:
    piece = before + b'{"type":"ERROR","object":{"message":"list again"}}\n'

    async def said() -> AsyncIterator[bytes]:
        yield piece

    found = [each async for each in messages(Stream(said()), (), lambda _: True).chunks]
    assert found == [framed(piece), closing("list again")]


async def test_a_watch_ends_with_an_event_and_a_close_frame() -> None:
    said = await ended(silent(PLAIN, EVENT), WATCH, *ASKED, first=len(EVENT))
    assert said.endswith(FAREWELL)
    size = int.from_bytes(said[2:4], "big")
    assert said[:2] == b"\x81\x7e"
    event = json.loads(said[4 : 4 + size])
    assert (event["type"], event["object"]["message"]) == ("ERROR", SUSPENDED.message)
    assert said[4 + size :] == FAREWELL


@pytest.mark.parametrize(
    ("path", "headers"), [(LOG, ()), (WATCH, ("Accept: application/vnd.kubernetes.protobuf;stream=watch",))]
)
async def test_what_is_no_json_ends_with_a_close_frame_alone(path: str, headers: tuple[str, ...]) -> None:
    begun = b"\x82\x02hi"
    assert await ended(silent(PLAIN, begun), path, *ASKED, *headers, first=len(begun)) == FAREWELL


async def test_nothing_is_said_within_a_message() -> None:
    assert await ended(silent(PLAIN, EVENT[:9]), WATCH, *ASKED, first=9) == b""


async def test_a_cluster_that_does_not_switch_is_streamed_as_it_answers() -> None:
    """However long it has nothing to say."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"application/json" + chunk(b'{"type":"ADDED"}\n'))
        await visit.reader.read()

    async with opened(behave) as (door, client):
        client.ask(WATCH, *ASKED)
        assert (await client.head())[0] == b"HTTP/1.1 200 OK"
        assert await client.chunk() == b'{"type":"ADDED"}\n'
        (connection,) = door.upstream._open
        assert connection._exchange is not None
        assert connection._exchange.patience is None
        door.suspend()
        assert json.loads(await client.chunk())["type"] == "ERROR"


@pytest.mark.parametrize(
    ("path", "heard"), [(WATCH, b"base64.binary.k8s.io"), (LOG, b"base64.binary.k8s.io, binary.k8s.io")]
)
async def test_of_several_subprotocols_in_one_line_a_watch_has_the_first(path: str, heard: bytes) -> None:
    """kube-apiserver chooses one for a log, and none for a watch: it then refuses, and nobody can tell where that ends."""
    said: dict[bytes, bytes] = {}

    async def behave(visit: Visit) -> None:
        said.update((await visit.request())[1])
        await visit.say(SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: base64.binary.k8s.io\r\n"))
        await visit.reader.read()

    async with opened(behave) as (_, client):
        client.ask(path, *ASKED, "Sec-WebSocket-Protocol: base64.binary.k8s.io, binary.k8s.io")
        line, answered = await client.head()
    assert line == b"HTTP/1.1 101 Switching Protocols"
    assert answered[b"sec-websocket-protocol"] == b"base64.binary.k8s.io"
    assert said[b"sec-websocket-protocol"] == heard


@pytest.mark.parametrize("path", [WATCH, LOG, f"{PODS}/web/exec?command=sh"])
@pytest.mark.parametrize("refusal", [b"400 Bad Request\r\n\r\nbad protocol", b"403 Forbidden\r\n\r\n"])
async def test_a_refused_handshake_is_the_clients_and_not_the_clusters_fault(path: str, refusal: bytes) -> None:
    """As API servers and kubelets refuse it: by hanging up, without a length."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 " + refusal)

    async with opened(behave) as (_, client):
        client.ask(path, *ASKED, "Sec-WebSocket-Protocol: nobody.speaks.this")
        line, answered = await client.head()
        said = json.loads(await client.reader.readexactly(int(answered[b"content-length"])))
    assert line == b"HTTP/1.1 400 Bad Request"
    assert said["reason"] == "BadRequest"
    assert "offer a subprotocol that it speaks" in said["message"]


async def test_reading_over_a_websocket_is_no_shell() -> None:
    """Another protocol than WebSocket is not read by: it is an ordinary watch."""

    async def behave(visit: Visit) -> None:
        _, headers, _ = await visit.request()
        assert b"upgrade" not in headers
        await visit.say(CHUNKED % b"application/json" + chunk(b"{}\n") + b"0\r\n\r\n")

    async with opened(behave) as (_, client):
        client.ask(WATCH, "Connection: Upgrade", "Upgrade: SPDY/3.1")
        assert (await client.head())[0] == b"HTTP/1.1 200 OK"
        assert await client.reader.read() == b"{}\n"


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_message_says_how_long_it_is(size: int) -> None:
    message = frame(TEXT, b"x" * size)
    head = message[: len(message) - size]
    assert len(head) == (2 if size < 126 else 4 if size < 65_536 else 10)
    assert (head[1] if size < 126 else int.from_bytes(head[2:], "big")) == size
