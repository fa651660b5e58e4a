"""HTTP/1.1 on one TLS connection, from uvicorn's sockets to the application: bounded heads, bounded patience.

It is uvicorn's protocol class without ASGI between: messages and scopes would cost as much as all the stages together,
and have no place for the client certificate.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

import httptools
import uvicorn
from uvicorn.server import ServerState

from gateway.http.handshakes import Trust
from gateway.http.keepalive import ends_unread
from gateway.http.requestresponse import RequestResponseCycle, target_of
from gateway.http.tls import ServerTls
from gateway.http.tlsconnection import TlsConnection

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES: Final = 64 * 1024
"""Bytes that bring neither the end of a head, nor of a body, nor any of one: the parser keeps a header to itself until it
has come to its end, and copies it with each piece."""
MAX_HEADERS: Final = 128
HEADER_SECONDS: Final = 15.0
"""How long a client may take from its first byte (or from connecting) to the end of the headers."""

IDLE_SECONDS: Final = 75.0
"""How long a connection is kept for the next request."""

PARSED_BYTES: Final = 4 * 1024
"""Bytes that are parsed at a time: no more requests than fit into them ever wait behind another on a connection."""

REQUEST_SECONDS: Final = 58.0
"""A request without an answer is given up then, and one whose answer has not been taken: with the second in which that is
noticed, a minute at most, as in Kubernetes. One that names a shorter time is given that."""

UNREAD_SECONDS: Final = 30.0
"""How long what a client sent before it hung up may wait without anybody's taking any of it."""

NEWCOMER_SECONDS: Final = 1.0
"""How long a stopping server waits for the first request of a client that has only just come."""

_FOREVER: Final = float("inf")
_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)


class TooLarge(httptools.HttpParserError):
    """The request line and headers exceed the bounds."""


class Ambiguous(httptools.HttpParserError):
    """A proxy in front could see the body end elsewhere."""


class Application(Protocol):
    """The application. ``stopping``: clients had better go elsewhere."""

    stopping: bool

    async def serve(self, cycle: RequestResponseCycle) -> None:
        """Answer one request by its cycle."""
        ...


