"""HTTP/1.1 on one TLS connection to an API server: one exchange at a time, and nothing of it believed before it is checked.

A cluster may be faulty or mean harm: heads are bounded and so are the interim answers before them, an answer whose
end could not be told from a cut is none, and what comes when nobody has asked ends the connection.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, Protocol

import httptools

from gateway.http.messages import Headers
from gateway.http.requestresponse import HIGH_WATER
from gateway.http.tlsconnection import TlsEnd
from gateway.upstream.exchange import BrokenExchange, Exchange, UpgradeRefused

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 128
MAX_INTERIM: Final = 8
"""1xx answers before the one that counts."""

MAX_SILENT_BYTES: Final = 512 * 1024
"""Bytes that bring neither the end of a head nor any of a body, more than one reading of the socket brings."""

_NOTHING: Final = memoryview(b"")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY: Final = (204, 304)
_REFUSALS: Final = (400, 403)
"""What API servers and kubelets answer to a WebSocket that they do not agree to, and hang up: no length says where it ends."""

_CLOSED: Final = "it closed the connection"


class Owner(Protocol):
    """Who keeps connections."""

    def on_made(self, connection: Connection) -> None:
        """The connection is there."""
        ...

    def on_idle(self, connection: Connection) -> None:
        """The connection may be used for another exchange."""
        ...

    def on_lost(self, connection: Connection) -> None:
        """The connection is no more."""
        ...


class Connection(asyncio.Protocol):
    """One connection, made by ``gateway.http.clienttls.connect``; used again while ``usable``.

    1. ``begin`` writes a request and makes its exchange.
    2. ``data_received`` parses. The head is checked before anybody sees it, and whatever is wrong fails the exchange and
       ends the connection.
    3. Once the answer is complete the connection goes back to its owner, if the whole request has been taken by then.
    4. After 101 nothing is parsed any more: bytes go to the exchange as they come.
    """

    __slots__ = (
        "_bodiless",
        "_exchange",
        "_head_bytes",
        "_headers",
        "_in_head",
        "_in_interim",
        "_interim",
        "_keep_alive",
        "_owner",
        "_parser",
        "_pieces",
        "_pieces_seen",
        "_raw",
        "_reading",
        "_redirects",
        "_seen",
        "_silent_bytes",
        "_transport",
        "_unsent",
        "_upgrade",
        "_writable",
        "idle_since",
        "tenant",
    )

    def __init__(self, owner: Owner, tenant: str | None = None) -> None:
        self._owner = owner
        self.tenant = tenant
        """Who holds it; nobody while it is idle."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: TlsEnd | None = None
        self._exchange: Exchange | None = None
        self._upgrade = self._redirects = self._bodiless = False
        self._raw = False
        self._reading = True
        self._writable: asyncio.Event | None = None
        self._unsent = _NOTHING
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._silent_bytes = 0
        self._pieces: list[bytes] = []
        self._pieces_seen = 0
        self._interim = 0
        self._in_head = True
        self._in_interim = False
        self._seen = False
        self._keep_alive = False
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether another exchange may begin."""
        return self._transport is not None and not self._transport.is_closing() and self._exchange is None

    def begin(
        self,
        request: bytes,
        body: bytes,
        *,
        patience: float | None,
        upgrade: bool = False,
        redirects: bool = False,
        bodiless: bool = False,
    ) -> Exchange:
        """Send a request; ``upgrade`` says that it may be answered with 101, ``redirects`` with a redirection.

        ``bodiless`` says that the answer is its head alone (RFC 9110, 9.3.2); the connection is not used again then.
        """
        exchange = self._exchange = Exchange(self, patience)
        self._upgrade, self._redirects, self._bodiless = upgrade, redirects, bodiless
        self._seen = self._keep_alive = self._in_interim = False
        self._interim = 0
        self._begin_head()
        if self._transport is None:
            # It has gone while something else was waited for: nobody will tell of it again.
            exchange.fail(BrokenExchange(_CLOSED, unseen=True))
            return exchange
        self._unsent = memoryview(request + body if len(body) <= HIGH_WATER else body)
        if len(body) > HIGH_WATER:
            self.write_nowait(request)
        self._send()
        return exchange

    # What the transport tells.

    def connection_made(self, transport: TlsEnd) -> None:  # type: ignore[override]
        """It is there."""
        self._transport = transport
        self._owner.on_made(self)

    def data_received(self, data: bytes) -> None:
        """Parse, or hand on what follows a 101."""
        exchange = self._exchange
        if exchange is None:
            # Nobody has asked: whatever it is, the next question's answer would be looked for in it.
            self.abort()
            return
        if self._raw:
            exchange.feed_data(data)
            return
        self._seen = True
        self._silent_bytes += len(data)
        self._pieces_seen = 0
        try:
            self._parser.feed_data(data)
            self._hand_on()
            if self._silent_bytes > MAX_SILENT_BYTES:
                raise BrokenExchange("a header or what stands between chunks does not end")
        except httptools.HttpParserUpgrade as switched:
            self._switch(exchange, data[switched.args[0] :])
        except BrokenExchange as error:
            self._break(exchange, error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._break(
                exchange, cause if isinstance(cause, BrokenExchange) else BrokenExchange("what it sends is not HTTP")
            )
        else:
            if self._transport is not None:
                self._transport.charge(self._pieces_seen)
            if exchange.complete:
                self._release()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is no more."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            if self._raw:
                exchange.feed_eof()
            exchange.fail(BrokenExchange(_CLOSED, unseen=not self._seen))
        self._unsent = _NOTHING
        self.resume_writing()
        # Each of them knows this one: all would stay until somebody looks for cycles.
        self._parser = self._transport = None
        self._owner.on_lost(self)

    def pause_writing(self) -> None:
        """The cluster does not keep up."""
        self._writable = self._writable or asyncio.Event()

    def resume_writing(self) -> None:
        """It does again."""
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self._send()

    # What the parser tells.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self._exchange is None or self._exchange.complete:
            raise BrokenExchange("it answers what nobody asked")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header. What follows a body is none."""
        self._pieces_seen += 1
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self._headers) >= MAX_HEADERS:
            raise BrokenExchange("its headers do not end")
        if self._in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is complete: check it, and show it if it is the one that counts."""
        status, headers = self._parser.get_status_code(), tuple(self._headers)
        self._silent_bytes = 0
        if self._parser.get_http_version() != "1.1":
            raise BrokenExchange("it does not speak HTTP/1.1")
        if _CONTROL.search(b"".join([part for pair in headers for part in pair])):
            raise BrokenExchange("a header holds a control character")
        if 100 <= status < 200 and status != 101:
            self._count_interim()
        elif status == 101 and self._upgrade and self._parser.should_upgrade():
            # The exchange hears of it once it is known where the other protocol begins.
            self._in_head = False
        elif self._exchange is not None:
            if self._upgrade and status in _REFUSALS and not _has_end(headers):
                raise UpgradeRefused(status)
            length = _checked(status, headers, redirects=self._redirects, bodiless=self._bodiless)
            self._in_head = False
            # The parser knows of no method, and would take the next answer for a body that never comes.
            self._keep_alive = self._parser.should_keep_alive() and not self._bodiless
            self._headers = []
            self._exchange.feed_head(status, headers, length)
            if self._bodiless:
                self._exchange.feed_eof()

    def on_body(self, body: bytes) -> None:
        """A piece of the body: whoever waits is told once of all that have come together, however many they are."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """An answer is complete; after an interim one another follows."""
        self._hand_on()
        self._silent_bytes = 0
        if self._in_interim:
            self._begin_head()
        elif self._exchange is not None and self._exchange.status:
            self._exchange.feed_eof()

    # What the exchange, the tunnel and the owner ask for.

    def write_nowait(self, data: bytes | memoryview) -> None:
        """Send, now or as soon as there is room."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the cluster keeps up again, or has gone."""
        if self._writable is not None:
            await self._writable.wait()

    def let_go(self) -> None:
        """Let whoever waits in ``drain`` go, whether or not the cluster keeps up."""
        if self._writable is not None:
            self._writable.set()

    def pause_reading(self) -> None:
        """Let the cluster wait."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self, exchange: Exchange) -> None:
        """Read on, if it is this exchange that reading waits for."""
        if not self._reading and exchange is self._exchange and self._transport is not None:
            self._reading = True
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def turn(self) -> None:
        """Wait for another turn of those that this cluster has; for one of the loop's once the connection has gone."""
        await (self._transport.turn() if self._transport is not None else asyncio.sleep(0))

    def close(self) -> None:
        """Send what is written and hang up."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        """As much of the request as the cluster takes now."""
        while self._unsent and self._writable is None:
            piece, rest = self._unsent[:HIGH_WATER], self._unsent[HIGH_WATER:]
            # A view of nothing would keep the whole request.
            self._unsent = rest or _NOTHING
            self.write_nowait(piece)

    def _hand_on(self) -> None:
        """The pieces of the body that have come together, as one."""
        if not self._pieces:
            return
        pieces, self._pieces = self._pieces, []
        self._pieces_seen += len(pieces)
        self._silent_bytes = 0
        if self._bodiless:
            raise BrokenExchange("it sends a body that nobody asked for")
        if self._exchange is not None:
            self._exchange.feed_data(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _begin_head(self) -> None:
        self._headers = []
        self._head_bytes = 0
        self._silent_bytes = 0
        self._in_head = True
        self._in_interim = False

    def _count_interim(self) -> None:
        self._interim += 1
        if self._interim > MAX_INTERIM:
            raise BrokenExchange("its interim answers do not end")
        self._in_interim = True

    def _switch(self, exchange: Exchange, rest: bytes) -> None:
        self._raw, self._parser = True, None
        exchange.patience = None
        exchange.feed_head(101, tuple(self._headers), None)
        self._headers = []
        if rest:
            exchange.feed_data(rest)

    def _break(self, exchange: Exchange, error: BrokenExchange) -> None:
        if not self._bodiless:
            # What came before it is what was asked for.
            self._hand_on()
        exchange.fail(error)
        self.abort()

    def _release(self) -> None:
        """The answer is complete; unless the request is as well, nobody knows what the cluster will read next."""
        transport = self._transport
        self._exchange = None
        if not self._keep_alive or self._unsent or transport is None or transport.is_closing():
            self.abort()
            return
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        self._owner.on_idle(self)


def _has_end(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _checked(status: int, headers: Headers, *, redirects: bool, bodiless: bool) -> int | None:
    """The length that the head promises; ``None`` where it does not. Raises ``BrokenExchange`` for a body without an end."""
    if not 200 <= status <= 599:
        raise BrokenExchange(f"it answers with {status}")
    if 300 <= status < 400 and status != 304 and not redirects:
        # A redirect would lead a client past this server, its credentials in hand.
        raise BrokenExchange("it answers with a redirect")
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if bodiless:
        return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() and status not in _WITHOUT_BODY else None
    if status in _WITHOUT_BODY:
        return 0
    if codings:
        if codings != [b"chunked"] or lengths:
            raise BrokenExchange("nobody can tell where its answer ends")
        return None
    if len(lengths) != 1 or not lengths[0].isdigit():
        raise BrokenExchange("nobody can tell where its answer ends")
    return int(lengths[0])
