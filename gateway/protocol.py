"""uvicorn's HTTP/1.1 protocol with what it lacks: the peer certificate, and bounds on headers and patience."""

from __future__ import annotations

import asyncio
import re
import ssl
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.tls import ServerTls

PEER_CERTIFICATE: Final = "peer_certificate"
"""The key of ``scope["state"]`` that holds the verified client certificate as DER, when there is one."""

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 128
HEADER_SECONDS: Final = 15.0
"""How long a client may take from its first byte (or from connecting) to the end of the headers."""

GOODBYE_SECONDS: Final = 1.0
"""How long a stopping server waits for a client to answer TLS's closing alert; many do not read before they ask again."""


JOIN_MAX: Final = 16 * 1024
"""Bytes of a body that fit into the first TLS record anyway; copying more would cost more than it saves."""

PIECE: Final = 64 * 1024
"""Bytes that are encrypted at a time: the TLS layer's buffer for more would be made anew each time."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

WRITE: Final = "tenantry.write"
"""The extension of ASGI whose ``write`` is ``Cycle.write_now``."""


class TooLarge(httptools.HttpParserError):
    """The request line and headers exceed the bounds."""


class Cycle(RequestResponseCycle):
    """One request and its answer.

    uvicorn writes the head and the body of an answer apart, which costs two TLS records and two system calls, and
    looks at every header twice; here the head waits for the beginning of the body.
    """

    _head = b""

    async def send(self, message: Any) -> None:
        """ASGI: the head, then the body in one piece or in chunks."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._continue(message.get("body", b""), more=message.get("more_body", False))

    def write_now(self, data: bytes) -> bool:
        """Write the next bytes of an answer that goes on, without waiting.

        False, and nothing is written, while the client does not keep up or after it has gone.
        """
        if self.flow.write_paused or self.disconnected or self.response_complete or self._head:
            return False
        if self.transport.is_closing():
            return False
        self.transport.write(chunk(data))
        return True

    def _begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if self.response_started:
            raise RuntimeError("the answer has already begun")
        if _CONTROL.search(b"".join([part for pair in headers for part in pair])):
            raise RuntimeError("a header holds a control character")
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        self.chunked_encoding = self.scope["method"] != "HEAD" and status not in (204, 304)
        for name, value in headers:
            if name == b"content-length":
                self.chunked_encoding = False
            elif name == b"connection":
                self.keep_alive = self.keep_alive and value != b"close"
                continue
            lines += (name, b": ", value, b"\r\n")
        if self.chunked_encoding:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _continue(self, body: bytes, *, more: bool) -> None:
        if self.response_complete:
            raise RuntimeError("the answer is already complete")
        if self.scope["method"] == "HEAD":
            body = b""
        if self.chunked_encoding:
            body = (chunk(body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        head, self._head = self._head, b""
        if len(body) <= JOIN_MAX:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            view = memoryview(body)
            for start in range(0, len(body), PIECE):
                if self.transport.is_closing():
                    break
                self.transport.write(view[start : start + PIECE])
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()


def chunk(data: bytes) -> bytes:
    """One chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class GatewayProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn has no public way to hand the peer certificate to the application; it copies ``app_state`` into each
    scope, so that is where the certificate goes. ``gateway.server.self_test`` proves at start that it arrives.
    """

    _head_bytes = 0
    _head_open = False
    _head_timer: asyncio.TimerHandle | None = None
    _stopping = False
    _verified_by: ssl.SSLContext | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember who is at the other end."""
        super().connection_made(transport)
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert(binary_form=True) if connection is not None else None
        if connection is not None and certificate:
            self.app_state = {**self.app_state, PEER_CERTIFICATE: certificate}
            self._verified_by = connection.context
            if connection.session_reused:
                # Resuming a session of an earlier connection verifies nothing anew.
                self._verified_by = None
            # The client CAs may have changed during the handshake.
            self.require_trust()
        self._head_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def require_trust(self) -> None:
        """Cut the connection if its client certificate need not be of an authority that is trusted now.

        What clients send between their certificate and its authority is not seen here: those connect again when any
        authority is gone.
        """
        certificate, tls = self.app_state.get(PEER_CERTIFICATE), self.config.ssl_context_factory
        if certificate and isinstance(tls, ServerTls) and not tls.trusts(certificate, self._verified_by):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: what runs is finished, and a client that has its answer is not waited for."""
        super().shutdown()
        self._stopping = True
        self._part()

    def on_response_complete(self) -> None:
        """The answer is complete; a stopping server has closed the connection with it."""
        super().on_response_complete()
        self._part()

    def data_received(self, data: bytes) -> None:
        """Parse; the rest of a head that has begun must come soon."""
        super().data_received(data)
        if self._head_open and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def on_message_begin(self) -> None:
        """A request begins: its head must be small."""
        super().on_message_begin()
        self._head_bytes = 0
        self._head_open = True

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        if len(self.headers) >= MAX_HEADERS:
            raise TooLarge("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_open = False
        self._stop_clock()
        version = self.parser.get_http_version()
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before = self.cycle
        cycle = self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {WRITE: {"write": cycle.write_now}}
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES:
            raise TooLarge("request header fields too large")

    def _stop_clock(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _part(self) -> None:
        if self._stopping and self.transport.is_closing():
            self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def _give_up(self) -> None:
        self._head_timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


def writer(scope: dict[str, Any]) -> Callable[[bytes], bool]:
    """``Cycle.write_now`` of the request of a scope."""
    write: Callable[[bytes], bool] = scope["extensions"][WRITE]["write"]
    return write


def peer_certificate(scope: dict[str, Any]) -> bytes | None:
    """The client certificate of a scope, verified by the TLS layer against the client CAs."""
    state = scope.get("state")
    return state.get(PEER_CERTIFICATE) if state else None
