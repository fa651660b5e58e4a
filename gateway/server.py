"""The server around the application: sockets, TLS, worker processes, a self-test, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import multiprocessing
import signal
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from access.authentication.keyfiles import KeyFiles
from gateway.application import Application
from gateway.certificates import Certificates, prepare
from gateway.options import Options
from gateway.protocol import GatewayProtocol, peer_certificate
from gateway.tls import ServerTls, tls_context
from kube import pki

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 10
_LOOK_SECONDS = 0.2

ContextFactory = Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]


class PortTaken(Exception):
    """Another process listens there; the message says what to do."""


def bind(options: Options) -> socket.socket:
    """The listening socket. Raises ``PortTaken`` with one line that names the port and how to change it."""
    family = socket.AF_INET6 if ":" in options.bind_address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.bind_address, options.secure_port))
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "is already in use" if error.errno == errno.EADDRINUSE else "may not be opened by this user"
            raise PortTaken(
                f"port {options.secure_port} on {options.bind_address} {why}: "
                "choose another with --secure-port or APISERVER_PORT"
            ) from None
        raise
    listener.set_inheritable(True)
    return listener


def configure(application: Any, context: ContextFactory, *, workers: int = 1) -> uvicorn.Config:
    """Uvicorn as the API server needs it: no proxy headers, no access log, our protocol, our TLS."""
    return uvicorn.Config(
        application,
        http=GatewayProtocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        workers=workers,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=4096,
        ssl_context_factory=context,
    )


def run(options: Options, *, announce: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is running and stop.

    ``announce`` is called once with the URL when the socket is open. Raises ``PortTaken``, and ``UnusableFile`` for
    certificates or keys that cannot be used.
    """
    listener = bind(options)
    certificates = prepare(options)
    _check(certificates)
    self_test()
    config = configure(Application(options, certificates), ServerTls(certificates), workers=options.workers)
    host = f"[{options.bind_address}]" if ":" in options.bind_address else options.bind_address
    announce(f"https://{host}:{listener.getsockname()[1]}")
    if options.workers > 1:
        listener.listen(config.backlog)
        _supervise(config, listener, options.workers)
    else:
        GatewayServer(config).run(sockets=[listener])


def _check(certificates: Certificates) -> None:
    """Read every file once here, so that a wrong one ends the start with one line."""
    ServerTls(certificates).check()
    KeyFiles(certificates.verifying_keys, certificates.signing_key)


def _supervise(config: uvicorn.Config, listener: socket.socket, workers: int) -> None:
    """Keep ``workers`` processes on one socket; a dead one is replaced, one that cannot start ends all of them."""
    context = multiprocessing.get_context("spawn")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def started() -> SpawnProcess:
        process = context.Process(target=_work, args=(config, listener))
        process.start()
        return process

    processes = [started() for _ in range(workers)]
    while not stopping.wait(_LOOK_SECONDS):
        for index, process in enumerate(processes):
            if process.exitcode == STARTUP_FAILURE:
                stopping.set()
            elif process.exitcode is not None:
                logger.error("a worker process ended (%s) and is replaced", process.exitcode)
                processes[index] = started()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_GRACE_SECONDS + 5)
        process.kill()
    if any(process.exitcode == STARTUP_FAILURE for process in processes):
        sys.exit(STARTUP_FAILURE)


def _work(config: uvicorn.Config, listener: socket.socket) -> None:
    GatewayServer(config).run(sockets=[listener])


class GatewayServer(uvicorn.Server):
    """uvicorn's server, which follows its certificates while it runs, and ends open watches when it stops."""

    _following: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and follow the certificates."""
        await super().startup(sockets)
        tls = self.config.ssl_context_factory
        if isinstance(tls, ServerTls):
            self._following = asyncio.create_task(tls.follow(self._part_with_untrusted))

    def _part_with_untrusted(self) -> None:
        """Cut every connection whose client certificate is of an authority that is gone; its watches end with it."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, GatewayProtocol):
                connection.require_trust()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop: watches end, so that their clients go elsewhere at once."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        application = self.config.app
        if isinstance(application, Application):
            application.drain()
        await super().shutdown(sockets=sockets)


def self_test() -> None:
    """Prove that a client certificate reaches the application through uvicorn's internals.

    Raises ``RuntimeError`` when it does not: the server must not start without knowing who asks.
    """
    with tempfile.TemporaryDirectory(prefix="tenantry-self-test-") as folder:
        asyncio.run(_self_test(Path(folder)))


async def _self_test(folder: Path) -> None:
    now = datetime.now(UTC)
    ca = pki.make_authority("self-test", now=now)
    server = pki.make_server_certificate(ca, ["localhost"], now=now)
    client = pki.make_client_certificate(ca, "caller", now=now, lifetime=timedelta(minutes=1))
    for name, pair in (("server", server), ("client", client)):
        (folder / f"{name}.crt").write_bytes(pair.certificate)
        (folder / f"{name}.key").touch(mode=0o600)
        (folder / f"{name}.key").write_bytes(pair.key)
    (folder / "ca.crt").write_bytes(ca.certificate)
    seen: list[bytes | None] = []

    async def application(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        seen.append(peer_certificate(scope))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    context = tls_context(folder / "server.crt", folder / "server.key", (folder / "ca.crt",))
    config = configure(application, lambda *_: context)
    config.lifespan = "off"
    instance = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config.load()
        instance.lifespan = config.lifespan_class(config)
        await instance.startup(sockets=[listener])
        trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        trust.load_cert_chain(folder / "client.crt", folder / "client.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        for server_ in instance.servers:
            server_.close()
    expected = ssl.PEM_cert_to_DER_cert(client.certificate.decode())
    if seen != [expected]:
        raise RuntimeError("the installed uvicorn does not hand client certificates to the application")
