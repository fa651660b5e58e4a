"""Frames of SPDY/3.1 as kubectl and a kubelet write them."""

from __future__ import annotations

import re
import zlib

from kube.remotecommand.spdy import DICTIONARY


class SpdyWriter:
    """One side of a connection: its headers are compressed with what it has sent before."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, **headers: str) -> bytes:
        """SYN_STREAM."""
        return control(1, stream.to_bytes(4, "big") + bytes(6) + self._block(headers))

    def reply(self, stream: int, **headers: str) -> bytes:
        """SYN_REPLY."""
        return control(2, stream.to_bytes(4, "big") + self._block(headers))

    def headers(self, stream: int, **headers: str) -> bytes:
        """HEADERS: more of them, later."""
        return control(8, stream.to_bytes(4, "big") + self._block(headers))

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
    return control(6, number.to_bytes(4, "big"))


def control(kind: int, content: bytes, *, size: int | None = None) -> bytes:
    """A control frame, which says that it is of this size."""
    said = len(content) if size is None else size
    return b"\x80\x03" + kind.to_bytes(2, "big") + b"\0" + said.to_bytes(3, "big") + content


def streams_as_a_kubelet_reads_them(wire: bytes) -> dict[int, bytes]:
    """What the streams of a client are for, to the library that every kubelet's runtime reads them with.

    It takes of each control frame what the kind has, whatever length the frame says, and inflates the headers of all.
    """
    streams: dict[int, bytes] = {}
    inflate, at = zlib.decompressobj(zdict=DICTIONARY), 0
    while at + 8 <= len(wire):
        head, kind = wire[at : at + 8], int.from_bytes(wire[at + 2 : at + 4], "big")
        size, at = int.from_bytes(head[5:8], "big"), at + 8
        if not head[0] & 0x80:
            at += size
        elif kind in (1, 2, 8):
            block_at = 10 if kind == 1 else 4
            try:
                block = inflate.decompress(wire[at + block_at : at + size])
            except zlib.error:
                break
            stream, at = int.from_bytes(wire[at : at + 4], "big") & 0x7FFFFFFF, at + size
            named = re.search(rb"\x0astreamtype(.{4})", block, re.DOTALL)
            if kind == 1 and stream > max(streams, default=0):
                length = int.from_bytes(named[1], "big") if named else 0
                streams[stream] = block[named.end() :][:length].split(b"\0")[0] if named else b""
        elif kind == 4:
            at += 4 + 8 * int.from_bytes(wire[at : at + 4], "big")
        elif kind in (3, 6, 7, 9) and (kind < 7 or size == 8):
            at += 4 if kind == 6 else 8
        else:
            break
    return streams