class GatewayProtocol(asyncio.Protocol):
    """One connection. uvicorn makes it, counts it in ``server_state``, and tells it when the server stops.

    The life of a connection:

    1. ``connection_made``: the handshake is over, so the client certificate is known and cannot change any more. The
       clock for the first head starts.
    2. ``data_received`` → ``_parse``: bytes are parsed in pieces of ``PARSED_BYTES``, and no further as soon as a
       request has to wait. What a client sends ahead is thereby bounded: one piece's requests, and unparsed bytes
       only until ``pause_reading`` takes effect.
    3. ``on_headers_complete``: the head makes a cycle. It is served when nothing else is (``_is_idle``), else it waits.
    4. ``on_body`` feeds the newest cycle: the parser reads one request after the other, so a body is always that of
       the request whose head came last, even while an earlier one is still being answered.
    5. ``on_response_complete``: the next cycle is served. One at a time and in order, for HTTP/1.1 knows an answer's
       request by its order alone (RFC 9112, 9.3.2).
    6. ``_deadline`` is the only clock: for a head, for an answer, or for the next request, whichever this connection
       waits for. The server compares all connections' once a second, which costs no timer a request.
    7. A head that asks for another protocol is the last that is parsed. What follows is held until its cycle has
       switched, and is its from then on; an answer that is no 101 ends the connection.
    8. ``connection_lost``: every cycle is told; whoever waits for room to write is let go, and then writes nothing.
    """

    __slots__ = (
        "_application",
        "_codings",
        "_cycle",
        "_deadline",
        "_end_heard",
        "_expects_continue",
        "_headers",
        "_in_head",
        "_loop",
        "_parser",
        "_reading",
        "_server",
        "_silent_bytes",
        "_steps",
        "_stopping",
        "_task",
        "_tls",
        "_transport",
        "_trust",
        "_unparsed",
        "_upgrading",
        "_url",
        "_waiting",
        "_writable",
        "certificate",
        "certificate_refusal",
        "client",
    )

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn gives it
        _loop: asyncio.AbstractEventLoop | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._application: Application = config.app  # type: ignore[assignment]
        self._tls = tls
        self._loop = _loop or asyncio.get_running_loop()
        self._server = server_state
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | TlsConnection | None = None
        self._cycle: RequestResponseCycle | None = None
        self._waiting: list[RequestResponseCycle] = []
        self._unparsed: memoryview | None = None
        self._reading = True
        self._writable: asyncio.Event | None = None
        self._stopping = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._silent_bytes = self._steps = 0
        self._in_head = True
        self._upgrading = False
        self._expects_continue = False
        self._codings: list[bytes] = []
        self._deadline = self._end_heard = _FOREVER
        self._task: asyncio.Task[None] | None = None
        self.client = ""
        self.certificate: bytes | None = None
        self.certificate_refusal = ""
        self._trust: Trust | None = None

    # What the transport tells.

    def connection_made(self, transport: asyncio.Transport | TlsConnection) -> None:  # type: ignore[override]
        """Remember who is at the other end."""
        self._transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._stopping = self._application.stopping
        address = transport.get_extra_info("peername")
        self.client = str(address[0]) if address else ""
        if isinstance(transport, TlsConnection):
            session = transport.session
            self.certificate, self.certificate_refusal, self._trust = (
                session.certificate,
                session.refusal,
                session.trust,
            )
            # The client CAs may have changed during the handshake.
            self.require_trust()
        self._deadline = self._loop.time() + HEADER_SECONDS

    def data_received(self, data: bytes) -> None:
        """Parse, as far as nobody has to wait."""
        self._steps = 0
        # Bytes that are left over come first. There are some only until reading has been paused: the join stays small.
        self._unparsed = memoryview(data if self._unparsed is None else b"".join((self._unparsed, data)))
        self._parse()
        if isinstance(self._transport, TlsConnection):
            self._transport.charge(self._steps)

    def eof_received(self) -> None:
        """The client sends nothing more: hang up."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody is there any more."""
        self._server.connections.discard(self)
        self._deadline = _FOREVER
        if self._cycle is not None:
            self._cycle.on_disconnect()
        for cycle in self._waiting:
            cycle.on_disconnect()
        self._waiting.clear()
        self._unparsed = None
        # Each of them knows this protocol: together they would stay, with the TLS session, until the collector comes by.
        self._transport = self._cycle = self._parser = None
        # Whoever waits in ``drain`` must wake up to see that the client has gone.
        self.resume_writing()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._writable = self._writable or asyncio.Event()

    def resume_writing(self) -> None:
        """It does again."""
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A request begins; its head must be small, and come soon."""
        self._url = b""
        self._headers = []
        self._in_head = True
        self._expects_continue = False
        self._codings = []
        if self._is_idle:
            self._deadline = self._loop.time() + HEADER_SECONDS

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. What follows a chunked body is none, whatever its name: no proxy has looked at it."""
        self._steps += 1
        if not self._in_head:
            return
        if len(self._headers) >= MAX_HEADERS:
            raise TooLarge("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        elif name == b"transfer-encoding":
            self._codings.append(value.strip().lower())
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete: the request is served, or waits for those before it."""
        self._in_head = False
        self._silent_bytes = 0
        parser = self._parser
        if self._codings and (self._codings != [b"chunked"] or parser.get_http_version() == "1.0"):
            raise Ambiguous("transfer-encoding: chunked is understood, of HTTP/1.1, and nothing else (RFC 9112, 6.1)")
        path, query = target_of(self._url)
        cycle = RequestResponseCycle(
            self,
            parser.get_method().decode("ascii"),
            path,
            query,
            self._headers,
            keep_alive=parser.get_http_version() != "1.0"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self._stopping,
            expects_continue=self._expects_continue,
        )
        # They are the cycle's from here on, which may let go of some.
        self._url, self._headers = b"", []
        if self._is_idle:
            self._serve(cycle)
        else:
            # Pipelined. Nothing more is read until its turn, or one client could fill the memory with requests.
            self.pause_reading()
            self._waiting.append(cycle)

    def on_body(self, body: bytes) -> None:
        """A piece of the body of the request that came last."""
        self._silent_bytes = 0
        self._steps += 1
        cycle = self._newest
        if cycle is not None:
            cycle.feed_data(body)

    def on_message_complete(self) -> None:
        """That request is complete."""
        self._silent_bytes = 0
        cycle = self._newest
        if cycle is not None:
            cycle.feed_eof()

    # What calls ask for.

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """See ``gateway.http.requestresponse.Transport``; uvicorn writes the date anew every second."""
        return self._server.default_headers

    @property
    def is_writing_paused(self) -> bool:
        """See ``gateway.http.requestresponse.Transport``."""
        return self._writable is not None

    @property
    def is_closing(self) -> bool:
        """See ``gateway.http.requestresponse.Transport``."""
        return self._transport is None or self._transport.is_closing()

    def write(self, data: bytes | memoryview) -> None:
        """See ``gateway.http.requestresponse.Transport``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """See ``gateway.http.requestresponse.Transport``."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """See ``gateway.http.requestresponse.Transport``."""
        if self._transport is not None:
            self._transport.abort()

    async def drain(self) -> None:
        """See ``gateway.http.requestresponse.Transport``."""
        if self._writable is not None:
            await self._writable.wait()

    def pause_reading(self) -> None:
        """See ``gateway.http.requestresponse.Transport``."""
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See ``gateway.http.requestresponse.Transport``; not while anybody waits behind, for what comes would wait as well."""
        if self._waiting:
            return
        if self._unparsed is not None:
            # What has been read already goes first, and may bring another request that waits: then reading stays paused.
            self._parse()
        if self._reading or self._waiting or self._unparsed is not None or self._transport is None:
            return
        self._reading, self._end_heard = True, _FOREVER
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def answer_within(self, seconds: float) -> None:
        """See ``gateway.http.requestresponse.Transport``; nobody has longer than ``REQUEST_SECONDS``."""
        self._deadline = min(self._deadline, self._loop.time() + seconds)

    def on_response_complete(self, cycle: RequestResponseCycle) -> None:  # noqa: ARG002
        """See ``gateway.http.requestresponse.Transport``: the next request has its turn."""
        self._server.total_requests += 1
        if self.is_closing:
            return
        self._deadline = self._loop.time() + IDLE_SECONDS
        if self._waiting:
            self._serve(self._waiting.pop(0))
        self.resume_reading()

    # What the server asks for.

    def part(self) -> None:
        """The server will stop: the next answer is the last here, and sends its client to whoever serves on."""
        self._stopping = True
        if self._cycle is not None and not self._cycle.response_started:
            self._cycle.keep_alive = False

    def shutdown(self) -> None:
        """The server stops: what runs is finished, and a client that has its answer is not waited for.

        One that has only just come may not have had the time to ask.
        """
        self.part()
        if self._cycle is None and self._is_idle:
            self._loop.call_later(NEWCOMER_SECONDS, self._leave)
        else:
            self._leave()

    def _leave(self) -> None:
        if self._is_idle:
            self.close()
        elif self._cycle is not None:
            self._cycle.keep_alive = False

    def expire(self, now: float) -> None:
        """Hang up when the client has taken too long to ask, and give up a request that has no answer in time.

        ``now`` is the loop's time. A long-running answer that has begun (a watch, a log) ends by its own rules, and with its
        client: also with one whose end lies behind bytes that wait here, and is not read.
        """
        if not self._reading:
            self._look_for_an_end(now)
        if now <= self._deadline:
            return
        self._deadline = _FOREVER
        cycle = self._cycle
        if cycle is None or cycle.response_complete:
            self.close()
        elif cycle.long_running:
            return
        elif cycle.response_started or self.is_writing_paused:
            # Nobody takes it, or what came before it: nothing can be said, and what it holds is others' as well.
            self.abort()
        elif self._task is not None:
            # The mark comes before the cancellation: by it the task tells this from the server's own stop.
            cycle.timed_out = True
            self._task.cancel()

    def _look_for_an_end(self, now: float) -> None:
        """Cut the connection of a client that is there no more, or has hung up and left what nobody takes any of for long."""
        if self._transport is not None and not self._transport.is_closing():
            hung_up, cut_off = ends_unread(self._transport.get_extra_info("socket"))
            self._end_heard = min(self._end_heard, now) if hung_up else _FOREVER
            if cut_off or now - self._end_heard > UNREAD_SECONDS:
                self._transport.abort()

    def require_trust(self) -> None:
        """Cut the connection if its client certificate need not be of an authority that is trusted now.

        One that does not verify opens nothing anyway. What clients send between their certificate and its authority is
        not seen here: those connect again when any authority is gone.
        """
        tls, transport = self._tls, self._transport
        if tls is None or transport is None or self.certificate is None or self.certificate_refusal or not self._trust:
            return
        if not tls.trusts(self.certificate, self._trust):
            transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self._cycle is None or self._cycle.response_complete

    @property
    def _newest(self) -> RequestResponseCycle | None:
        return self._waiting[-1] if self._waiting else self._cycle

    def _parse(self) -> None:
        """Go through what has come, piece by piece, until a request has to wait."""
        while (data := self._unparsed) is not None and not self._waiting and not self._upgrading:
            piece, self._unparsed = data[:PARSED_BYTES], data[PARSED_BYTES:] if len(data) > PARSED_BYTES else None
            self._silent_bytes += len(piece)
            try:
                if self._silent_bytes > MAX_HEADER_BYTES:
                    raise TooLarge("a head or what stands between chunks does not end")
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._upgrading, self._parser = True, None
                self._unparsed = data[upgrade.args[0] :] or None
            except httptools.HttpParserError:
                self._unparsed = None
                self._reject()
        cycle = self._cycle
        if self._unparsed is not None and cycle is not None and cycle.switched:
            rest, self._unparsed = bytes(self._unparsed), None
            cycle.feed_data(rest)
        if self._unparsed is not None:
            self.pause_reading()

    def _serve(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._deadline = self._loop.time() + REQUEST_SECONDS
        self._task = self._loop.create_task(self._answer(cycle))
        self._server.tasks.add(self._task)

    async def _answer(self, cycle: RequestResponseCycle) -> None:
        task = self._task
        try:
            await self._application.serve(cycle)
        except asyncio.CancelledError:
            if not cycle.timed_out:
                raise
        except Exception:
            logger.exception("a request could not be answered")
        finally:
            # A callback of the task would cost another turn of the loop. Nobody waits for what is left to be said.
            if task is not None:
                self._server.tasks.discard(task)
        if cycle.response_complete or cycle.disconnected:
            return
        # Only failures come here. The connection ends in any case: nobody knows how much of the body has been read.
        cycle.keep_alive = False
        if cycle.response_started:
            # A second head would be read as part of the first answer's body; a cut connection is noticed.
            self.close()
        elif cycle.timed_out:
            await cycle.send_response(504, ((b"content-type", b"text/plain"),), b"Gateway Timeout")
        else:
            await cycle.send_response(500, ((b"content-type", b"text/plain"),), b"Internal Server Error")

    def _reject(self) -> None:
        """What came is no request, or no rest of one: whoever sent it is told so, where nothing else is said."""
        cycle = self._cycle
        if cycle is not None and cycle.body_complete and not cycle.response_started:
            # It came behind a good request, which is still answered.
            cycle.keep_alive = False
            self.pause_reading()
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.write(_REFUSAL)
        self.close()
