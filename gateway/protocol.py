"""uvicorn's HTTP/1.1 protocol with what it lacks: the peer certificate, and bounds on headers and patience."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.tls import ServerTls

PEER_CERTIFICATE: Final = "peer_certificate"
"""The key of ``scope["state"]`` that holds the verified client certificate as DER, when there is one."""

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 128
HEADER_SECONDS: Final = 15.0
"""How long a client may take from its first byte (or from connecting) to the end of the headers."""

GOODBYE_SECONDS: Final = 1.0
"""How long a stopping server waits for a client to answer TLS's closing alert; many do not read before they ask again."""


_JOIN_MAX: Final = 16 * 1024
"""Bytes of a body that fit into the first TLS record anyway; copying more would cost more than it saves."""


class TooLarge(httptools.HttpParserError):
    """The request line and headers exceed the bounds."""


class _Joined:
    """A transport that holds the head of one answer back and sends it together with the beginning of the body.

    Written one after the other they would cost two TLS records and two system calls.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Send what is held back and ``data``; the first piece of all is the head."""
        if self._head is None:
            self._head = data
        elif not self._head:
            self._transport.write(data)
        elif len(data) > _JOIN_MAX:
            self._transport.write(self._head)
            self._transport.write(data)
            self._head = b""
        else:
            self._transport.write(self._head + data)
            self._head = b""

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class GatewayProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn has no public way to hand the peer certificate to the application; it copies ``app_state`` into each
    scope, so that is where the certificate goes. ``gateway.server.self_test`` proves at start that it arrives.
    """

    _head_bytes = 0
    _head_open = False
    _head_timer: asyncio.TimerHandle | None = None
    _stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember who is at the other end."""
        super().connection_made(transport)
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert(binary_form=True) if connection is not None else None
        if certificate:
            self.app_state = {**self.app_state, PEER_CERTIFICATE: certificate}
            if connection is not None and connection.session_reused:
                # Resuming a session of an earlier connection verifies nothing anew.
                self.require_trust()
        self._head_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def require_trust(self) -> None:
        """Cut the connection if its client certificate is of no authority that is trusted now.

        What clients send between their certificate and its authority is not seen here: those connect again.
        """
        certificate, tls = self.app_state.get(PEER_CERTIFICATE), self.config.ssl_context_factory
        if certificate and isinstance(tls, ServerTls) and not tls.trusts(certificate):
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
        super().on_headers_complete()
        if self.scope["method"] != "HEAD" and not self.expect_100_continue:
            # The cycle has not begun to run yet. It writes the head in one piece, then the body.
            self.cycle.transport = _Joined(self.transport)  # type: ignore[assignment]

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


def peer_certificate(scope: dict[str, Any]) -> bytes | None:
    """The client certificate of a scope, verified by the TLS layer against the client CAs."""
    state = scope.get("state")
    return state.get(PEER_CERTIFICATE) if state else None
