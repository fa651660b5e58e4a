"""A stream of lines over a WebSocket, each line one message, as kube-apiserver serves watches to those who ask (RFC 6455, GW4).

The same stream as any other: what it says, and what ends it, is decided where its lines come from.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import orjson

from gateway.http.messages import ClientLeft, Headers, Request, Stream
from kube.requests.status import BadRequest, StatusError

PROTOCOLS: Final = b"sec-websocket-protocol"

TEXT: Final = 1
BINARY: Final = 2
_CLOSE: Final = 8
_PING: Final = 9
_PONG: Final = 10
_OPCODES: Final = frozenset({0, TEXT, BINARY, _CLOSE, _PING, _PONG})

_NORMAL: Final = 1000
_PROTOCOL_ERROR: Final = 1002
_POLICY: Final = 1008

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_VERSION: Final = b"13"
_BEARER: Final = b"base64url.bearer.authorization.k8s.io."
"""What begins so in a list of subprotocols is a token, which is told to nobody again."""

_CONTROL: Final = 0x08
_RESERVED: Final = 0x70
_FIN: Final = 0x80
_MASKED: Final = 0x80
_CONTROL_MAX: Final = 125
_REASON_MAX: Final = _CONTROL_MAX - 2
_FRAMES_MAX: Final = 64
"""Frames of one piece that are looked at: each takes a turn of a loop, and a watch's client has nothing to say."""

_LEFT_OUT: Final = " … ".encode()
_ERROR: Final = b'{"type":"ERROR"'


def is_wanted(request: Request) -> bool:
    """Whether the client asks for a WebSocket."""
    return request.headers.get(b"upgrade", b"").lower() == b"websocket" and any(
        name == b"connection" and b"upgrade" in value.lower() for name, value in request.raw_headers
    )


def handshake(request: Request) -> Headers:
    """The headers of the 101. Raises ``BadRequest`` for what is no handshake (RFC 6455, 4.2.1)."""
    if request.headers.get(b"sec-websocket-version") != _VERSION:
        raise BadRequest("a WebSocket is opened with the header Sec-WebSocket-Version: 13")
    key = request.headers.get(b"sec-websocket-key", b"")
    try:
        size = len(base64.b64decode(key, validate=True))
    except binascii.Error:
        size = 0
    if size != _KEY_BYTES:
        raise BadRequest("a WebSocket is opened with the header Sec-WebSocket-Key: 16 bytes in base64")
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    chosen = subprotocol(request.raw_headers)
    return (
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-accept", accept),
        *(((PROTOCOLS, chosen),) if chosen else ()),
    )


def subprotocol(headers: Headers) -> bytes:
    """The first that is offered for a watch; empty where none is.

    Browsers end a connection whose server takes none of what they offer; what a watch says is the same by any name.
    """
    offered = (each.strip() for name, value in headers if name == PROTOCOLS for each in value.split(b","))
    return next((each for each in offered if each and not each.lower().startswith(_BEARER)), b"")


def messages(stream: Stream, agreed: Headers, write: Callable[[bytes], bool]) -> Stream:
    """The lines of ``stream`` as messages, after the 101 with what was ``agreed``; answers go by ``write``.

    The end of the stream is a close frame: with the reason where the last line is an event of type ERROR, or where
    ``chunks`` raises.
    """
    frames = ClientFrames()

    async def send(data: bytes) -> None:
        try:
            answers = frames.feed(data)
        except Farewell as farewell:
            write(farewell.answer)
            raise ClientLeft from None
        if answers:
            # Whoever does not read has no use for them.
            write(answers)

    return Stream(_messages(stream.chunks), headers=(*stream.headers, *agreed), status=101, send=send)


