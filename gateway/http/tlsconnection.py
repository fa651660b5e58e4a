"""TLS between a socket and a protocol, for asyncio: what event loops do themselves, without their buffers and copies.

They keep a quarter of a mebibyte a connection and pass each byte through two buffers more; a server holds thousands of
watches that are silent most of the time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from gateway.http.handshakes import Session, TlsError, Trust
from gateway.http.lanes import STEPS, Lane

HANDSHAKE_SECONDS: Final = 15.0
"""How long a client may take for the handshake."""

GOODBYE_SECONDS: Final = 1.0
"""How long a client that takes and sends nothing may wait before it hangs up, after it was told that nothing more will come."""

LAST_WORDS_SECONDS: Final = 30.0
"""How long it may go on sending then: who is refused for the length of a body reads that once all of it is sent."""

_PIECE: Final = 16 * 1024
"""Bytes that are decrypted, and passed on, at a time: what a record brings."""

_SMALL_PIECE: Final = 2 * 1024
"""And of whoever has just said little in many: that costs no turn much more than it may."""

_HEAD: Final = 5
"""Bytes before each record: the last two say how many follow (RFC 8446, 5.1)."""

_SILENT: Final = 32
"""Bytes of a record that said nothing, for which a step is charged: there may be so many messages to TLS itself in it."""

_METHODS: Final = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"PATCH", b"DELET")
_NO_TLS: Final = (
    b"HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"Client sent an HTTP request to an HTTPS server.\n"
)


class Shaking(Protocol):
    """One side of TLS, bytes in and bytes out: a server's (``handshakes.Session``), or a client's."""

    ended: bool
    """Whether the other side has said that nothing more will come."""

    def shake(self, data: bytes) -> bool:
        """Go on with the handshake; whether it is over. Raises ``TlsError``."""
        ...

    def receive(self, data: bytes) -> bytes:
        """What the other side has said up to the end of ``data``. Raises ``TlsError``."""
        ...

    def send(self, data: bytes | memoryview) -> bytes:
        """What brings ``data`` to the other side."""
        ...

    def taken(self) -> bytes:
        """What is to be sent without anybody's asking."""
        ...

    def end(self) -> bytes:
        """What tells the other side that nothing more will come."""
        ...


class _Records:
    """Counts the records of one direction."""

    __slots__ = ("_head", "_left", "_size")

    def __init__(self) -> None:
        self._head = b""
        self._left = self._size = 0

    def feed(self, data: bytes) -> tuple[int, int]:
        """How many end in ``data``, and how many bytes those have."""
        if self._head:
            data, self._head = self._head + data, b""
        end, number, size, record, length = self._left, 0, 0, self._size, len(data)
        while end <= length:
            if record:
                number += 1
                size += record
            if length - end < _HEAD:
                self._head, self._left, self._size = data[end:], 0, 0
                return number, size
            record = _HEAD + (data[end + 3] << 8 | data[end + 4])
            end += record
        self._left, self._size = end - length, record
        return number, size


