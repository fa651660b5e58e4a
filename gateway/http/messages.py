"""What goes through the stages: a request with everything known about it, and the two kinds of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from access.admission.base import Executor
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.decoding import HEAVY
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from store.types import Key

T = TypeVar("T")

JSON: Final = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]


def _cannot_write(_data: bytes) -> bool:
    return False


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


LARGE: Final = 64 * 1024
"""Bytes of stored objects that are taken apart on the loop, together, for one answer."""

WATCH_COST_BYTES: Final = 128 * 1024
COST_BYTES: Final = 16 * 1024
"""Bytes of stored objects whose taking apart costs about as much as a small request."""


def _free(cost: int) -> None:
    """Nobody counts."""


@dataclass(slots=True, kw_only=True)
class Request:
    """A request that has been authenticated and resolved.

    ``query`` holds the first value of each parameter, ``parameters`` all of them; ``headers`` the first value of each
    header, lower-case, ``raw_headers`` all of them as they came.
    ``now`` is the moment it arrived, in Unix seconds. ``warnings`` become ``Warning`` headers, ``notes`` are what the
    audit is told of the admission. ``write`` sends the next bytes of a stream that has begun, at once, or is false: then
    they belong into its ``chunks``. ``scope_filter`` narrows what it can reach to some objects of its range. ``weight``
    is about how many values it brings or changes.
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
    scope_filter: ScopeFilter | None = None
    weight: int = 0
    executor: Executor | None = None
    charge: Callable[[int], None] = _free
    charged: bool = False

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """What the pure ``function(*args)`` returns or raises, off the event loop where the request weighs much."""
        if self.weight <= HEAVY or self.executor is None:
            return function(*args)
        return await self.executor(function, *args)

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

    async def offload_large(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """What the pure function makes of ``size`` bytes of stored objects; of many off the loop. ``charge_bytes`` first."""
        if size <= LARGE or self.executor is None:
            return function(*args)
        return await self.executor(function, *args)

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
    """An answer that goes on: a watch, or what a cluster sends. Closing ``chunks`` frees everything it holds."""

    chunks: AsyncIterator[bytes]
    media: bytes = JSON
    headers: Headers = ()
    status: int = 200
