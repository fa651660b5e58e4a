"""A server on a socket, the API server's or the portal's: how it begins to listen, and how it ends without a request that fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast, runtime_checkable

import uvicorn

from gateway.http.keepalive import keep_alive

BACKLOG: Final = 4096
LOOK_SECONDS: Final = 0.2
_HANDSHAKE_SECONDS: Final = 5.0
"""How long whoever stands in line when a server stops may take for the handshake."""


class PortTaken(Exception):
    """Another process listens there; the message says what to do."""


def bind(address: str, port: int, *, shared: bool = False, remedy: str) -> socket.socket:
    """The listening socket, whose connections end when nobody is there any more.

    Raises ``PortTaken`` with one line that names the port and how to change it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "is already in use" if error.errno == errno.EADDRINUSE else "may not be opened by this user"
            raise PortTaken(f"port {port} on {address} {why}: {remedy}") from None
        raise
    keep_alive(listener)
    listener.set_inheritable(True)
    return listener


@runtime_checkable
class Parting(Protocol):
    """A connection over which one request comes after the other."""

    def part(self) -> None:
        """The server will stop: the next answer is the last here, and sends its client to whoever serves on."""


class OrderlyServer(uvicorn.Server):
    """uvicorn's server, which ends without a request that fails, as kube-apiserver does.

    1. Not ready any more: whoever sends requests here looks elsewhere from now on.
    2. For ``shutdown_delay`` everything is served as before, but that each answer is the last of its connection:
       clients that are busy leave by themselves, with nothing under way.
    3. Whoever stands in line is let in, for the line ends with its socket.
    4. Streams without an end of their own end; their clients begin them again elsewhere.
    5. What runs is finished, for as long as ``timeout_graceful_shutdown``.
    """

    @property
    def shutdown_delay(self) -> float:
        """The seconds for which it serves on."""
        raise NotImplementedError

    def stop_being_ready(self) -> None:
        """Serve on, and send clients elsewhere: what comes from now on is told to part as well."""
        raise NotImplementedError

    async def end_streams(self) -> None:
        """End what would go on for ever."""

    @property
    def is_shaking_hands(self) -> bool:
        """Whether anybody has come who cannot ask yet."""
        return False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; see the class."""
        self.stop_being_ready()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Parting):
                connection.part()
        await self._serve_on(self.shutdown_delay)
        await self._let_in(sockets or [])
        await self.end_streams()
        await super().shutdown(sockets=sockets)

    async def _serve_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        # A second SIGINT hurries; signals set a mark, and wake nobody.
        while (left := until - time.monotonic()) > 0 and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(min(left, LOOK_SECONDS))

    async def _let_in(self, listeners: Sequence[socket.socket]) -> None:
        """Take whoever stands in line, and wait for the handshakes that go on."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            made: Any = self.config.http_protocol_class
            return cast(
                "asyncio.Protocol",
                made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop),
            )

        waiting = 0
        for listener in listeners:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while waiting < BACKLOG:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    waiting += 1
                    with contextlib.suppress(OSError):
                        await loop.connect_accepted_socket(protocol, connection)
        until = time.monotonic() + _HANDSHAKE_SECONDS
        while self.is_shaking_hands and time.monotonic() < until:  # noqa: ASYNC110 - whoever stops has the time
            await asyncio.sleep(LOOK_SECONDS / 10)
