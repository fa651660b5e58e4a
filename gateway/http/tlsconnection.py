"""TLS between a socket and a protocol, for asyncio: what event loops do themselves, without their buffers and copies.

They keep a quarter of a mebibyte a connection and pass each byte through two buffers more; a server holds thousands of
watches that are silent most of the time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from gateway.http.handshakes import Session, TlsError, Trust

HANDSHAKE_SECONDS: Final = 15.0
"""How long a client may take for the handshake."""

GOODBYE_SECONDS: Final = 1.0
"""How long a client that takes nothing may wait before it hangs up, after it has been told that nothing more will come."""

_METHODS: Final = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"PATCH", b"DELET")
_NO_TLS: Final = (
    b"HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"Client sent an HTTP request to an HTTPS server.\n"
)


class TlsConnection(asyncio.Protocol):
    """One connection: a protocol to the socket, and the transport of ``inner``, which hears of it after the handshake.

    1. ``connection_made``: the clock for the handshake starts.
    2. ``data_received``: the handshake, then what the client says. When ``inner`` pauses reading, what has come with
       the same bytes still reaches it.
    3. ``close``: the client is told, and what was written is sent. Only then is the socket's writing half shut, and what
       still comes is thrown away until the client hangs up, or has taken nothing for ``GOODBYE_SECONDS``: a socket that
       is closed with bytes unread takes the answer back that is on its way.
    """

    __slots__ = ("_clock", "_closing", "_inner", "_left", "_loop", "_shaken", "_shaking", "_socket", "session")

    def __init__(
        self,
        inner: asyncio.Protocol,
        trust: Trust,
        loop: asyncio.AbstractEventLoop,
        shaking: set[TlsConnection],
    ) -> None:
        """``shaking`` holds the connection while its handshake goes on."""
        self.session = Session(trust)
        self._inner = inner
        self._loop = loop
        self._socket: Any = None
        self._clock: asyncio.TimerHandle | None = None
        self._shaking = shaking
        self._shaken = False
        self._closing = False
        self._left = 0

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake, not for ever."""
        self._socket = transport
        self._shaking.add(self)
        self._clock = self._loop.call_later(HANDSHAKE_SECONDS, transport.abort)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Decrypt, and pass on."""
        if self._closing:
            return
        session = self.session
        try:
            said = session.receive(data) if self._shaken else self._shake(data)
        except TlsError:
            # What is wrong with it, the client is told by an alert.
            self._socket.write(_NO_TLS if not self._shaken and data.startswith(_METHODS) else session.taken())
            self._hang_up()
            return
        if said:
            self._inner.data_received(said)
        if session.ended:
            self.close()

    def eof_received(self) -> None:
        """The client sends nothing more: hang up."""
        self._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._closing = True
        self._stop_clock()
        self._shaking.discard(self)
        if self._shaken:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not keep up."""
        if self._shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        if self._shaken:
            self._inner.resume_writing()

    # What the protocol asks for; see ``asyncio.Transport``.

    def write(self, data: bytes | memoryview) -> None:
        """Send, now or as soon as there is room."""
        if not self._closing:
            self._socket.write(self.session.send(data))

    def close(self) -> None:
        """Send what is written, say that this was all, and hang up once the client has."""
        if self.is_closing():
            return
        self._closing = True
        self._socket.write(self.session.end())
        self._socket.write_eof()
        # The client's end is to be seen.
        self._socket.resume_reading()
        self._linger()

    def abort(self) -> None:
        """Hang up at once."""
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self._closing or self._socket.is_closing()

    def pause_reading(self) -> None:
        """Let the client wait."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._socket.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See ``asyncio.BaseTransport``."""
        return self._socket.get_extra_info(name, default)

    def _shake(self, data: bytes) -> bytes:
        """Go on with the handshake; what the client has said behind it."""
        session = self.session
        over = session.shake(data)
        if answer := session.taken():
            self._socket.write(answer)
        if not over:
            return b""
        self._stop_clock()
        self._shaking.discard(self)
        self._shaken = True
        self._inner.connection_made(self)  # type: ignore[arg-type]
        return b"" if self._closing else session.receive(b"")

    def _hang_up(self) -> None:
        """Let what is written be taken, and wait for that no longer than after ``close``: the socket would for ever."""
        self._socket.close()
        if self._clock is None:
            self._linger()

    def _linger(self) -> None:
        before, self._left = self._left, self._socket.get_write_buffer_size()
        if self._clock is None or 0 < self._left < before:
            self._clock = self._loop.call_later(GOODBYE_SECONDS, self._linger)
        else:
            self._socket.abort()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
