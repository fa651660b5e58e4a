"""What goes through the stages: a request with everything known about it, and the two kinds of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.cel import regexes
from kube.requests.decoding import HEAVY, MAX_VALUES, TooHeavy, TooManyValues, ValueCount, weight
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from store.types import Key

T = TypeVar("T")

JSON: Final = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]


def _cannot_write(_data: bytes) -> bool:
    return False


class ClientLeft(Exception):
    """The client of a stream has said that it goes: what is written is sent, and nothing more."""


def _cannot_cut() -> None:
    """There is no connection."""


def _nobody_waits() -> None:
    """Nothing is sent."""


class ScopeFilter(Protocol):
    """Some of the objects of a range; for anybody who looks through it, there are no others."""

    def places(self, key: Key) -> bool:
        """Whether the object can be one of them, by its key alone."""
        ...

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Whether it is one of them."""
        ...

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        ...

    @property
    def spaces(self) -> Sequence[str] | None:
        """Of what is asked across spaces, those in which they are, in order; ``None`` for any."""
        ...


LARGE: Final = 64 * 1024
"""Bytes of stored objects that are taken apart for one answer, or kept by one write, without being charged."""

LONG: Final = 256 * 1024
"""Bytes of one stored object that are taken apart at a time on the event loop."""

LONG_YAML: Final = 8 * 1024
"""Bytes of what is written as YAML on the event loop."""

COST_VALUES: Final = 100
"""Values whose work costs about as much as a small request."""

COST_CHARACTERS: Final = 4 * 1024
"""Characters of selectors whose reading costs about as much as a small request."""

WATCH_COST_BYTES: Final = 128 * 1024
COST_BYTES: Final = 16 * 1024
"""Bytes of stored objects whose taking apart, or writing, costs about as much as a small request."""


class Charge(Protocol):
    """What a request costs, charged. Raises ``TooManyRequests``, but for what is charged ``further``."""

    def __call__(self, cost: int, /, *, further: bool = False) -> None:
        """Charge it."""
        ...


