"""uvicorn's HTTP/1.1 protocol with what it lacks: the peer certificate, and bounds on headers and patience."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PEER_CERTIFICATE: Final = "peer_certificate"
"""The key of ``scope["state"]`` that holds the verified client certificate as DER, when there is one."""

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 128
HEADER_SECONDS: Final = 15.0
"""How long a client may take from its first byte (or from connecting) to the end of the headers."""

GOODBYE_SECONDS: Final = 1.0
"""How long a stopping server waits for a client to answer TLS's closing alert; many do not read before they ask again."""


class TooLarge(httptools.HttpParserError):
    """The request line and headers exceed the bounds."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn has no public way to hand the peer certificate to the application; it copies ``app_state`` into each
    scope, so that is where the certificate goes. ``gateway.server.self_test`` proves at start that it arrives.
    """

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember who is at the other end."""
        super().connection_made(transport)
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert(binary_form=True) if connection is not None else None
        if certificate:
            self.app_state = {**self.app_state, PEER_CERTIFICATE: certificate}
        self._head_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

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

    def on_message_begin(self) -> None:
        """A request begins: its head must come soon and be small."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

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
        self._stop_clock()
        super().on_headers_complete()

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
