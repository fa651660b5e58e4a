"""The server around the application: connections, TLS, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import socket
from typing import Any, Final, cast

import uvicorn
from uvicorn.server import ServerState

from gateway.http.lanes import Lane
from gateway.http.protocol import GatewayProtocol
from gateway.http.servers import BACKLOG, OrderlyServer
from gateway.http.tls import ServerTls
from gateway.http.tlsconnection import TlsConnection
from gateway.server.application import Application
from store.supervision import Supervised

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10


class Connections:
    """Makes the two protocols of each connection, for uvicorn, and remembers who has not said anything yet."""

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self.shaking: set[TlsConnection] = set()
        """Connections whose handshake goes on."""
        self.lane = Lane()
        """Of the clients that speak in small pieces."""

    def __call__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> TlsConnection:
        """The protocol of a new connection."""
        loop = _loop or asyncio.get_running_loop()
        spoken = GatewayProtocol(config, server_state, app_state, loop, tls=self.tls)
        return TlsConnection(spoken, self.tls.trust, loop, self.shaking, self.lane)


def configure(application: Application, connections: Connections, *, workers: int = 1) -> uvicorn.Config:
    """Uvicorn as the API server needs it: no proxy headers, no access log, our protocol, our TLS."""
    return uvicorn.Config(
        application,
        http=connections,  # type: ignore[arg-type]
        ws="none",
        loop="uvloop",
        lifespan="on",
        workers=workers,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
    )


class GatewayServer(OrderlyServer):
    """A server that follows its certificates while it runs, and ends open watches when it stops."""

    _tasks: tuple[Supervised, ...] = ()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Read the certificates, and serve. Raises ``UnusableFile``."""
        self._made_by.tls.start()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, follow the certificates, and hang up on who takes too long."""
        await super().startup(sockets)
        parent = multiprocessing.parent_process()
        if parent is not None:
            # A worker whose supervisor is gone, however it went, would serve on with nobody to stop or replace it.
            asyncio.get_running_loop().add_reader(parent.sentinel, self._orphaned, parent.sentinel)
        tls = self._made_by.tls
        self._tasks = (
            Supervised("certificates", lambda: tls.follow(self._part_with_untrusted)),
            Supervised("clocks", self._look_at_clocks),
        )
        for task in self._tasks:
            task.start()

    def _orphaned(self, sentinel: int) -> None:
        """End as on SIGTERM: what runs is finished, for as long as the grace lasts."""
        asyncio.get_running_loop().remove_reader(sentinel)
        logger.error("the supervisor has ended, and this worker ends with it")
        self.should_exit = True

    @property
    def _made_by(self) -> Connections:
        return cast("Connections", self.config.http)

    def _connections(self) -> list[GatewayProtocol]:
        return [each for each in self.server_state.connections if isinstance(each, GatewayProtocol)]

    def _part_with_untrusted(self) -> None:
        """Cut every connection whose client certificate is of an authority that is gone; its watches end with it."""
        for connection in self._connections():
            connection.require_trust()

    async def _look_at_clocks(self) -> None:
        """One clock for all: a timer for each request would cost each of them."""
        while True:
            await asyncio.sleep(1)
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                connection.expire(now)

    @property
    def shutdown_delay(self) -> float:
        """See ``OrderlyServer``."""
        application = self.config.app
        return application.shutdown_delay if isinstance(application, Application) else 0.0

    def stop_being_ready(self) -> None:
        """See ``OrderlyServer``."""
        if isinstance(self.config.app, Application):
            self.config.app.stop_being_ready()

    async def end_streams(self) -> None:
        """End watches, logs and shells."""
        for task in self._tasks:
            await task.stop()
        if isinstance(self.config.app, Application):
            self.config.app.end_streams()

    @property
    def is_shaking_hands(self) -> bool:
        """Whether anybody is in the midst of TLS's handshake."""
        return bool(self._made_by.shaking)