class TlsEnd(asyncio.Protocol):
    """One end of a connection: a protocol to the socket, and the transport of ``inner``, which hears of it after the handshake.

    1. ``data_received``: the handshake, then what the other side says, a record's worth at a time and no further once
       ``inner`` has paused reading. Records, and what ``inner`` is ``charged`` for, are counted: what is left after
       ``STEPS`` of them waits for a turn in the ``lane``, and the socket with it.
    2. ``close``: the other side is told, and what was written is sent. Only then is the socket's writing half shut, and
       what still comes is thrown away until the other side hangs up, or has neither taken nor sent anything for
       ``GOODBYE_SECONDS``, or sends for more than ``LAST_WORDS_SECONDS``: a socket that is closed with bytes unread takes
       back what is on its way.
    """

    __slots__ = (
        "_clock",
        "_closing",
        "_decrypted",
        "_inner",
        "_lane",
        "_last",
        "_left",
        "_loop",
        "_passed_on",
        "_paused",
        "_reading",
        "_records",
        "_said",
        "_session",
        "_shaken",
        "_socket",
        "_speaks",
        "_steps",
        "_unread",
        "_waits",
    )

    def __init__(self, inner: asyncio.Protocol, session: Shaking, loop: asyncio.AbstractEventLoop, lane: Lane) -> None:
        self._session = session
        self._inner = inner
        self._loop = loop
        self._lane = lane
        self._socket: Any = None
        self._clock: asyncio.TimerHandle | None = None
        self._shaken = False
        self._closing = False
        self._left = 0
        self._speaks = False
        self._last = 0.0
        self._said: bytes | memoryview = b""
        self._unread: bytes | memoryview = b""
        self._decrypted = self._passed_on = _PIECE
        """Bytes of the next piece, of either kind."""
        self._records = _Records()
        self._steps = 0
        self._reading = True
        self._paused = self._waits = False
        """Whether ``inner`` wants nothing now, and whether there will be another turn."""

    # What the socket tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        self._socket = transport

    def data_received(self, data: bytes) -> None:
        """Decrypt, and pass on, as far as one turn goes."""
        if self._closing:
            self._speaks = True
            return
        # What is left over comes first. There is some only until the socket pauses: the join stays small.
        self._unread = b"".join((self._unread, data)) if self._unread else data
        if not (self._paused or self._waits):
            self._read()

    def eof_received(self) -> None:
        """The other side sends nothing more: hang up."""
        self._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._closing = True
        self._said = self._unread = b""
        self._stop_clock()
        if self._shaken:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The other side does not keep up."""
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
            self._socket.write(self._session.send(data))

    def close(self) -> None:
        """Send what is written, say that this was all, and hang up once the other side has."""
        if self.is_closing():
            return
        self._closing = True
        self._said = self._unread = b""
        self._socket.write(self._session.end())
        self._socket.write_eof()
        # The other side's end is to be seen.
        self._socket.resume_reading()
        self._linger()

    def abort(self) -> None:
        """Hang up at once."""
        self._closing = True
        self._said = self._unread = b""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self._closing or self._socket.is_closing()

    def pause_reading(self) -> None:
        """Let the other side wait."""
        self._paused = True
        self._let_read()

    def resume_reading(self) -> None:
        """Take more of what the other side sends."""
        self._paused = False
        if (self._said or self._unread) and not self._waits:
            self._waits = True
            self._loop.call_soon(self._go_on)
        self._let_read()

    def charge(self, steps: int) -> None:
        """What ``inner`` has just been told has cost so many steps."""
        self._steps += steps

    async def turn(self) -> None:
        """Wait for another turn, where what has been told takes more than one."""
        await self._lane.turn()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See ``asyncio.BaseTransport``."""
        return self._socket.get_extra_info(name, default)

    def _go_on(self) -> None:
        self._waits = False
        if not self._paused:
            self._read()

    def _read(self) -> None:
        """Go through what has come for as many steps as a turn has."""
        self._steps = 0
        while (self._said or self._unread) and self._steps < STEPS and not (self._paused or self.is_closing()):
            before = self._steps
            if self._said:
                size = self._passed_on
                said, self._said = _cut(self._said, size)
                self._inner.data_received(said)
                self._passed_on = _next_piece(size, self._steps - before)
            else:
                size = self._decrypted
                data, self._unread = _cut(self._unread, size)
                self._decrypt(data)
                self._decrypted = _next_piece(size, self._steps - before)
            if self._session.ended and not self._said:
                self.close()
        if self.is_closing():
            self._said = self._unread = b""
            return
        if self._steps >= STEPS and not self._waits:
            self._waits = True
            self._lane.wait(self._go_on)
        self._let_read()

    def _let_read(self) -> None:
        """Have the socket read where nothing that has come waits."""
        reading = not (self._paused or self._waits or self._said or self._unread)
        if reading != self._reading and not self.is_closing():
            self._reading = reading
            if reading:
                self._socket.resume_reading()
            else:
                self._socket.pause_reading()

    def _decrypt(self, data: bytes) -> None:
        session = self._session
        number, size = self._records.feed(data)
        try:
            said = session.receive(data) if self._shaken else self._shake(data)
        except TlsError as error:
            self._socket.write(self._words(data, error))
            self._hang_up()
            return
        self._steps += number + max(0, size - len(said)) // _SILENT
        self._said = said

    def _shake(self, data: bytes) -> bytes:
        """Go on with the handshake; what the other side has said behind it."""
        session = self._session
        over = session.shake(data)
        if answer := session.taken():
            self._socket.write(answer)
        if not over:
            return b""
        self._shaken = True
        self._on_shaken()
        self._inner.connection_made(self)  # type: ignore[arg-type]
        return b"" if self._closing else session.receive(b"")

    def _on_shaken(self) -> None:
        """The handshake is over; ``inner`` hears of it next."""
        self._stop_clock()

    def _words(self, data: bytes, error: TlsError) -> bytes:  # noqa: ARG002
        """What the other side is told that has sent ``data``: what is wrong with it, by an alert."""
        return self._session.taken()

    def _hang_up(self) -> None:
        """Let what is written be taken, and wait for that no longer than after ``close``: the socket would for ever."""
        self._socket.close()
        if self._clock is None:
            self._linger()

    def _linger(self) -> None:
        before, self._left = self._left, self._socket.get_write_buffer_size()
        if self._clock is None:
            self._last = self._loop.time() + LAST_WORDS_SECONDS
        speaks, self._speaks = self._speaks and self._loop.time() < self._last, False
        if self._clock is None or speaks or 0 < self._left < before:
            self._clock = self._loop.call_later(GOODBYE_SECONDS, self._linger)
        else:
            self._socket.abort()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


class TlsConnection(TlsEnd):
    """A server's end; the clock for the handshake starts when it is made."""

    __slots__ = ("_shaking", "session")

    def __init__(
        self,
        inner: asyncio.Protocol,
        trust: Trust,
        loop: asyncio.AbstractEventLoop,
        shaking: set[TlsConnection],
        lane: Lane,
    ) -> None:
        """``shaking`` holds the connection while its handshake goes on."""
        self.session = Session(trust)
        self._shaking = shaking
        super().__init__(inner, self.session, loop, lane)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake, not for ever."""
        super().connection_made(transport)
        self._shaking.add(self)
        self._clock = self._loop.call_later(HANDSHAKE_SECONDS, transport.abort)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._shaking.discard(self)
        super().connection_lost(exc)

    def _on_shaken(self) -> None:
        self._shaking.discard(self)
        super()._on_shaken()

    def _words(self, data: bytes, error: TlsError) -> bytes:
        if not self._shaken and data.startswith(_METHODS):
            return _NO_TLS
        return super()._words(data, error)


def _cut(data: bytes | memoryview, size: int) -> tuple[bytes, bytes | memoryview]:
    """The first bytes, and the rest."""
    if len(data) <= size:
        return bytes(data), b""
    whole = memoryview(data)
    return bytes(whole[:size]), whole[size:]


def _next_piece(size: int, steps: int) -> int:
    """How large the next piece may be, of whoever has taken so many steps for one of this size."""
    return _SMALL_PIECE if steps * _PIECE > STEPS * size else _PIECE
