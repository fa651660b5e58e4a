"""Channels over WebSockets: the first byte of a message names its channel (``v4.channel.k8s.io``, ``v5``; RFC 6455)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kube.remotecommand.channels import RESIZE, STDOUT, Piece, Unreadable

SUBPROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")
"""Those that can be followed. The others write bytes in base64, and no client of Kubernetes prefers them."""

_CONTROL: Final = 0x08
_RESERVED: Final = 0x70
_FIN: Final = 0x80
_MASKED: Final = 0x80


class _Direction:
    """The frames of one direction; of channels but ``only`` nothing is looked at, unless that is ``None``."""

    def __init__(self, only: int | None) -> None:
        self._only = only
        self._head = b""
        self._left = 0
        self._mask = b""
        self._passed = 0
        self._in_control = False
        self._last = False
        self._channel: int | None = None

    def feed(self, data: bytes) -> Iterator[Piece]:
        position = 0
        while position < len(data):
            if not self._left:
                lacking = _head_size(self._head) - len(self._head)
                self._head += data[position : position + lacking]
                position += lacking
                if len(self._head) == _head_size(self._head):
                    self._begin()
                    yield STDOUT, b""
                continue
            size = min(self._left, len(data) - position)
            start, position = position, position + size
            if not self._in_control:
                if self._channel is None:
                    (self._channel,) = self._unmasked(data[start : start + 1])
                    self._count(1)
                    start += 1
                    size -= 1
                if size and self._only in (None, self._channel):
                    yield self._channel, self._unmasked(data[start:position])
            self._count(size)

    def _begin(self) -> None:
        head, self._head = self._head, b""
        if head[0] & _RESERVED:
            raise Unreadable("a WebSocket's frame has an extension that was not agreed on")
        self._in_control = bool(head[0] & _CONTROL)
        if not self._in_control:
            self._last = bool(head[0] & _FIN)
        short = head[1] & 0x7F
        end = {126: 4, 127: 10}.get(short, 2)
        self._left = int.from_bytes(head[2:end], "big") if short > 125 else short
        self._mask = head[end:]
        self._passed = 0
        if not self._left:
            self._end()

    def _count(self, size: int) -> None:
        self._passed += size
        self._left -= size
        if not self._left:
            self._end()

    def _end(self) -> None:
        if not self._in_control and self._last:
            self._channel = None

    def _unmasked(self, data: bytes) -> bytes:
        if not self._mask:
            return data
        turn = self._passed % 4
        mask = (self._mask[turn:] + self._mask[:turn]) * (len(data) // 4 + 1)
        return (int.from_bytes(data, "big") ^ int.from_bytes(mask[: len(data)], "big")).to_bytes(len(data), "big")


class WebSocketChannels:
    """See ``kube.remotecommand.channels.Channels``."""

    def __init__(self) -> None:
        self._sent = _Direction(RESIZE)
        self._received = _Direction(None)

    def sent(self, data: bytes) -> Iterator[Piece]:
        """See ``Channels``."""
        return self._sent.feed(data)

    def received(self, data: bytes) -> Iterator[Piece]:
        """See ``Channels``."""
        return self._received.feed(data)


def _head_size(head: bytes) -> int:
    """How many bytes the head of a frame has that begins like this; two while nobody can tell."""
    if len(head) < 2:
        return 2
    return 2 + {126: 2, 127: 8}.get(head[1] & 0x7F, 0) + (4 if head[1] & _MASKED else 0)