class InTurn(Protocol):
    """Does work beside the event loop, when it is the tenant's turn."""

    def __call__(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """What ``work()`` returns or raises."""
        ...


def _free(cost: int, *, further: bool = False) -> None:
    """Nobody counts."""


@dataclass(slots=True, kw_only=True)
class Request:
    """A request that has been authenticated and resolved.

    ``query`` holds the first value of each parameter, ``parameters`` all of them; ``headers`` the first value of each
    header, lower-case, ``raw_headers`` all of them as they came.
    ``now`` is the moment it arrived, in Unix seconds. ``warnings`` become ``Warning`` headers, ``notes`` are what the
    audit is told of the admission. ``write`` sends the next bytes of a stream that has begun, at once, or is false: then
    they belong into its ``chunks``. ``cut`` ends an answer that has begun, wherever it is. ``scope_filter`` narrows what
    it can reach to some objects of its range. ``weight`` is about how many values it brings or changes; where ``light``
    is set, a heavy request is left to another process. ``in_turn`` is for long work that lets the loop go on. ``deletion``
    are the options of a deletion, once they are known.
    """

    principal: Principal
    info: RequestInfo
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes
    now: float
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    raw_headers: Headers = ()
    audit_id: str = ""
    decision: Decision | None = None
    warnings: list[str] = field(default_factory=list)
    notes: list[Decision] = field(default_factory=list)
    write: Callable[[bytes], bool] = _cannot_write
    cut: Callable[[], None] = _cannot_cut
    scope_filter: ScopeFilter | None = None
    weight: int = 0
    light: bool = False
    in_turn: InTurn | None = None
    charge: Charge = _free
    charged: bool = False
    charged_bytes: int = 0
    deletion: Mapping[str, Any] = field(default_factory=dict)

    def weigh(self, data: bytes) -> None:
        """Count a body, or a stored object that is to be changed. Raises ``TooHeavy``."""
        self.weight = max(self.weight, weight(data))
        long = len(data) > LONG_YAML and b"yaml" in self.headers.get(b"accept", b"")
        if (long or self.weight > HEAVY) and self.light:
            raise TooHeavy

    def counted(self, decode: Callable[[ValueCount], T]) -> T:
        """What ``decode`` makes of a body whose bytes do not tell how many values it holds. Raises ``TooHeavy``."""
        count = ValueCount(HEAVY if self.light else MAX_VALUES)
        try:
            return decode(count)
        except TooManyValues:
            self.require_light(heavy=True)
            raise
        finally:
            self.weight = max(self.weight, count.values)

    def evaluate_lightly(self) -> None:
        """Have ``TooHeavy`` raised for expressions that are not plain, and for long searches, where they need not hold the loop."""
        if self.light and not self.is_reading:
            regexes.light.set(regexes.Light())

    def require_light(self, *, heavy: bool) -> None:
        """Raise ``TooHeavy`` for a request that would hold the loop, where it need not. Only before anything is kept."""
        if heavy and self.light:
            raise TooHeavy

    def portable(self) -> Request:
        """The request as another process takes it: without what belongs to this one."""
        return replace(
            self,
            decision=None,
            warnings=[],
            notes=[],
            write=_cannot_write,
            cut=_cannot_cut,
            scope_filter=None,
            light=False,
            in_turn=None,
            charge=_free,
            charged=False,
            charged_bytes=0,
        )

    async def in_thread(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """What the pure function makes of ``size`` bytes that are not the store's; of many in a thread, in turn."""
        if size <= LARGE or self.in_turn is None:
            return function(*args)
        return await self.in_turn(partial(asyncio.to_thread, function, *args))

    def charge_bytes(self, size: int) -> None:
        """Have ``size`` bytes of stored objects charged that are to be taken apart. Raises ``TooManyRequests``.

        Only what comes first can be refused, and only before anything is kept.
        """
        if size <= LARGE or not self.is_reading:
            return
        # A watch looks once, and its tenant may open few.
        cost = size // (WATCH_COST_BYTES if self.info.verb == "watch" else COST_BYTES)
        try:
            self.charge(cost)
        except TooManyRequests:
            if not self.charged:
                raise
        self.charged = True

    def charge_selectors(self, size: int) -> None:
        """Have selectors of ``size`` characters charged that are to be read. Raises ``TooManyRequests``; nothing is kept yet."""
        if cost := size // COST_CHARACTERS:
            self.charge(cost)

    def charge_kept(self, size: int, *, values: int = 0) -> None:
        """Have ``size`` bytes charged that are to be kept, and ``values`` that are worked at. Raises ``TooManyRequests``.

        Only before anything is kept. Each byte is written several times; of what is sent and what is there, which come one
        after the other, the larger counts, and only what comes first can be refused.
        """
        further = max(size - self.charged_bytes, 0) if size > LARGE and not self.dry_run else 0
        cost = further // COST_BYTES + values // COST_VALUES
        if cost:
            self.charge(cost, further=self.charged)
            self.charged = True
            self.charged_bytes += further

    @property
    def is_reading(self) -> bool:
        """Whether nothing is kept by it, so that it can be refused however late."""
        return self.info.verb in ("get", "list", "watch")

    @property
    def user_agent(self) -> str:
        """The client's name for itself, cut to a sane length."""
        return self.headers.get(b"user-agent", b"").decode("latin-1")[:256]

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be kept (``dryRun=All``)."""
        return bool(self.query.get("dryRun"))


@dataclass(slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    media: bytes = JSON
    headers: Headers = ()


@dataclass(slots=True)
class Stream:
    """An answer that goes on: a watch, or what a cluster sends. Closing ``chunks`` frees everything it holds.

    A ``StatusError`` out of ``chunks`` ends the connection without the answer's end, so that nobody takes what has come
    for the whole. With status 101 ``send`` is there, and takes what the client sends from then on; once the client has
    ``gone`` it takes what is left without waiting for anybody. ``send`` raises ``ClientLeft``. What is not
    ``long_running`` has to be taken in the time of any answer.
    """

    chunks: AsyncIterator[bytes]
    media: bytes = JSON
    headers: Headers = ()
    status: int = 200
    send: Callable[[bytes], Awaitable[None]] | None = None
    gone: Callable[[], None] = _nobody_waits
    long_running: bool = True
