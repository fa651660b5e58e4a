"""A terminal's connection: from the browser's handshake, through the portal's own pages, to the API server's door (GW27).

The portal reads nothing of what passes. It puts the person's token where a browser cannot, and hands on bytes: the API
server authorises, records, counts and ends the stream as it does with every other client's, and what it says last
reaches the browser as it was said. Only where nothing could be opened, and when the portal itself stops, the last words
are made here, in the same form.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import orjson

from gateway.http.keepalive import ends_unread
from gateway.http.protocol import UNREAD_SECONDS
from gateway.http.requestresponse import HIGH_WATER
from gateway.upstream.client import Answer, Cluster, Limits, Upstream
from gateway.upstream.lastwords import WebSocketWords, of_tunnel
from gateway.upstream.tunnel import Tunnel
from kube.display.text import visible
from kube.requests.status import ServiceUnavailable, StatusError

logger = logging.getLogger(__name__)

EXTENSION: Final = "tenantry.terminal"
"""How the page that is asked in the handshake finds whom to tell what the connection is for."""

PROTOCOLS: Final = (b"v5.channel.k8s.io", b"v4.channel.k8s.io")

_LIMITS: Final = Limits(connections=512, idle_connections=0)
"""Of one process of the portal; no tenant holds more terminals than are left free for others."""

_STOPPING: Final = ServiceUnavailable("The portal is being restarted: open the terminal again.", retry_after=1)
_ANSWER_MAX: Final = 64 * 1024
_GOODBYE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_VERSION: Final = b"13"
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What a server proves with that it has read the handshake (RFC 6455, 1.3)."""

Application = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Shell:
    """A request for a terminal, as the API server is to be sent it; the token lives as long as the session does."""

    url: str
    authority: str
    name: str
    tenant: str
    target: bytes
    request_id: str
    token: str = field(repr=False)


