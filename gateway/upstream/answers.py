"""What a cluster says, decoded and checked as far as it is relied on: a lie costs no more than an honest answer (GW4).

A cluster may be hostile. Bytes alone bound nothing: three of them can be a value that takes a hundred to hold, and a loop
that decodes millions of those answers nobody else. So values are counted before they are decoded, message by message and
for all that one request reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

import orjson

from gateway.http.lanes import BYTES
from gateway.upstream.client import Answer, BadGateway, ShareTaken
from kube.requests.decoding import count_values

MESSAGE_VALUES_MAX: Final = 400_000
"""What one page or event may hold: twice what 500 ordinary pods do."""

BYTES_MAX: Final = 128 * 1024 * 1024
VALUES_MAX: Final = 4_000_000
"""What clusters may answer to one request, all messages together."""

HELD_MAX: Final = 2 * BYTES_MAX
"""Bytes of such answers that a process holds at once, all requests together; decoded they take several times as much."""

LINE_MAX: Final = 16 * 1024 * 1024
"""Bytes of one object, or of an event that has not come to its end: API servers keep none of a tenth of it."""

SHORT: Final = 64 * 1024
"""Bytes of such an event that are not counted as held: about what a connection holds anyway."""

_EVENT: Final = BYTES // 64
"""What it costs to look at an event, beside its bytes: it may be as short as its end."""

PAGE: Final = 500
"""Objects that are asked for at once."""

_VERSION_MAX: Final = 64
_TOKEN_MAX: Final = 4096

EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


class HeldAnswers:
    """How many bytes of clusters' answers this process holds, by the tenant that has asked."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """All tenants' together."""
        return self._held.total()

    def take(self, tenant: str, size: int) -> None:
        """Raise ``ShareTaken`` for a tenant that holds as much as is left for the others."""
        # A dynamic threshold (Choudhury, Hahne 1998): alone a tenant gets half, and whoever comes next finds something left.
        if self._held[tenant] + size > HELD_MAX - self.total:
            text = (
                "the tenant reads too much of its clusters at once, please ask for less (limit) or one after the other"
            )
            raise ShareTaken(text, retry_after=1)
        self._held[tenant] += size

    def give(self, tenant: str, size: int) -> None:
        """So much is held no longer."""
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]


class Share:
    """What one reader holds of its tenant's part of all; nothing is counted where nobody ``held`` it."""

    def __init__(self, held: HeldAnswers | None = None, tenant: str = "") -> None:
        self._held, self._tenant, self._size = held, tenant, 0

    def resize(self, size: int) -> None:
        """Hold so much from now on. Raises ``ShareTaken`` where that is more, and too much."""
        if self._held is None:
            return
        if size > self._size:
            self._held.take(self._tenant, size - self._size)
        elif size < self._size:
            self._held.give(self._tenant, self._size - size)
        self._size = size

    def grow(self, size: int) -> None:
        """Hold so much more. Raises ``ShareTaken``."""
        self.resize(self._size + size)

    def __del__(self) -> None:
        # Whatever becomes of its owner: an answer that nobody began to read is held by nobody.
        self.resize(0)


class Room:
    """What is left of the bytes and values for one request's answers.

    Where a tenant asks, what it takes is ``held`` until the end of the context, or until it is closed.
    """

    def __init__(self, held: HeldAnswers | None = None, tenant: str = "", *, size: int = BYTES_MAX) -> None:
        self._size = self._bytes = size
        self._values = VALUES_MAX
        self._share = Share(held, tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """What was taken is held no longer."""
        self._share.resize(0)

    def take(self, size: int, cluster: str) -> None:
        """Count bytes as they come. Raises ``BadGateway``, and ``ShareTaken`` for the tenant's."""
        self._bytes -= size
        if self._bytes < 0:
            raise BadGateway(
                f'the cluster "{cluster}" answers with more than {self._size >> 20} MiB: ask for less at once (limit)'
            )
        self._share.grow(size)

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


class Lines(Protocol):
    """What brings lines: see ``Answer``."""

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """What has come, piece by piece."""
        ...

    async def work(self, size: int) -> None:
        """Wait until so many bytes may be taken apart."""
        ...


def says_not_found(data: bytes) -> bool:
    """Whether a body of a 404 is a Kubernetes API server's: anybody before one that is away answers 404 as well."""
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(said, dict) and (said.get("kind"), said.get("reason")) == ("Status", "NotFound")


async def whole(answer: Answer, cluster: str, room: Room) -> bytes:
    """An answer's body, when it may be taken apart; the answer is closed. Raises ``BadGateway`` for more than there is room for."""
    pieces, size = [], 0
    try:
        async for piece in answer.chunks:
            room.take(len(piece), cluster)
            pieces.append(piece)
            size += len(piece)
    finally:
        answer.close()
    await answer.work(size)
    return b"".join(pieces)


async def lines(answer: Lines, cluster: str, share: Share | None = None) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, without their ends and those that are empty, in whatever pieces they come.

    Each when it may be taken apart, whatever its reader makes of it. A long one counts in the ``share`` until the next is
    asked for. Raises ``BadGateway`` for one that does not end, and ``ShareTaken``.
    """
    share = share or Share()
    rest = bytearray()
    try:
        async for chunk in answer.chunks:
            # Taken apart as it is read: nothing that was read waits for what comes next.
            pieces = chunk.split(b"\n")[::-1]
            del chunk
            rest += pieces.pop()
            if len(rest) > LINE_MAX:
                raise BadGateway(f'the cluster "{cluster}" sends an event without end')
            if len(rest) > SHORT:
                share.resize(len(rest))
            while pieces:
                line, rest = bytes(rest), bytearray(pieces.pop())
                await answer.work(len(line) + _EVENT)
                if line:
                    yield line
                if len(line) > SHORT:
                    share.resize(0)
                del line
    finally:
        share.resize(0)


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
