"""One cluster's API server, as requests are passed on to it: connections that are kept, and answers that are streamed.

Nothing is repeated but what RFC 9110 (9.2.2) lets a gateway repeat: what is safe, on a kept connection that the cluster
closed before any byte of an answer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from audit import tracing
from gateway.http.clienttls import connect
from gateway.http.keepalive import keep_alive
from gateway.http.lanes import Lane
from gateway.http.messages import Headers
from gateway.http.tlsconnection import TlsEnd
from gateway.upstream.addresses import Addresses
from gateway.upstream.availability import Availability
from gateway.upstream.connection import Connection
from gateway.upstream.exchange import BrokenExchange, Exchange, UpgradeRefused
from gateway.upstream.headers import UnfitHeader, incoming, outgoing, require_fit
from gateway.upstream.tunnel import Tunnel, agreed
from kube.requests.status import BadRequest, ServiceUnavailable, StatusError, Timeout, TooManyRequests

logger = logging.getLogger(__name__)

Permit = Callable[[], Awaitable[None]]
"""Raises a ``StatusError`` where a request may not be sent any more."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""

_SHARE_SECONDS: Final = 1.0
"""What each of many addresses has at least: a handshake takes a few ways there and back."""

_PROTOCOLS: Final = {b"websocket": b"websocket", b"spdy/3.1": b"SPDY/3.1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a registered cluster's API server is, and whom its certificate has to be of."""

    uid: str
    name: str
    url: str
    ca_pem: str = field(repr=False)
    tls_server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a cluster is waited for, in seconds, and how many connections it is worth.

    ``answer_seconds`` is the longest wait for a head, and for more of a body that should not pause; shorter than this
    server's own patience with a request, so that the client is told which cluster it was.
    """

    connect_seconds: float = 3.0
    answer_seconds: float = 55.0
    rest_seconds: float = 5.0
    idle_seconds: float = 30.0
    connections: int = 4096
    idle_connections: int = 64


class BadGateway(StatusError):
    """502: the cluster has given no answer that could be passed on."""

    code = 502


class ShareTaken(TooManyRequests):
    """429: the tenant itself holds as much of a cluster, or of its answers, as is left for the others. No cluster has said so."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A cluster's answer: the headers that a client may see, and the body as it comes.

    ``length`` is that of the body, behind HEAD what it would be, and ``None`` where nobody knows it yet. ``chunks`` raises
    ``BadGateway`` or ``Timeout`` in place of a missing rest. Whoever does not read to the end calls ``close``.
    """

    status: int
    headers: Headers
    length: int | None
    _exchange: Exchange
    _lane: Lane
    location: bytes = b""
    """Where it sends its client, which is told to nobody unlooked at."""

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece as it comes; to stop reading makes the cluster wait."""
        return self._exchange

    async def turn(self) -> None:
        """Wait for another turn of those that this cluster has, for whoever reads the body in many small parts."""
        await self._lane.turn()

    async def work(self, size: int) -> None:
        """Wait until so many bytes may be taken apart: what is said by one cluster, to whomever, takes its share of the loop."""
        await self._lane.work(size)

    def read_nowait(self) -> bytes | None:
        """The whole body if it has come already, so that head and body can be passed on together."""
        return self._exchange.read_nowait() if self._exchange.complete else None

    def interrupt(self) -> None:
        """Let whoever waits for more of the body go, with ``BadGateway``."""
        self._exchange.interrupt()

    def close(self) -> None:
        """No more is wanted; a connection whose answer has not ended is not used again."""
        self._exchange.abort()


class Upstream:
    """The connections to one cluster. Make and use it in one event loop; ``close`` it at the end."""

    def __init__(self, cluster: Cluster, limits: Limits | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        """With ``tls`` this server shows a certificate of its own.

        Raises ``ValueError`` for a URL that is not ``https``, or certificates that cannot be used.
        """
        self.cluster = cluster
        self._limits = limits or Limits()
        url = urlsplit(cluster.url)
        if url.scheme != "https" or not url.hostname:
            raise ValueError("the URL of a cluster begins with https://")
        self._address = url.hostname, url.port or 443
        self._addresses = Addresses(*self._address)
        self._host = url.netloc.rpartition("@")[2].encode("ascii")
        self._prefix = url.path.rstrip("/").encode("ascii")
        self._tls = tls or ssl.create_default_context(cadata=cluster.ca_pem)
        self._server_name = cluster.tls_server_name or url.hostname
        self._availability = Availability(self._limits.rest_seconds)
        self._open: set[Connection] = set()
        self._lane = Lane()
        self._connecting = 0
        self._held: Counter[str] = Counter()
        """The connections by the tenants that hold them, those that are being made included."""
        self._idle: deque[Connection] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def require_there(self) -> None:
        """Raise ``ServiceUnavailable`` where a request would be told that the cluster is away: who has more to do first asks."""
        if not self._idle:
            self._require_there(self._availability.rests())

    async def request(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        token: str,
        audit_id: str,
        long_running: bool = False,
        redirects: bool = False,
        permit: Permit | None = None,
        tenant: str = "",
    ) -> Answer:
        """Pass a request on; ``target`` is path and query as they came, inside the cluster.

        ``permit`` is asked after every wait that comes before the first byte. The body of a ``long_running`` one (watch,
        log that follows) may pause for as long as it likes. ``redirects`` are for what is no API server's. A ``tenant``
        holds no more connections than are left free for others. Raises ``ServiceUnavailable`` while the cluster is away,
        ``ShareTaken`` for a tenant that holds too much, ``BadGateway`` for an answer that is none, ``Timeout``.
        """
        head = self._head(method, target, headers, token=token, audit_id=audit_id)
        if body or method in ("POST", "PUT", "PATCH"):
            head += b"content-length: %d\r\n" % len(body)
        head += b"\r\n"
        if permit is not None:
            await permit()
        self._require_share(tenant)
        asked = {"long_running": long_running, "redirects": redirects, "bodiless": method == "HEAD"}
        connection = self._take(tenant)
        if connection is not None:
            try:
                return await self._exchange(connection, head, body, **asked)
            except BrokenExchange as error:
                if method not in _SAFE or not error.unseen or error.late:
                    raise self._failure(error) from None
        try:
            connection = await self._connect(permit, tenant)
            return await self._exchange(connection, head, body, **asked)
        except BrokenExchange as error:
            raise self._failure(error) from None

    async def upgrade(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        *,
        token: str,
        audit_id: str,
        long_running: bool = False,
        permit: Permit | None = None,
        tenant: str = "",
    ) -> Answer | Tunnel:
        """Pass on a request that asks for another protocol: a tunnel if the cluster agrees, else its answer.

        ``permit`` is asked once the cluster is reached. Always over a new connection, and never repeated. Raises as
        ``request``, and ``BadRequest`` for a protocol that nothing in Kubernetes speaks.
        """
        wanted = next((value for name, value in headers if name == b"upgrade"), b"").lower()
        if wanted not in _PROTOCOLS:
            raise BadRequest("a connection can be upgraded to websocket or SPDY/3.1")
        protocol = _PROTOCOLS[wanted]
        head = self._head(method, target, headers, token=token, audit_id=audit_id)
        if method == "POST":
            head += b"content-length: 0\r\n"
        head += b"connection: Upgrade\r\nupgrade: " + protocol + b"\r\n\r\n"
        self._require_share(tenant)
        connection = await self._connect(permit, tenant)
        bodiless = method == "HEAD"
        exchange = connection.begin(head, b"", patience=self._limits.answer_seconds, upgrade=True, bodiless=bodiless)
        try:
            answered = await exchange.wait_for_head()
            if exchange.status == 101:
                return Tunnel(agreed(protocol, headers, answered), exchange, connection)
        except UpgradeRefused as refused:
            raise BadRequest(
                f'the cluster "{self.cluster.name}" does not open this connection ({refused.status}): '
                "offer a subprotocol that it speaks"
            ) from None
        except BrokenExchange as error:
            exchange.abort()
            raise self._failure(error) from None
        except BaseException:
            exchange.abort()
            raise
        if long_running:
            exchange.patience = None
        exchange.told = self._failure
        return self._answer(exchange, answered)

    def retire(self) -> None:
        """No more requests will come: hang up where nothing is under way, elsewhere as it ends."""
        self._limits = replace(self._limits, idle_connections=0)
        self._part_with_idle()

    async def close(self) -> None:
        """Hang up everywhere."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.abort()

    async def _exchange(
        self, connection: Connection, head: bytes, body: bytes, *, long_running: bool, redirects: bool, bodiless: bool
    ) -> Answer:
        patience = self._limits.answer_seconds
        exchange = connection.begin(head, body, patience=patience, redirects=redirects, bodiless=bodiless)
        try:
            answered = await exchange.wait_for_head()
        except BrokenExchange as error:
            if error.late:
                # A cluster that is frozen still holds its connections: the next request finds out with a new one.
                self._part_with_idle()
            raise
        except BaseException:
            exchange.abort()
            raise
        if long_running:
            exchange.patience = None
        exchange.told = self._failure
        return self._answer(exchange, answered)

    def _head(self, method: str, target: bytes, headers: Headers, *, token: str, audit_id: str) -> bytes:
        try:
            require_fit((target,))
            sent = outgoing(headers, host=self._host, token=token, audit_id=audit_id, traceparent=tracing.traceparent())
        except UnfitHeader as error:
            raise BadRequest(str(error)) from None
        lines = [method.encode("ascii"), b" ", self._prefix, target, b" HTTP/1.1\r\n"]
        for name, value in sent:
            lines += (name, b": ", value, b"\r\n")
        return b"".join(lines)

    def _require_share(self, tenant: str) -> None:
        """Raise ``ShareTaken`` for a tenant that holds as many connections as are left free, kept ones included."""
        # A dynamic threshold (Choudhury, Hahne 1998): alone a tenant gets half, and whoever comes next finds something left.
        free = self._limits.connections - (len(self._open) - len(self._idle) + self._connecting)
        if tenant and self._held[tenant] >= free:
            text = "the tenant has too many open watches, logs and shells on the cluster"
            raise ShareTaken(f'{text} "{self.cluster.name}", please end some', retry_after=5)

    def _take(self, tenant: str) -> Connection | None:
        """A kept connection; the youngest, so that those too many grow old."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._hold(connection, tenant)
                return connection
        return None

    def _require_there(self, wait: int) -> None:
        if wait:
            text = f'the cluster "{self.cluster.name}" is away, please try again later'
            raise ServiceUnavailable(text, retry_after=wait)

    async def _connect(self, permit: Permit | None, tenant: str) -> Connection:
        """Raises ``ServiceUnavailable``, and what ``permit`` does."""
        name, limits = self.cluster.name, self._limits
        self._require_there(self._availability.admit())
        if len(self._open) + self._connecting >= limits.connections:
            raise ServiceUnavailable(f'the cluster "{name}" is asked too much at once, please try again', retry_after=1)
        self._connecting += 1
        self._held[tenant] += 1
        try:
            until = asyncio.get_running_loop().time() + limits.connect_seconds
            async with asyncio.timeout_at(until):
                connection, transport = await self._reach(tenant, until)
        except (OSError, ValueError) as error:
            # What a certificate that does not verify says is for operators: the client can do nothing about it.
            logger.warning("the cluster %s cannot be reached: %s", name, type(error).__name__)
            self._part_with_idle()
            self._addresses.doubt()
            wait = self._availability.failed()
            text = f'the cluster "{name}" cannot be reached, please try again later'
            raise ServiceUnavailable(text, retry_after=wait) from None
        finally:
            # What was made has been counted by then.
            self._connecting -= 1
            self._count_off(tenant)
        self._availability.succeeded()
        keep_alive(transport.get_extra_info("socket"))
        if permit is not None:
            try:
                await permit()
            except BaseException:
                connection.abort()
                raise
        return connection

    async def _reach(self, tenant: str, until: float) -> tuple[Connection, TlsEnd]:
        """A connection to the first of the cluster's addresses where somebody shows to be it, and its transport.

        Each has its share of the time until then: one that is silent keeps nobody from the others. Raises ``OSError``, and
        ``ValueError`` for a name that none can have.
        """
        clock, failure = asyncio.get_running_loop().time, OSError("there is no address")
        addresses, port = await self._addresses.get(), self._address[1]
        for number, address in enumerate(addresses):
            share = max((until - clock()) / (len(addresses) - number), _SHARE_SECONDS)
            # One of its own: nothing that a late handshake tells is told of another.
            connection = Connection(self, tenant)
            try:
                async with asyncio.timeout(share):
                    return connection, await connect(
                        connection, address, port, self._tls, self._server_name, self._lane
                    )
            except OSError as error:
                self._addresses.failed(address)
                failure = error
        raise failure

    # What connections tell.

    def on_made(self, connection: Connection) -> None:
        """Count a new connection against the limits, for the tenant that it was made for."""
        self._open.add(connection)
        self._hold(connection, connection.tenant)

    def on_idle(self, connection: Connection) -> None:
        """Keep it for the next request, for a while; nobody holds it."""
        self._release(connection)
        if len(self._idle) >= self._limits.idle_connections:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._limits.idle_seconds, self._sweep)

    def on_lost(self, connection: Connection) -> None:
        """Give back what a connection that has ended took of the limits."""
        if connection in self._open:
            self._open.remove(connection)
            self._release(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _hold(self, connection: Connection, tenant: str | None) -> None:
        connection.tenant = tenant
        if tenant is not None:
            self._held[tenant] += 1

    def _release(self, connection: Connection) -> None:
        if connection.tenant is not None:
            self._count_off(connection.tenant)
            connection.tenant = None

    def _count_off(self, tenant: str) -> None:
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]

    def _sweep(self) -> None:
        """Part with what has been idle for long, before the cluster does, which would look like a failure."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        while self._idle and loop.time() - self._idle[0].idle_since >= self._limits.idle_seconds:
            self._idle.popleft().abort()
        if self._idle:
            oldest = self._idle[0].idle_since
            self._sweeper = loop.call_at(oldest + self._limits.idle_seconds, self._sweep)

    def _part_with_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _answer(self, exchange: Exchange, answered: Headers) -> Answer:
        location = next((value for name, value in answered if name == b"location"), b"")
        return Answer(exchange.status, incoming(answered), exchange.length, exchange, self._lane, location)

    def _failure(self, error: BrokenExchange) -> StatusError:
        """What a client may know.

        There is no ``Retry-After``: clients repeat by themselves what they are asked to repeat, and this may have been done.
        """
        name = self.cluster.name
        if error.late:
            text = f'the cluster "{name}" did not answer in time: whether the request took effect is unknown'
            return Timeout(text)
        return BadGateway(
            f'the cluster "{name}" gave no usable answer ({error}): whether the request took effect is unknown'
        )