def framed(lines: bytes) -> bytes:
    """Whole lines, each as one message."""
    return b"".join([frame(TEXT, line + b"\n") for line in lines[:-1].split(b"\n")]) if lines else b""


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole message of a server."""
    size = len(payload)
    if size <= _CONTROL_MAX:
        length = bytes([size])
    else:
        length = b"\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x7f" + size.to_bytes(8, "big")
    return bytes([_FIN | opcode]) + length + payload


def closing(message: str) -> bytes:
    """The close frame of what is ended for a reason."""
    return _closing(_POLICY, _reason(message))


def head_size(head: bytes) -> int:
    """How many bytes the head of a frame has that begins like this; two while nobody can tell."""
    if len(head) < 2:
        return 2
    return 2 + {126: 2, 127: 8}.get(head[1] & 0x7F, 0) + (4 if head[1] & _MASKED else 0)


class Farewell(Exception):
    """The client says that it goes, or what no client may say; ``answer`` is the close frame for it."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class ClientFrames:
    """What a client sends that has nothing to say: only control frames are heeded, and nothing else is kept."""

    __slots__ = ("_head", "_left", "_mask", "_opcode", "_payload")

    def __init__(self) -> None:
        self._head = self._mask = self._payload = b""
        self._left = self._opcode = 0

    def feed(self, data: bytes) -> bytes:
        """The answers to be sent. Raises ``Farewell``."""
        answers, position, seen = [], 0, 0
        while position < len(data):
            if not self._left:
                lacking = head_size(self._head) - len(self._head)
                self._head += data[position : position + lacking]
                position += lacking
                if len(self._head) < head_size(self._head):
                    continue
                seen += 1
                if seen > _FRAMES_MAX:
                    raise Farewell(closing("a client has nothing to say here"))
                self._begin()
            size = min(self._left, len(data) - position)
            if self._opcode & _CONTROL:
                self._payload += data[position : position + size]
            position += size
            self._left -= size
            if not self._left and self._opcode & _CONTROL:
                answers.append(self._answer())
        return b"".join(answers)

    def _begin(self) -> None:
        head, self._head, self._payload = self._head, b"", b""
        short = head[1] & 0x7F
        self._opcode = head[0] & 0x0F
        control = bool(self._opcode & _CONTROL)
        if (
            not head[1] & _MASKED
            or head[0] & _RESERVED
            or self._opcode not in _OPCODES
            or (control and (short > _CONTROL_MAX or not head[0] & _FIN))
        ):
            raise Farewell(_closing(_PROTOCOL_ERROR))
        self._left = int.from_bytes(head[2:-4], "big") if short > _CONTROL_MAX else short
        self._mask = head[-4:]

    def _answer(self) -> bytes:
        size, self._payload, said = len(self._payload), b"", self._payload
        mask = (self._mask * (size // 4 + 1))[:size]
        said = (int.from_bytes(said) ^ int.from_bytes(mask)).to_bytes(size)
        if self._opcode == _CLOSE:
            # A code has two bytes.
            raise Farewell(frame(_CLOSE, said[:2]) if len(said) != 1 else _closing(_PROTOCOL_ERROR))
        return frame(_PONG, said) if self._opcode == _PING else b""


async def _messages(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    last = b""
    try:
        async with aclosing(chunks):  # type: ignore[type-var]
            async for lines in chunks:
                # An error may stand behind events that have come with it.
                line = lines[lines.rfind(b"\n", 0, -1) + 1 :]
                last = line if line.startswith(_ERROR) else b""
                yield framed(lines)
                # What is there at the beginning can be much, and is not kept for as long as the watch lasts.
                del lines, line
    except StatusError as error:
        yield closing(error.message)
        raise
    yield closing(orjson.loads(last)["object"].get("message") or "") if last else _closing(_NORMAL)


def _closing(code: int, reason: bytes = b"") -> bytes:
    return frame(_CLOSE, code.to_bytes(2, "big") + reason)


def _reason(message: str) -> bytes:
    """As much as a close frame has room for: a refusal says first what it refuses, and last why."""
    said = message.encode()
    if len(said) <= _REASON_MAX:
        return said
    half = (_REASON_MAX - len(_LEFT_OUT)) // 2
    return b"".join((_whole(said[:half]), _LEFT_OUT, _whole(said[-half:])))


def _whole(text: bytes) -> bytes:
    """Without the characters that a cut has left halves of."""
    return text.decode(errors="ignore").encode()
