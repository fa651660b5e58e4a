"""HTTP/1.1 on one TLS connection, from uvicorn's sockets to the application: bounded heads, bounded patience.

It is uvicorn's protocol class without ASGI between: messages and scopes would cost as much as all the stages together,
and have no place for the client certificate.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import Any, Final, Protocol

import httptools
import uvicorn
from uvicorn.server import ServerState

from gateway.call import Call
from gateway.tls import ServerTls

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 128
HEADER_SECONDS: Final = 15.0
"""How long a client may take from its first byte (or from connecting) to the end of the headers."""

IDLE_SECONDS: Final = 75.0
"""How long a connection is kept for the next request."""

GOODBYE_SECONDS: Final = 1.0
"""How long a stopping server waits for a client to answer TLS's closing alert; many do not read before they ask again."""

_FOREVER: Final = float("inf")
_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)


class TooLarge(httptools.HttpParserError):
    """The request line and headers exceed the bounds."""


class Serving(Protocol):
    """The application."""

    async def serve(self, call: Call) -> None:
        """Answer."""
        ...


class GatewayProtocol(asyncio.Protocol):
    """One connection. uvicorn makes it, counts it in ``server_state``, and tells it when the server stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn gives it
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._application: Serving = config.app  # type: ignore[assignment]
        self._tls = config.ssl_context_factory
        self._loop = _loop or asyncio.get_running_loop()
        self._server = server_state
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._call: Call | None = None
        self._waiting: deque[Call] = deque()
        self._reading = True
        self._room: asyncio.Event | None = None
        self._stopping = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._expects = False
        self._deadline = _FOREVER
        self.client = ""
        self.certificate: bytes | None = None
        self._verified_by: ssl.SSLContext | None = None

    # What the transport tells.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember who is at the other end."""
        self._transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]
        address = transport.get_extra_info("peername")
        self.client = str(address[0]) if address else ""
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.certificate = (connection.getpeercert(binary_form=True) if connection is not None else None) or None
        if self.certificate and connection is not None:
            # Resuming a session of an earlier connection verifies nothing anew.
            self._verified_by = None if connection.session_reused else connection.context
            # The client CAs may have changed during the handshake.
            self.require_trust()
        self._deadline = self._loop.time() + HEADER_SECONDS

    def data_received(self, data: bytes) -> None:
        """Parse."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request is answered as if it had not asked, and the connection is closed
        except httptools.HttpParserError:
            self._refuse()

    def eof_received(self) -> None:
        """The client sends nothing more: hang up."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody is there any more."""
        self._server.connections.discard(self)
        self._deadline = _FOREVER
        if self._call is not None:
            self._call.hang_up()
        for call in self._waiting:
            call.hang_up()
        self._waiting.clear()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._room = self._room or asyncio.Event()

    def resume_writing(self) -> None:
        """It does again."""
        if self._room is not None:
            self._room.set()
            self._room = None

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A request begins; its head must be small, and come soon."""
        self._url = b""
        self._headers = []
        self._head_bytes = 0
        self._expects = False
        if self._is_idle:
            self._deadline = self._loop.time() + HEADER_SECONDS

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        if len(self._headers) >= MAX_HEADERS:
            raise TooLarge("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete: the request is served, or waits for those before it."""
        parser = self._parser
        path, query = _target(self._url)
        call = Call(
            self,
            parser.get_method().decode("ascii"),
            path,
            query,
            self._headers,
            keep_alive=parser.get_http_version() != "1.0"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self._stopping,
            expects=self._expects,
        )
        if self._is_idle:
            self._serve(call)
        else:
            self.pause_reading()
            self._waiting.append(call)

    def on_body(self, body: bytes) -> None:
        """A piece of the body of the request that came last."""
        call = self._last
        if call is not None:
            call.feed(body)

    def on_message_complete(self) -> None:
        """That request is complete."""
        call = self._last
        if call is not None:
            call.end_body()

    # What calls ask for.

    @property
    def standing(self) -> list[tuple[bytes, bytes]]:
        """See ``gateway.call.Line``; uvicorn writes the date anew every second."""
        return self._server.default_headers

    @property
    def is_clogged(self) -> bool:
        """See ``gateway.call.Line``."""
        return self._room is not None

    @property
    def is_closing(self) -> bool:
        """See ``gateway.call.Line``."""
        return self._transport is None or self._transport.is_closing()

    def write(self, data: bytes | memoryview) -> None:
        """See ``gateway.call.Line``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """See ``gateway.call.Line``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    async def drained(self) -> None:
        """See ``gateway.call.Line``."""
        if self._room is not None:
            await self._room.wait()

    def pause_reading(self) -> None:
        """See ``gateway.call.Line``."""
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See ``gateway.call.Line``."""
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def finished(self, call: Call) -> None:  # noqa: ARG002
        """See ``gateway.call.Line``: the next request has its turn."""
        self._server.total_requests += 1
        if self.is_closing:
            self._part()
            return
        self._deadline = self._loop.time() + IDLE_SECONDS
        self.resume_reading()
        if self._waiting:
            self._serve(self._waiting.popleft())

    # What the server asks for.

    def shutdown(self) -> None:
        """The server stops: what runs is finished, and a client that has its answer is not waited for."""
        self._stopping = True
        if self._is_idle:
            self.close()
            self._part()
        elif self._call is not None:
            self._call.keep_alive = False

    def expire(self, now: float) -> None:
        """Hang up when the client has taken too long to ask; ``now`` is the loop's time."""
        if now > self._deadline:
            self._deadline = _FOREVER
            self.close()

    def require_trust(self) -> None:
        """Cut the connection if its client certificate need not be of an authority that is trusted now.

        What clients send between their certificate and its authority is not seen here: those connect again when any
        authority is gone.
        """
        tls = self._tls
        trusted = (
            not self.certificate or not isinstance(tls, ServerTls) or tls.trusts(self.certificate, self._verified_by)
        )
        if not trusted and self._transport is not None:
            self._transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self._call is None or self._call.complete

    @property
    def _last(self) -> Call | None:
        return self._waiting[-1] if self._waiting else self._call

    def _serve(self, call: Call) -> None:
        self._call = call
        self._deadline = _FOREVER
        task = self._loop.create_task(self._answer(call))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _answer(self, call: Call) -> None:
        try:
            await self._application.serve(call)
        except Exception:
            logger.exception("a request could not be answered")
        if call.complete or call.gone:
            return
        call.keep_alive = False
        if call.begun:
            self.close()
        else:
            await call.answer(500, ((b"content-type", b"text/plain"),), b"Internal Server Error")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES:
            raise TooLarge("request header fields too large")

    def _refuse(self) -> None:
        """What came is no request, or no rest of one: whoever sent it is told so, where nothing else is said."""
        call = self._call
        if call is None or call.complete or not call.received:
            if call is None or call.complete or not call.begun:
                self.write(_REFUSAL)
            self.close()
        elif call.begun:
            self.close()
        else:
            # It came behind a good request, which is still answered.
            call.keep_alive = False
            self.pause_reading()

    def _part(self) -> None:
        if self._stopping and self._transport is not None:
            self._loop.call_later(GOODBYE_SECONDS, self._transport.abort)


def _target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target, absolute ones included (RFC 9112, 3.2)."""
    if url.startswith(b"/"):
        path, _, query = url.partition(b"#")[0].partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
