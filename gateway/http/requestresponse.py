"""One request on a connection, and its answer; the names are those of uvicorn's class of this name.

Both directions hold each other back: a body that is not taken pauses reading (``HIGH_WATER``), and an answer that the
client does not take pauses whoever writes it (``drain``). A waiter is woken by every change and looks for itself what
has changed, so no wake-up can be lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import httptools

from gateway.http.lanes import OVERHEAD

HIGH_WATER: Final = 64 * 1024
"""Bytes of a body that wait to be taken before the client has to wait."""

JOIN_MAX: Final = 16 * 1024
"""Bytes of a body that fit into the first TLS record anyway; copying more would cost more than it saves."""

PIECE: Final = 64 * 1024
"""Bytes that are encrypted at a time: the TLS layer's buffer for more would be made anew each time."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in HTTPStatus
    if status >= 200 or status == 101
}
_WITHOUT_BODY: Final = (204, 304)


class Transport(Protocol):
    """What a cycle needs of its connection: the part of ``asyncio.Transport`` that it uses, and who is at the other end."""

    client: str
    """The address at the other end."""
    certificate: bytes | None
    """The client certificate (DER), when one was shown."""
    certificate_refusal: str
    """Why it is not to be believed; empty where it has been verified against the client CAs."""

    @property
    def default_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers of every answer: the date (RFC 9110, 6.6.1)."""
        ...

    @property
    def is_writing_paused(self) -> bool:
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

    async def drain(self) -> None:
        """Wait until the client keeps up again, or has gone."""
        ...

    def pause_reading(self) -> None:
        """Let the client wait."""
        ...

    def resume_reading(self) -> None:
        """Take more of what the client sends."""
        ...

    def abort(self) -> None:
        """Hang up at once."""
        ...

    def answer_within(self, seconds: float) -> None:
        """Give up the request that is answered now after so long."""
        ...

    def on_response_complete(self, cycle: RequestResponseCycle) -> None:
        """The answer is complete."""
        ...


class RequestResponseCycle:
    """One request: its line, its headers (names lower-case, as they came), its body bit by bit; and its answer.

    ``body_complete`` says that the body has come to its end, ``disconnected`` that the client has hung up, ``timed_out``
    that there was no answer in time, ``long_running`` that the answer may take as long as it likes, ``switched`` that
    what goes either way belongs to another protocol now.
    """

    __slots__ = (
        "_came",
        "_chunks",
        "_coded",
        "_gone",
        "_size",
        "_transport",
        "_waiter",
        "body_complete",
        "disconnected",
        "expects_continue",
        "headers",
        "keep_alive",
        "long_running",
        "method",
        "query",
        "raw_path",
        "response_complete",
        "response_started",
        "switched",
        "timed_out",
    )

    def __init__(
        self,
        transport: Transport,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        expects_continue: bool = False,
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.headers = headers
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.body_complete = False
        self.disconnected = False
        self.timed_out = False
        self.switched = False
        self.long_running = False
        self.response_started = False
        self.response_complete = False
        self._transport = transport
        self._chunks: list[bytes] = []
        self._size = 0
        self._came: Callable[[], object] = _nobody_listens
        self._gone: Callable[[], object] = _nobody_listens
        self._coded: Callable[[bytes], bytes] | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def connection_id(self) -> int:
        """The same for all requests of a connection, while it lasts."""
        return id(self._transport)

    @property
    def client(self) -> str:
        """The caller's address."""
        return self._transport.client

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the caller shows (DER)."""
        return self._transport.certificate

    @property
    def certificate_refusal(self) -> str:
        """Why the certificate is not to be believed; empty where it has been verified."""
        return self._transport.certificate_refusal

    # The body.

    def feed_data(self, data: bytes) -> None:
        """The connection has brought more of the body."""
        if self.response_complete:
            return
        self._chunks.append(data)
        self._size += len(data) + OVERHEAD
        if self._size > HIGH_WATER:
            self._transport.pause_reading()
        self._wake()
        self._came()

    def feed_eof(self) -> None:
        """The connection has brought all of the body."""
        self.body_complete = True
        self._wake()

    def on_disconnect(self) -> None:
        """The client has gone."""
        self.disconnected = self.disconnected or not self.response_complete
        self._wake()
        gone, self._came, self._gone = self._gone, _nobody_listens, _nobody_listens
        if not self.response_complete:
            gone()

    def read_nowait(self) -> bytes:
        """What has come of the body and has not been taken yet."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def wait_for_body(self) -> None:
        """Wait until more of the body has come, or its end, or the client has gone."""
        if self.expects_continue and not self.response_started:
            self.expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._chunks or self.body_complete or self.disconnected):
            await self._wait_for_change()

    def listen(self, gone: Callable[[], object], came: Callable[[], object] = lambda: None) -> None:
        """From now on call ``came`` when the client has sent something, which waits until it is ``taken``.

        And ``gone`` if it hangs up before the answer is complete.
        """
        self._gone, self._came = gone, came
        if self._chunks:
            came()
        self._transport.resume_reading()
        if self.disconnected:
            gone()

    def taken(self) -> bytes:
        """What has come, nothing where nothing has; the client need not wait then."""
        if not self._chunks:
            # That may bring something at once.
            self._transport.resume_reading()
        return self.read_nowait()

    async def _wait_for_change(self) -> None:
        # Before reading goes on: that may bring at once what is waited for.
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The answer.

    def answer_within(self, seconds: float) -> None:
        """The client gives up after so long, and so may the server; a span that is not positive says nothing."""
        if seconds > 0:
            self._transport.answer_within(seconds)

    async def send_response(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, lines: bytes = b""
    ) -> None:
        """The whole answer, in one piece where it is small: one TLS record and one system call.

        ``lines`` are headers as ``header_line`` makes them. Raises ``RuntimeError``, and nothing is sent, for headers
        that could be read as others.
        """
        if self._transport.is_writing_paused:
            await self._transport.drain()
        length = b"" if status in _WITHOUT_BODY else b"content-length: %d\r\n" % len(body)
        head = self._head(status, lines, headers, length)
        if self.method == "HEAD" or status in _WITHOUT_BODY:
            body = b""
        if len(body) <= JOIN_MAX:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            view = memoryview(body)
            for start in range(0, len(body), PIECE):
                if self._transport.is_closing:
                    break
                self._transport.write(view[start : start + PIECE])
        self._finish()

    async def start_response(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        lines: bytes = b"",
        long_running: bool = False,
    ) -> None:
        """The head of an answer whose length nobody knows yet; after 101 the connection is for another protocol."""
        coding = b""
        if self._transport.is_writing_paused:
            await self._transport.drain()
        if status == 101:
            self._coded, self.switched, self.keep_alive = bytes, True, False
        elif self.method != "HEAD":
            self._coded = chunk
            coding = b"transfer-encoding: chunked\r\n"
        self._transport.write(self._head(status, lines, headers, coding))
        self.long_running = long_running

    async def write(self, data: bytes) -> None:
        """The next bytes of an answer that has begun; then waits until the client keeps up.

        They are written before anything else happens: whoever has looked whether they may be shown need not look again.
        """
        if data and self._coded is not None and not self.disconnected:
            self._transport.write(self._coded(data))
        if self._transport.is_writing_paused:
            await self._transport.drain()

    def write_nowait(self, data: bytes) -> bool:
        """Write the next bytes of an answer that has begun, without waiting.

        False, and nothing is written, while the client does not keep up or after it has gone.
        """
        if (
            self._coded is None
            or self.response_complete
            or self.disconnected
            or self._transport.is_writing_paused
            or self._transport.is_closing
        ):
            return False
        self._transport.write(self._coded(data))
        return True

    def end_response(self) -> None:
        """The end of an answer that has begun."""
        if self._coded is chunk and not self.disconnected:
            self._transport.write(b"0\r\n\r\n")
        self._finish()

    def break_response(self) -> None:
        """Hang up once what is written has been sent, without the end of the answer: the client sees that it is not whole."""
        self.keep_alive = False
        self._finish()

    def abort(self) -> None:
        """Hang up at once, unless the answer is complete and the connection goes on."""
        if self.response_started and not (self.response_complete and self.keep_alive):
            self._transport.abort()

    def _head(self, status: int, lines: bytes, headers: Sequence[tuple[bytes, bytes]], framing: bytes) -> bytes:
        if self.response_started:
            raise RuntimeError("the answer has already begun")
        parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in self._transport.default_headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(lines)
        for name, value in headers:
            parts.append(header_line(name, value))
        self.response_started = True
        parts.append(framing)
        parts.append(b"\r\n" if self.keep_alive or self.switched else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def _finish(self) -> None:
        self.response_complete = True
        self._came = self._gone = _nobody_listens
        self._wake()
        if not self.keep_alive:
            self._transport.close()
        self._transport.on_response_complete(self)


def _nobody_listens() -> None:
    """Until somebody does, and after the answer."""


def header_line(name: bytes, value: bytes) -> bytes:
    """A header as it is sent. Raises ``RuntimeError`` for one that could be read as others."""
    if _CONTROL.search(name) or _CONTROL.search(value):
        raise RuntimeError("a header holds a control character")
    return b"%b: %b\r\n" % (name, value)


def chunk(data: bytes) -> bytes:
    """One chunk of a body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def target_of(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target, absolute ones included (RFC 9112, 3.2)."""
    if url.startswith(b"/"):
        path, _, query = url.partition(b"#")[0].partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
