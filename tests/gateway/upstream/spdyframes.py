"""Frames of SPDY/3.1 as kubectl and a kubelet write them."""

from __future__ import annotations

import zlib

from kube.remotecommand.spdy import DICTIONARY


class SpdyWriter:
    """One side of a connection: its headers are compressed with what it has sent before."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, **headers: str) -> bytes:
        """SYN_STREAM."""
        return _control(1, stream.to_bytes(4, "big") + bytes(6) + self._block(headers))

    def reply(self, stream: int) -> bytes:
        """SYN_REPLY, without headers."""
        return _control(2, stream.to_bytes(4, "big") + self._block({}))

    def headers(self, stream: int, **headers: str) -> bytes:
        """HEADERS: more of them, later."""
        return _control(8, stream.to_bytes(4, "big") + self._block(headers))

    def _block(self, headers: dict[str, str]) -> bytes:
        block = len(headers).to_bytes(4, "big")
        for pair in headers.items():
            for text in pair:
                block += len(text).to_bytes(4, "big") + text.encode()
        return self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, content: bytes, *, last: bool = False) -> bytes:
    """A DATA frame."""
    return stream.to_bytes(4, "big") + bytes([last]) + len(content).to_bytes(3, "big") + content


def ping(number: int) -> bytes:
    """PING."""
    return _control(6, number.to_bytes(4, "big"))


def _control(kind: int, content: bytes) -> bytes:
    return b"\x80\x03" + kind.to_bytes(2, "big") + b"\0" + len(content).to_bytes(3, "big") + content