class Doors:
    """The ways of one event loop to API servers, one each."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str], Upstream] = {}

    def to(self, shell: Shell) -> Upstream:
        """The way to the API server of this request. Raises ``ServiceUnavailable`` for one that cannot be used."""
        key = shell.url, shell.authority
        if key not in self._ways:
            cluster = Cluster(uid=shell.name, name=shell.name, url=shell.url, ca_pem=shell.authority)
            try:
                made = Upstream(cluster, _LIMITS)
            except ValueError:
                raise ServiceUnavailable(
                    "The API server's address or authority cannot be used: manage.py bootstrap."
                ) from None
            for old in self._ways.values():
                old.retire()
            self._ways = {key: made}
        return self._ways[key]


class Relay(asyncio.Protocol):
    """One connection of a browser, from its handshake on; see the module."""

    def __init__(self, application: Application, scope: dict[str, Any], doors: Doors, open_: set[Any]) -> None:
        """``open_`` are the server's connections, which it tells when it stops."""
        self._application = application
        self._scope = scope
        self._doors = doors
        self._open = open_
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._transport: asyncio.Transport
        self._come = bytearray()
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._gone = asyncio.Event()
        self._stopping = asyncio.Event()
        self._way: Shell | StatusError | None = None

    # What the transport and the server tell.

    def begin(self, transport: asyncio.Transport) -> asyncio.Task[None]:
        """Take the connection over; the task ends with it."""
        self._transport = transport
        self._open.add(self)
        transport.set_protocol(self)
        return asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Keep it for the API server, and let the browser wait where that does not keep up."""
        self._come += data
        if len(self._come) > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._changed.set()

    def pause_writing(self) -> None:
        """The browser does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The browser has gone."""
        self._gone.set()
        self._open.discard(self)
        self._changed.set()
        self._writable.set()

    def shutdown(self) -> None:
        """The server stops: say so, and hang up."""
        self._stopping.set()

    # The way of one terminal.

    async def _run(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # whatever it is, it ends this connection and no other
            logger.exception("a terminal has failed: %s", type(error).__name__)
        finally:
            self._transport.close()
            # Who does not take the last words in time goes without.
            asyncio.get_running_loop().call_later(_GOODBYE_SECONDS, self._transport.abort)

    async def _serve(self) -> None:
        status, body = await self._ask()
        if self._way is None:
            self._send_refusal(status, body)
            return
        try:
            if isinstance(self._way, StatusError):
                raise self._way
            if self._headers.get(b"sec-websocket-version") != _VERSION or not self._offered():
                self._send_refusal(400, b"Speak WebSocket 13, and the channels of Kubernetes.")
                return
            opened = await self._open_tunnel(self._way)
        except StatusError as error:
            self._say(error)
            return
        if isinstance(opened, Answer):
            self._say(await _refusal_of(opened))
        else:
            await self._pass_on(opened)

    async def _ask(self) -> tuple[int, bytes]:
        """The page's own answer, as to any request; ``_way`` is what it has handed over."""
        said: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not said:
                said.append({})
                return {"type": "http.request", "body": b"", "more_body": False}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        def hand_over(way: Shell | StatusError) -> None:
            self._way = way

        await self._application({**self._scope, "extensions": {EXTENSION: hand_over}}, receive, send)
        status = next((message["status"] for message in said if message.get("type") == "http.response.start"), 500)
        return status, b"".join(message.get("body", b"") for message in said)

    async def _open_tunnel(self, shell: Shell) -> Answer | Tunnel:
        headers = (
            (b"upgrade", b"websocket"),
            (b"sec-websocket-version", _VERSION),
            (b"sec-websocket-key", self._headers.get(b"sec-websocket-key", b"")),
            (b"sec-websocket-protocol", b", ".join(self._offered())),
            (b"user-agent", f"tenantry-portal ({shell.request_id})".encode("ascii", "replace")),
        )
        way = self._doors.to(shell)
        return await way.upgrade(
            "GET", shell.target, headers, token=shell.token, audit_id=shell.request_id, tenant=shell.tenant
        )

    async def _pass_on(self, tunnel: Tunnel) -> None:
        words = of_tunnel(tunnel.headers)
        kept = (b"connection", b"upgrade", b"sec-websocket-accept", b"sec-websocket-protocol")
        self._switch([pair for pair in tunnel.headers if pair[0] in kept])

        async def down() -> None:
            async for data in tunnel.chunks:
                if self._gone.is_set():
                    return
                words.see(data)
                self._transport.write(data)
                await self._writable.wait()

        async def up() -> None:
            async for data in self._brought():
                await tunnel.write(data)

        # An API server that takes nothing keeps no browser that has gone.
        ways = (down(), up(), self._until_gone(), self._stopping.wait())
        tasks = [asyncio.ensure_future(each) for each in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            tunnel.interrupt()
            tunnel.close()
        if self._stopping.is_set():
            self._transport.write(words.say(_STOPPING))

    async def _brought(self) -> AsyncIterator[bytes]:
        while not self._gone.is_set():
            self._changed.clear()
            if self._come:
                data, self._come = bytes(self._come), bytearray()
                if self._paused and not self._transport.is_closing():
                    self._paused = False
                    self._transport.resume_reading()
                yield data
            else:
                await self._changed.wait()

    async def _until_gone(self) -> None:
        """Until the browser has hung up, also behind what nobody takes any of for long, or has been cut off."""
        taken = time.monotonic()
        while not self._gone.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._gone.wait()
            hung_up = cut_off = False
            if self._paused and not self._transport.is_closing():
                hung_up, cut_off = ends_unread(self._transport.get_extra_info("socket"))
            if not hung_up:
                taken = time.monotonic()
            if cut_off or time.monotonic() - taken > UNREAD_SECONDS:
                return

    # What is said from here.

    def _offered(self) -> list[bytes]:
        asked = {each.strip() for each in self._headers.get(b"sec-websocket-protocol", b"").split(b",")}
        return [each for each in PROTOCOLS if each in asked]

    def _say(self, error: StatusError) -> None:
        """Agree, and say at once why it ends: a browser shows no page what a refused handshake says."""
        protocol = next(iter(self._offered()), PROTOCOLS[0])
        accepted = hashlib.sha1(self._headers.get(b"sec-websocket-key", b"") + _MAGIC, usedforsecurity=False)
        self._switch(
            [
                (b"connection", b"Upgrade"),
                (b"upgrade", b"websocket"),
                (b"sec-websocket-accept", base64.b64encode(accepted.digest())),
                (b"sec-websocket-protocol", protocol),
            ]
        )
        self._transport.write(WebSocketWords(protocol).say(error))

    def _switch(self, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [b"HTTP/1.1 101 Switching Protocols\r\n", *(b"%b: %b\r\n" % pair for pair in headers), b"\r\n"]
        self._transport.write(b"".join(lines))

    def _send_refusal(self, status: int, body: bytes) -> None:
        """What is no terminal is refused as HTTP does it; browsers show it to nobody."""
        phrase = HTTPStatus(status).phrase.encode()
        kind = b"text/html" if body.lstrip()[:1] == b"<" else b"text/plain"
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b; charset=utf-8\r\n" % (status, phrase, kind)
        close = b"cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
        self._transport.write(head + close + b"content-length: %d\r\n\r\n%b" % (len(body), body))


async def _refusal_of(answer: Answer) -> StatusError:
    """Why the API server has opened nothing, in its own words."""
    body = b""
    try:
        async for piece in answer.chunks:
            body += piece
            if len(body) > _ANSWER_MAX:
                break
    except StatusError as error:
        return error
    finally:
        answer.close()
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    message = said.get("message") if isinstance(said, dict) else None
    text = visible(message, most=2000) if isinstance(message, str) else f"The API server answered {answer.status}."
    return StatusError(text, code=answer.status)
