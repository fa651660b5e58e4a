"""The server around the application: sockets, TLS, worker processes, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import ServerState

from access.authentication.keyfiles import KeyFiles
from gateway.http.certificates import Certificates, serving
from gateway.http.protocol import GatewayProtocol
from gateway.http.servers import BACKLOG, LOOK_SECONDS, OrderlyServer, bind
from gateway.http.tls import ServerTls
from gateway.http.tlsconnection import TlsConnection
from gateway.options import Options
from gateway.server.application import Application
from gateway.server.worker import work
from store.supervision import Supervised

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 10
_REMEDY: Final = (
    "choose another with --secure-port or APISERVER_PORT; servers that take turns on it all say --permit-port-sharing"
)


class Connections:
    """Makes the two protocols of each connection, for uvicorn, and remembers who has not said anything yet."""

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self.shaking: set[TlsConnection] = set()
        """Connections whose handshake goes on."""

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
        return TlsConnection(spoken, self.tls.trust, loop, self.shaking)


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
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=BACKLOG,
    )


def run(options: Options, *, announce: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is running and stop.

    ``announce`` is called once with the URL when the socket is open. Raises ``PortTaken``, and ``UnusableFile`` for
    certificates or keys that cannot be used.
    """
    _forbid_core_files()
    listener = bind(options.bind_address, options.secure_port, shared=options.permit_port_sharing, remedy=_REMEDY)
    with serving(options) as certificates:
        _check(certificates)
        connections = Connections(ServerTls(certificates))
        config = configure(Application(options, certificates), connections, workers=options.workers)
        host = f"[{options.bind_address}]" if ":" in options.bind_address else options.bind_address
        announce(f"https://{host}:{listener.getsockname()[1]}")
        if options.workers > 1:
            if not options.permit_port_sharing:
                # Who comes early waits for the first worker. Where another server serves on, each worker opens the line.
                listener.listen(BACKLOG)
            _supervise(config, listener, options)
        else:
            GatewayServer(config).run(sockets=[listener])


def _forbid_core_files() -> None:
    """For this process and all that it starts: tokens and keys are in memory, and are to be nowhere else.

    At most one byte is too small for a file, and the only limit that also counts where a program takes them (core(5)).
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 0 if most == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def _check(certificates: Certificates) -> None:
    """Read every file once here, so that a wrong one ends the start with one line."""
    ServerTls(certificates).check()
    KeyFiles(certificates.verifying_keys, certificates.signing_key)


def _supervise(config: uvicorn.Config, listener: socket.socket, options: Options) -> None:
    """Keep ``workers`` processes on one socket; a dead one is replaced, one that cannot start ends all of them."""
    context = multiprocessing.get_context("spawn")
    pickled = bytes(ForkingPickler.dumps(config))
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def started() -> SpawnProcess:
        process = context.Process(target=work, args=(pickled, listener))
        process.start()
        return process

    processes = [started() for _ in range(options.workers)]
    while not stopping.wait(LOOK_SECONDS):
        for index, process in enumerate(processes):
            if process.exitcode == STARTUP_FAILURE:
                stopping.set()
            elif process.exitcode is not None:
                logger.error("a worker process ended (%s) and is replaced", process.exitcode)
                processes[index] = started()
    # The workers have it as well: with the last of them it is closed, and nobody stands in a line that nobody serves.
    listener.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(options.shutdown_delay_duration + _GRACE_SECONDS + 5)
        process.kill()
    if any(process.exitcode == STARTUP_FAILURE for process in processes):
        sys.exit(STARTUP_FAILURE)


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
