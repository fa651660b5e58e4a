"""What a cluster says, decoded and checked as far as it is relied on: a lie costs no more than an honest answer (GW4).

A cluster may be hostile. Bytes alone bound nothing: three of them can be a value that takes a hundred to hold, and a loop
that decodes millions of those answers nobody else. So values are counted before they are decoded, message by message and
for all that one request reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson

from gateway.upstream.client import Answer, BadGateway
from kube.requests.decoding import count_values

MESSAGE_VALUES_MAX: Final = 400_000
"""What one page or event may hold: twice what 500 ordinary pods do."""

BYTES_MAX: Final = 128 * 1024 * 1024
VALUES_MAX: Final = 4_000_000
"""What clusters may answer to one request, all messages together."""

LINE_MAX: Final = 16 * 1024 * 1024
"""Bytes of an event that has not come to its end."""

PAGE: Final = 500
"""Objects that are asked for at once."""

_VERSION_MAX: Final = 64
_TOKEN_MAX: Final = 4096

EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


class Room:
    """What is left of the bytes and values for one request's answers."""

    def __init__(self) -> None:
        self._bytes, self._values = BYTES_MAX, VALUES_MAX

    def take(self, size: int, cluster: str) -> None:
        """Count bytes as they come. Raises ``BadGateway``."""
        self._bytes -= size
        if self._bytes < 0:
            raise BadGateway(
                f'the cluster "{cluster}" answers with more than {BYTES_MAX >> 20} MiB: ask for less at once (limit)'
            )

    def decode(self, data: bytes, cluster: str) -> dict[str, Any]:
        """As ``decode``, and counted."""
        self._values -= require_light(data, cluster)
        if self._values < 0:
            raise BadGateway(
                f'the cluster "{cluster}" answers with more than {VALUES_MAX} values: ask for less at once (limit)'
            )
        return _decoded(data, cluster)


def require_light(data: bytes, cluster: str) -> int:
    """About how many values a message holds. Raises ``BadGateway`` for more than a message may."""
    values = count_values(data, MESSAGE_VALUES_MAX)
    if values > MESSAGE_VALUES_MAX:
        raise BadGateway(f'the cluster "{cluster}" answers with more than {MESSAGE_VALUES_MAX} values at once')
    return values


def decode(data: bytes, cluster: str) -> dict[str, Any]:
    """A JSON object. Raises ``BadGateway`` for anything else, and for one of too many values."""
    require_light(data, cluster)
    return _decoded(data, cluster)


def _decoded(data: bytes, cluster: str) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise BadGateway(f'the cluster "{cluster}" answers with something else than an object')
    return body


async def whole(answer: Answer, cluster: str, room: Room) -> bytes:
    """An answer's body; the answer is closed. Raises ``BadGateway`` for more than there is room for."""
    pieces = []
    try:
        async for piece in answer.chunks:
            room.take(len(piece), cluster)
            pieces.append(piece)
    finally:
        answer.close()
    return b"".join(pieces)


async def lines(chunks: AsyncIterator[bytes], cluster: str) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends and those that are empty, in whatever pieces they come.

    Raises ``BadGateway`` for one that does not end.
    """
    rest = bytearray()
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > LINE_MAX:
            raise BadGateway(f'the cluster "{cluster}" sends an event without end')
        for following in others:
            if rest:
                yield bytes(rest)
            rest = bytearray(following)


def version_of(metadata: Mapping[str, Any], cluster: str) -> str:
    """The resource version, which is kept and sent back. Raises ``BadGateway`` for what no server gives."""
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not version.isascii() or not 0 < len(version) <= _VERSION_MAX:
        raise BadGateway(f'the cluster "{cluster}" gives a resourceVersion that is none')
    return version


def token_of(metadata: Mapping[str, Any], cluster: str) -> str:
    """Where a list goes on, empty at its end. Raises ``BadGateway``."""
    token = metadata.get("continue") or ""
    if not isinstance(token, str) or not token.isascii() or len(token) > _TOKEN_MAX:
        raise BadGateway(f'the cluster "{cluster}" gives a continue token that is none')
    return token
