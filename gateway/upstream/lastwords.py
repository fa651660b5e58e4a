"""What a client is told last when a stream of a cluster is ended from here, in the form that it reads (GW5).

Each form looks at what passes, for words in the middle of something would be read as a part of it: then none are said.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson

from gateway.http.messages import Headers
from gateway.http.websockets import BINARY, TEXT, closing, frame, head_size
from kube.requests.status import StatusError

_FRAMES_MAX: Final = 512
"""Frames of one piece that are followed: each takes a turn of a loop, whatever its size."""
_ERROR_CHANNEL: Final = b"\x03"
_WITH_ERROR_CHANNEL: Final = frozenset({b"v4.channel.k8s.io", b"v5.channel.k8s.io"})


class LastWords(Protocol):
    """What the client of one stream is told at its end, in the form in which it has been spoken to so far."""

    def see(self, data: bytes) -> int:
        """This has been sent; how many steps it took to look at it."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether what has been sent is whole, as far as that shows: then the stream may simply end."""
        ...

    def say(self, error: StatusError) -> bytes:
        """The last words, empty where none can be said."""
        ...


class NoWords:
    """SPDY, and forms of watches that are no lines: the connection is closed."""

    __slots__ = ()

    def see(self, data: bytes) -> int:  # noqa: ARG002
        """See ``LastWords``."""
        return 0

    @property
    def is_whole(self) -> bool:
        """See ``LastWords``."""
        return False

    def say(self, error: StatusError) -> bytes:  # noqa: ARG002
        """See ``LastWords``."""
        return b""


class _Lines:
    __slots__ = ("is_whole",)

    def __init__(self) -> None:
        self.is_whole = True

    def see(self, data: bytes) -> int:
        """See ``LastWords``."""
        self.is_whole = data.endswith(b"\n")
        return 1


class WatchWords(_Lines):
    """A watch in JSON: an event of type ERROR."""

    __slots__ = ()

    def say(self, error: StatusError) -> bytes:
        """See ``LastWords``."""
        return _event(error) if self.is_whole else b""


class LogWords(_Lines):
    """A log: a line of its own."""

    __slots__ = ()

    def say(self, error: StatusError) -> bytes:
        """See ``LastWords``."""
        return (b"" if self.is_whole else b"\n") + b"error: " + error.message.encode() + b"\n"


class WebSocketWords:
    """A WebSocket: a close frame with the reason.

    Before it a ``Status`` on the error channel where the subprotocol has one, or an event of type ERROR ``of_events``.
    """

    __slots__ = ("_fragmented", "_frames", "_head", "_left", "_lost", "_of_events", "_subprotocol")

    def __init__(self, subprotocol: bytes, *, of_events: bool = False) -> None:
        self._subprotocol = subprotocol
        self._of_events = of_events
        self._head = b""
        self._left = 0
        self._fragmented = False
        self._frames = 0
        self._lost = False

    def see(self, data: bytes) -> int:
        """Follow the frames (RFC 6455, 5.2), until too many come at once: honest ones hold more than their heads."""
        position = self._frames = 0
        while position < len(data) and not self._lost:
            if self._left:
                passed = min(self._left, len(data) - position)
                self._left -= passed
                position += passed
                continue
            lacking = head_size(self._head) - len(self._head)
            self._head += data[position : position + lacking]
            position += lacking
            if len(self._head) == head_size(self._head):
                self._begin_payload()
        return self._frames

    @property
    def is_whole(self) -> bool:
        """See ``LastWords``."""
        return not (self._head or self._left or self._fragmented or self._lost)

    def say(self, error: StatusError) -> bytes:
        """See ``LastWords``."""
        if not self.is_whole:
            return b""
        words = b""
        if self._subprotocol in _WITH_ERROR_CHANNEL:
            words = frame(BINARY, _ERROR_CHANNEL + orjson.dumps(error.as_status()))
        elif self._of_events:
            words = frame(TEXT, _event(error))
        return words + closing(error.message)

    def _begin_payload(self) -> None:
        head, self._head = self._head, b""
        self._frames += 1
        self._lost = self._frames > _FRAMES_MAX
        short = head[1] & 0x7F
        self._left = int.from_bytes(head[2 : 4 if short == 126 else 10], "big") if short > 125 else short
        if not head[0] & 0x08:
            self._fragmented = not head[0] & 0x80


def of_tunnel(headers: Headers, *, of_events: bool = False) -> LastWords:
    """The last words of what a 101 with these headers has led to; ``of_events``, of a watch in JSON."""
    found = dict(headers)
    if found.get(b"upgrade") != b"websocket":
        return NoWords()
    return WebSocketWords(found.get(b"sec-websocket-protocol", b""), of_events=of_events)


def of_watch(media: bytes) -> LastWords:
    """Those of a watch of this media type."""
    return WatchWords() if media.startswith(b"application/json") else NoWords()


def _event(error: StatusError) -> bytes:
    event: dict[str, Any] = {"type": "ERROR", "object": error.as_status()}
    return orjson.dumps(event) + b"\n"
