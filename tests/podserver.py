"""What the product's API server says of one pod, and a shell in it that does what a test types, without a node.

Its answers are those that were recorded of the real one; ``tests/gateway/placed/test_terminals.py`` has the real one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.hostilecluster import HostileCluster, hostile_cluster

STDOUT, ERROR, RESIZE = 1, 3, 4
HOSTILE = (
    "\x1b]0;forged title\x07\x1b]8;;https://evil.test/\x07a link\x1b]8;;\x07\x1b]52;c;c3RvbGVu\x07"
    "\x1b[38;2;200;10;10mtrue colours\x1b[0m\r\n"
)


class PodServer:
    """Lets in whoever ``may``; ``typed`` is what has come on stdin, ``sizes`` the sizes of the terminal."""

    def __init__(self, cluster: HostileCluster, pod: str) -> None:
        self.cluster = cluster
        self.pod = pod
        self.may = True
        self.refusal: tuple[int, str] | None = None
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.typed = b""
        self.sizes: list[dict[str, int]] = []
        cluster.reply = self._answer

    def _answer(self, method: str, path: str) -> tuple[int, Any] | Callable[[ssl.SSLSocket], None]:
        bare = path.partition("?")[0]
        if bare in {"/api", "/apis"}:
            return 200, _discovery(bare)
        if bare.endswith("/selfsubjectaccessreviews"):
            return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": self.may}}
        if bare.endswith(f"/pods/{self.pod}/exec"):
            self.asked.append(path)
            self.headers = self.cluster.headers
            if self.refusal is not None:
                return self.refusal[0], _status(*self.refusal)
            return self._shell
        if bare.endswith(f"/pods/{self.pod}"):
            return 200, _pod(self.pod)
        return 404, _status(404, f'pods "{bare.rpartition("/")[2]}" not found')

    def _shell(self, connection: ssl.SSLSocket) -> None:
        connection.sendall(_switch(self.headers["sec-websocket-key"]))
        say = lambda channel, text: connection.sendall(_frame(bytes([channel]) + text.encode()))  # noqa: E731
        say(STDOUT, "$ ")
        line = b""
        for message in _messages(connection):
            if not message:
                continue
            if message[0] == RESIZE:
                self.sizes.append(json.loads(message[1:]))
                continue
            self.typed += message[1:]
            say(STDOUT, message[1:].decode())
            line += message[1:]
            if b"\r" not in line:
                continue
            word, line = line.strip().decode(), b""
            if word == "exit":
                say(ERROR, json.dumps({"status": "Success"}))
                connection.sendall(_frame((1000).to_bytes(2, "big"), opcode=8))
                return
            if word.startswith("exit "):
                cause = {"reason": "ExitCode", "message": word.split()[1]}
                failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
                say(ERROR, json.dumps(failed))
                return
            if word == "die":
                return
            size = self.sizes[-1] if self.sizes else {}
            said = {"hostile": HOSTILE, "size": f"{size.get('Height')} {size.get('Width')}\r\n"}
            say(STDOUT, "\n" + said.get(word, f"{word.upper()}\r\n") + "$ ")


@contextmanager
def pod_server(pod: str = "web-1") -> Iterator[PodServer]:
    """One that listens."""
    with hostile_cluster() as cluster:
        yield PodServer(cluster, pod)


def messages_in(data: bytes) -> list[bytes]:
    """The messages of a server's frames, the reasons of its close frames among them."""
    found = []
    while len(data) > 1:
        size, at = data[1] & 0x7F, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        found.append(data[at : at + size])
        data = data[at + size :]
    return found


def _switch(key: str) -> bytes:
    accepted = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Set-Cookie: session=stolen\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % base64.b64encode(accepted)
    )


def _frame(payload: bytes, *, opcode: int = 2) -> bytes:
    size = len(payload)
    return bytes([0x80 | opcode, *((size,) if size < 126 else (126, *size.to_bytes(2, "big")))]) + payload


def _messages(connection: ssl.SSLSocket) -> Iterator[bytes]:
    """Those of a client, until it closes."""

    def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                raise OSError
            data += piece
        return data

    while True:
        first, second = read(2)
        size = second & 0x7F
        size = (
            struct.unpack(">H", read(2))[0] if size == 126 else struct.unpack(">Q", read(8))[0] if size == 127 else size
        )
        mask = read(4)
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(read(size)))
        if first & 0x0F == 8:
            return
        yield payload


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


def _discovery(path: str) -> dict[str, Any]:
    pods = {
        "resource": "pods",
        "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": ["get", "list", "delete"],
        "subresources": [{"subresource": "exec", "verbs": ["create", "get"]}],
    }
    groups = [{"metadata": {}, "versions": [{"version": "v1", "resources": [pods]}]}] if path == "/api" else []
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups}


def _pod(name: str) -> dict[str, Any]:
    names = ("app", "sidecar")
    running = [{"name": each, "ready": True, "restartCount": 0, "state": {"running": {}}} for each in names]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-11-01T09:30:00Z"},
        "spec": {"containers": [{"name": each, "image": "registry.example/app:1"} for each in names]},
        "status": {"phase": "Running", "containerStatuses": running},
    }
