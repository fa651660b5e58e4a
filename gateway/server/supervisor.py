"""The API server's first process: its options are checked, its socket bound, its worker processes kept."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from access.authentication.keyfiles import KeyFiles
from gateway.http.certificates import Certificates, serving
from gateway.http.servers import BACKLOG, LOOK_SECONDS, bind
from gateway.http.tls import ServerTls
from gateway.options import Options
from gateway.server.application import Application
from gateway.server.serving import GRACE_SECONDS, Connections, GatewayServer, configure
from gateway.server.worker import work

logger = logging.getLogger(__name__)

_REMEDY: Final = (
    "choose another with --secure-port or APISERVER_PORT; servers that take turns on it all say --permit-port-sharing"
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
            with tempfile.TemporaryDirectory(prefix="tenantry-workers-") as folder:
                _supervise(config, listener, options, Path(folder))
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


def _supervise(config: uvicorn.Config, listener: socket.socket, options: Options, folder: Path) -> None:
    """Keep ``workers`` processes on one socket; a dead one is replaced, one that cannot start ends all of them.

    They meet in ``folder``, which nobody else may enter.
    """
    context = multiprocessing.get_context("spawn")
    pickled = bytes(ForkingPickler.dumps(config))
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def started(index: int) -> SpawnProcess:
        process = context.Process(target=work, args=(pickled, listener, folder, index))
        process.start()
        return process

    processes = [started(index) for index in range(options.workers)]
    while not stopping.wait(LOOK_SECONDS):
        for index, process in enumerate(processes):
            if process.exitcode == STARTUP_FAILURE:
                stopping.set()
            elif process.exitcode is not None:
                logger.error("a worker process ended (%s) and is replaced", process.exitcode)
                processes[index] = started(index)
    # The workers have it as well: with the last of them it is closed, and nobody stands in a line that nobody serves.
    listener.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(options.shutdown_delay_duration + GRACE_SECONDS + 5)
        process.kill()
    if any(process.exitcode == STARTUP_FAILURE for process in processes):
        sys.exit(STARTUP_FAILURE)
