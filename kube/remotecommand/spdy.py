"""Channels over SPDY/3.1: a stream for each, named by its header ``streamtype`` (draft-mbelshe-httpbis-spdy-00, section 2)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from kube.remotecommand.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, Piece, Unreadable

_SYN_STREAM: Final = 1
_SYN_REPLY: Final = 2
_RST_STREAM: Final = 3
_PING: Final = 6
_GOAWAY: Final = 7
_HEADERS: Final = 8
_WINDOW_UPDATE: Final = 9
_VERSION: Final = 3
_HEAD: Final = 8
_BLOCK_AT: Final = {_SYN_STREAM: 10, _SYN_REPLY: 4, _HEADERS: 4}
"""Where the block of headers begins in those control frames that have one: it is compressed with all that came before."""

_SIZES: Final = {_RST_STREAM: 8, _PING: 4, _GOAWAY: 8, _WINDOW_UPDATE: 8}
"""Of the other control frames: a kubelet reads so much of one, whatever length it says, and what follows as the next."""

_CONTROL_MAX: Final = 16 * 1024
_HEADERS_MAX: Final = 16 * 1024
"""Bytes of a frame with headers, and of the headers in it: those of Kubernetes have some hundred."""

_STEP: Final = 32
"""Bytes of headers whose reading counts as a step: some bytes of a frame can bring as many as may be."""

_STREAMS_MAX: Final = 64
_STREAM_TYPE: Final = b"streamtype"
_CHANNELS: Final = {b"stdin": STDIN, b"stdout": STDOUT, b"stderr": STDERR, b"error": ERROR, b"resize": RESIZE}

_WORDS: Final = (
    b"options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,accept-ranges,ag"
    b"e,allow,authorization,cache-control,connection,content-base,content-encoding,content-language,content-len"
    b"gth,content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,i"
    b"f-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,pr"
    b"oxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrad"
    b"e,user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public,set-c"
    b"ookie,keep-alive,origin"
)
_REST: Final = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authori"
    b"tative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not "
    b"Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug S"
    b"ept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag"
    b"e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    b"sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join([len(word).to_bytes(4, "big") + word for word in _WORDS.split(b",")]) + _REST
"""What headers are compressed with beforehand: words with their lengths, and the rest as it is (section 2.6.10.1)."""


class _Frames:
    """The frames of one direction: heads as they are complete, and what follows them in pieces."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """The head of a frame, a piece of what follows it, and how much of that is still to come."""
        position = 0
        while position < len(data):
            if not self._left:
                lacking = _HEAD - len(self._head) % _HEAD
                self._head = self._head[: len(self._head) % _HEAD] + data[position : position + lacking]
                position += lacking
                if len(self._head) == _HEAD:
                    self._left = int.from_bytes(self._head[5:8], "big")
                    yield self._head, b"", self._left
                continue
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            yield self._head, piece, self._left


class SpdyChannels:
    """See ``kube.remotecommand.channels.Channels``.

    The client opens the streams and says what each is for; what the cluster sends on one that is not the error's is
    output, whatever it is called.
    """

    def __init__(self) -> None:
        self._channels: dict[int, int] = {}
        self._from_client = _Frames()
        self._from_cluster = _Frames()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._control = b""

    def sent(self, data: bytes) -> Iterator[Piece]:
        """See ``Channels``."""
        for head, piece, left in self._from_client.feed(data):
            if not head[0] & 0x80:
                resizes = self._channels.get(_stream_of(head)) == RESIZE
                yield RESIZE, piece if resizes else b""
                continue
            kind = _kind_of(head)
            _require_size(kind, int.from_bytes(head[5:8], "big"))
            if kind in _BLOCK_AT:
                self._control += piece
                if left + len(self._control) > _CONTROL_MAX:
                    raise Unreadable("a SPDY frame's headers do not end")
                if not left:
                    frame, self._control = self._control, b""
                    for _ in range(self._learn(kind, frame) // _STEP):
                        yield RESIZE, b""
            yield RESIZE, b""

    def received(self, data: bytes) -> Iterator[Piece]:
        """See ``Channels``."""
        for head, piece, _ in self._from_cluster.feed(data):
            if head[0] & 0x80:
                _kind_of(head)
                yield STDOUT, b""
            else:
                yield self._channels.get(_stream_of(head), STDOUT), piece

    def _learn(self, kind: int, frame: bytes) -> int:
        """Read the headers; those of every frame, for each is compressed with what came before it. How long they are."""
        try:
            block = self._inflate.decompress(frame[_BLOCK_AT[kind] :], _HEADERS_MAX)
        except zlib.error:
            raise Unreadable("a SPDY frame's headers cannot be read") from None
        if self._inflate.unconsumed_tail:
            raise Unreadable("a SPDY frame's headers do not end")
        headers = _headers_in(block)
        if kind == _SYN_STREAM:
            stream = _stream_of(frame)
            if stream in self._channels or len(self._channels) >= _STREAMS_MAX:
                raise Unreadable("a SPDY stream is opened twice, or there are too many")
            # As Go reads it: the first of several values.
            named = headers.get(_STREAM_TYPE, b"").partition(b"\0")[0]
            self._channels[stream] = _CHANNELS.get(named, STDOUT)
        return len(block)


def _kind_of(head: bytes) -> int:
    if int.from_bytes(head[:2], "big") & 0x7FFF != _VERSION:
        raise Unreadable("a frame is not of SPDY/3")
    return int.from_bytes(head[2:4], "big")


def _require_size(kind: int, size: int) -> None:
    """Raise ``Unreadable`` for a control frame of a client that a kubelet would take to end elsewhere, or not take."""
    if not (size >= _BLOCK_AT[kind] if kind in _BLOCK_AT else size == _SIZES.get(kind)):
        raise Unreadable("a SPDY frame is not as long as its kind is, or of none that Kubernetes has")


def _stream_of(data: bytes) -> int:
    return int.from_bytes(data[:4], "big") & 0x7FFFFFFF


def _headers_in(block: bytes) -> dict[bytes, bytes]:
    """Names and values. Raises ``Unreadable`` for what another reader could read otherwise."""
    parts, position = [], 4
    count = int.from_bytes(block[:4], "big")
    while position < len(block):
        start = position + 4
        end = start + int.from_bytes(block[position:start], "big")
        if end > len(block):
            raise Unreadable("a SPDY frame's headers are cut")
        parts.append(block[start:end])
        position = end
    names = parts[::2]
    if len(parts) != 2 * count or len(set(names)) != count or any(name != name.lower() for name in names):
        raise Unreadable("a SPDY frame's headers can be read in two ways")
    return dict(zip(names, parts[1::2], strict=True))
