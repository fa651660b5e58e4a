"""The client's end of TLS to a cluster, which verifies it as Python's own ``ssl`` does (GW4).

Event loops do this as well, and keep twice the memory for each connection: thousands of them are watches and shells that
are silent most of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from typing import Any, Final

from gateway.http.handshakes import TlsError
from gateway.http.lanes import Lane
from gateway.http.tlsconnection import TlsEnd

_RECORD: Final = 16 * 1024
"""Bytes that a record brings at most. No more pass at once: what OpenSSL has had to keep, it keeps room for until the end."""

_UNASKED: Final = 16 * 1024
"""Bytes that may wait for whatever is sent next: answers to changes of the cluster's keys, as often as they come."""


class _Scratch(threading.local):
    """Where OpenSSL puts bytes, once in each thread: while it works, other threads go on."""

    def __init__(self) -> None:
        self.buffer: Final = bytearray(_RECORD)


_scratch: Final = _Scratch()


class ClientSession:
    """The client's side of one connection: bytes in, bytes out; see ``tlsconnection.Shaking``."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        """Raises ``ValueError`` for a name that none can have."""
        self.ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def shake(self, data: bytes) -> bool:
        """Go on with the handshake; whether it is over. Raises ``TlsError``, for what ``ssl`` has raised."""
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        return True

    def receive(self, data: bytes) -> bytes:
        """What the cluster has said up to the end of ``data``; nothing while a record is not complete. Raises ``TlsError``."""
        if len(data) > _RECORD:
            pieces = (data[start : start + _RECORD] for start in range(0, len(data), _RECORD))
            return b"".join([self.receive(piece) for piece in pieces])
        parts: list[bytes] = []
        self._incoming.write(data)
        try:
            self._read(parts)
            # For a ticket OpenSSL makes room to write, as if it were to answer, and keeps it until something is written.
            self._tls.write(b"")
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        if self._outgoing.pending > _UNASKED:
            raise TlsError("too many changes of keys")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes | memoryview) -> bytes:
        """What brings ``data`` to the cluster, behind whatever else is to be sent. Raises ``TlsError``."""
        size = len(data)
        if size > _RECORD:
            return b"".join([self.send(data[start : start + _RECORD]) for start in range(0, size, _RECORD)])
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        return self._outgoing.read()

    def taken(self) -> bytes:
        """What is to be sent to the cluster without its asking: steps of the handshake, alerts."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """What tells the cluster that nothing more will come (RFC 8446, 6.1)."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def _read(self, parts: list[bytes]) -> None:
        incoming, read, buffer = self._incoming, self._tls.read, _scratch.buffer
        try:
            # Asking for what is not there is dear. OpenSSL takes one record at a time, and each is read whole.
            while incoming.pending and not self.ended:
                got: Any = read(_RECORD, buffer)
                self.ended = not got
                parts.append(bytes(memoryview(buffer)[:got]))
        except ssl.SSLWantReadError:
            return


class _ClientEnd(TlsEnd):
    """``over`` is told when the handshake is, or why there is none."""

    __slots__ = ("_over",)

    def __init__(
        self,
        inner: asyncio.Protocol,
        session: ClientSession,
        loop: asyncio.AbstractEventLoop,
        over: asyncio.Future[None],
        lane: Lane,
    ) -> None:
        super().__init__(inner, session, loop, lane)
        self._over: asyncio.Future[None] | None = over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        super().connection_made(transport)
        self._decrypt(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._tell(exc or ConnectionResetError())
        super().connection_lost(exc)

    def _on_shaken(self) -> None:
        self._tell(None)
        super()._on_shaken()

    def _words(self, data: bytes, error: TlsError) -> bytes:
        self._tell(error.__cause__ or error)
        return super()._words(data, error)

    def _tell(self, failure: BaseException | None) -> None:
        """Once; whoever waited may have gone."""
        over, self._over = self._over, None
        if over is None or over.done():
            return
        if failure is None:
            over.set_result(None)
        else:
            over.set_exception(failure)


async def connect(
    inner: asyncio.Protocol,
    address: str,
    port: int,
    context: ssl.SSLContext,
    server_name: str,
    lane: Lane,
) -> TlsEnd:
    """The transport of ``inner``, once whoever is at the address has shown to be ``server_name``.

    Raises ``OSError``, and ``ValueError`` for a name that none can have.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    end = _ClientEnd(inner, ClientSession(context, server_name), loop, over, lane)
    await loop.create_connection(lambda: end, address, port)
    try:
        await over
    except BaseException:
        end.abort()
        raise
    return end
