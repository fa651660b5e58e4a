"""WebSockets of callers, by a client that is nobody's here."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any
from urllib.parse import urlencode

import websocket

from tests.gateway.callers import PATIENCE, Caller

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
OWN = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}")


def opened(
    caller: Caller, path: str, *, origin: str | None = None, subprotocols: tuple[str, ...] = (), **query: object
) -> websocket.WebSocket:
    """Raises ``websocket.WebSocketBadStatusException``."""
    connection = websocket.WebSocket(
        sslopt={"context": caller.context}, enable_multithread=False, fire_cont_frame=False
    )
    connection.settimeout(PATIENCE)
    connection.connect(
        f"wss://{caller.host}{path}?{urlencode(query)}",
        header=[f"Authorization: Bearer {caller.token}"] if caller.token else [],
        suppress_origin=origin is None,
        origin=origin,
        subprotocols=list(subprotocols) or None,
    )
    return connection


def taken(connection: websocket.WebSocket, count: int) -> list[dict[str, Any]]:
    """The next events, each of which is a text message of one line."""
    events = []
    for _ in range(count):
        opcode, data = connection.recv_data()
        assert opcode == websocket.ABNF.OPCODE_TEXT, (opcode, data)
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        events.append(json.loads(data))
    return events


def until_closed(connection: websocket.WebSocket) -> tuple[list[dict[str, Any]], int, str]:
    """Everything to the end: the events, and the code and the reason of the close frame."""
    events = []
    while True:
        opcode, data = connection.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            connection.shutdown()
            return events, int.from_bytes(data[:2], "big"), data[2:].decode()
        assert opcode == websocket.ABNF.OPCODE_TEXT
        events.append(json.loads(data))


class Raw:
    """A connection after the handshake, by bytes."""

    def __init__(self, caller: Caller, target: str, *headers: str) -> None:
        host, port = caller.host.split(":")
        self.socket: ssl.SSLSocket = caller.context.wrap_socket(
            socket.create_connection((host, int(port)), timeout=PATIENCE), server_hostname=host
        )
        self.socket.sendall("\r\n".join((f"GET {target} HTTP/1.1", f"Host: {caller.host}", *headers, "", "")).encode())
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            read = self.socket.recv(1)
            assert read, self.head
            self.head += read

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    def frame(self) -> tuple[int, bytes]:
        """The next frame, short or middle-sized."""
        first, size = self._exactly(2)
        length = int.from_bytes(self._exactly(2), "big") if size == 126 else size
        return first, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            read = self.socket.recv(size - len(data))
            assert read, data
            data += read
        return data

    def rest(self) -> bytes:
        data = b""
        while read := self.socket.recv(65536):
            data += read
        return data


def masked(first: int, payload: bytes = b"", mask: bytes = b"abcd") -> bytes:
    """A client's frame."""
    said = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    return bytes([first, 0x80 | len(payload)]) + mask + said
