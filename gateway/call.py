"""One request on a connection, and its answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Protocol

HIGH_WATER: Final = 64 * 1024
"""Bytes of a body that wait to be taken before the client has to wait."""

JOIN_MAX: Final = 16 * 1024
"""Bytes of a body that fit into the first TLS record anyway; copying more would cost more than it saves."""

PIECE: Final = 64 * 1024
"""Bytes that are encrypted at a time: the TLS layer's buffer for more would be made anew each time."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}
_WITHOUT_BODY: Final = (204, 304)


class Line(Protocol):
    """What a call needs of its connection."""

    client: str
    """The address at the other end."""
    certificate: bytes | None
    """The client certificate (DER), verified against the client CAs, when one was shown."""

    @property
    def standing(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers of every answer: the date (RFC 9110, 6.6.1)."""
        ...

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not keep up with what is written."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Send, now or as soon as there is room."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        ...

    def close(self) -> None:
        """Send what is written and hang up."""
        ...

    async def drained(self) -> None:
        """Wait until the client keeps up again, or has gone."""
        ...

    def pause_reading(self) -> None:
        """Let the client wait."""
        ...

    def resume_reading(self) -> None:
        """Read on."""
        ...

    def finished(self, call: Call) -> None:
        """The answer is complete."""
        ...


class Call:
    """One request: its line, its headers (names lower-case, as they came), its body bit by bit; and its answer.

    ``received`` says that the body has come to its end, ``gone`` that the client has hung up.
    """

    __slots__ = (
        "_chunked",
        "_chunks",
        "_line",
        "_size",
        "_waiter",
        "begun",
        "complete",
        "expects",
        "gone",
        "headers",
        "keep_alive",
        "method",
        "query",
        "raw_path",
        "received",
    )

    def __init__(
        self,
        line: Line,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        expects: bool = False,
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.headers = headers
        self.keep_alive = keep_alive
        self.expects = expects
        self.received = False
        self.gone = False
        self.begun = False
        self.complete = False
        self._line = line
        self._chunks: list[bytes] = []
        self._size = 0
        self._chunked = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def client(self) -> str:
        """The caller's address."""
        return self._line.client

    @property
    def certificate(self) -> bytes | None:
        """The caller's verified certificate (DER)."""
        return self._line.certificate

    # The body.

    def feed(self, data: bytes) -> None:
        """The connection has brought more of the body."""
        if self.complete:
            return
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER:
            self._line.pause_reading()
        self._wake()

    def end_body(self) -> None:
        """The connection has brought all of the body."""
        self.received = True
        self._wake()

    def hang_up(self) -> None:
        """The client has gone."""
        self.gone = self.gone or not self.complete
        self._wake()

    def take(self) -> bytes:
        """What has come of the body and has not been taken yet."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def more(self) -> None:
        """Wait until more of the body has come, or its end, or the client has gone."""
        if self.expects and not self.begun:
            self.expects = False
            self._line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._chunks or self.received or self.gone):
            await self._change()

    async def until_gone(self) -> None:
        """Wait until the client has gone, or the answer is complete. What it sends meanwhile is thrown away."""
        while not (self.gone or self.complete):
            self.take()
            await self._change()

    async def _change(self) -> None:
        self._line.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The answer.

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """The whole answer, in one piece where it is small: one TLS record and one system call.

        Raises ``RuntimeError``, and nothing is sent, for headers that could be read as others.
        """
        if self._line.is_clogged:
            await self._line.drained()
        length = () if status in _WITHOUT_BODY else ((b"content-length", b"%d" % len(body)),)
        head = self._head(status, (*headers, *length))
        if self.method == "HEAD" or status in _WITHOUT_BODY:
            body = b""
        if len(body) <= JOIN_MAX:
            self._line.write(head + body)
        else:
            self._line.write(head)
            view = memoryview(body)
            for start in range(0, len(body), PIECE):
                if self._line.is_closing:
                    break
                self._line.write(view[start : start + PIECE])
        self._finish()

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The head of an answer whose length nobody knows yet."""
        if self._line.is_clogged:
            await self._line.drained()
        self._chunked = self.method != "HEAD"
        coding = ((b"transfer-encoding", b"chunked"),) if self._chunked else ()
        self._line.write(self._head(status, (*headers, *coding)))

    async def write(self, data: bytes) -> None:
        """The next bytes of an answer that has begun; waits while the client does not keep up."""
        if self._line.is_clogged:
            await self._line.drained()
        if data and self._chunked and not self.gone:
            self._line.write(chunk(data))

    def write_now(self, data: bytes) -> bool:
        """Write the next bytes of an answer that has begun, without waiting.

        False, and nothing is written, while the client does not keep up or after it has gone.
        """
        if not self._chunked or self.complete or self.gone or self._line.is_clogged or self._line.is_closing:
            return False
        self._line.write(chunk(data))
        return True

    def end(self) -> None:
        """The end of an answer that has begun."""
        if self._chunked and not self.gone:
            self._line.write(b"0\r\n\r\n")
        self._finish()

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        if self.begun:
            raise RuntimeError("the answer has already begun")
        if _CONTROL.search(b"".join([part for pair in headers for part in pair])):
            raise RuntimeError("a header holds a control character")
        self.begun = True
        lines = [_STATUS_LINES[status]]
        for name, value in (*self._line.standing, *headers):
            lines += (name, b": ", value, b"\r\n")
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(lines)

    def _finish(self) -> None:
        self.complete = True
        self._wake()
        if not self.keep_alive:
            self._line.close()
        self._line.finished(self)


def chunk(data: bytes) -> bytes:
    """One chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)
