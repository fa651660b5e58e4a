"""A registered cluster that means harm: an HTTPS server that answers whatever a test tells it to, byte by byte."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import trustme

from tests.kubeapiserver import make_kubeconfig

Reply = Callable[[str, str], "tuple[int, Any] | Callable[[ssl.SSLSocket], None]"]
"""Of method and path: a code with JSON (or its bytes), or what to do with the connection."""


class HostileCluster:
    """Listens on a free port of 127.0.0.1; ``reply`` may be changed at any time, and may look at the last body and headers."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.reply: Reply = lambda _method, _path: (200, {"kind": "Status", "apiVersion": "v1"})
        self.calls: list[tuple[str, str]] = []
        self.sent = b""
        self.headers: dict[str, str] = {}
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def kubeconfig(self) -> str:
        """For its registration."""
        return make_kubeconfig(self.url, self.ca.cert_pem.bytes().decode(), {"token": "abc"})

    def serve(self) -> None:
        """A thread for each connection, until the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Listen no longer; twice is once."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _connection(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection, connection.makefile("rb") as lines:
                while request := lines.readline().decode().split():
                    length, headers = 0, {}
                    while header := lines.readline().strip():
                        name, _, value = header.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                        headers[name.decode().lower()] = value.strip().decode()
                    self.sent, self.headers = lines.read(length), headers
                    self.calls.append((request[0], request[1]))
                    reply = self.reply(request[0], request[1])
                    if not isinstance(reply, tuple):
                        reply(connection)
                        return
                    code, body = reply
                    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
                    connection.sendall(head.encode() + raw)
        except OSError:
            pass


@contextmanager
def hostile_cluster() -> Iterator[HostileCluster]:
    """One that runs."""
    cluster = HostileCluster()
    threading.Thread(target=cluster.serve, daemon=True).start()
    try:
        yield cluster
    finally:
        cluster.close()
