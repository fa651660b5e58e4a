"""What goes through the stages: a request with everything known about it, and the two kinds of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from store.types import Key

JSON: Final = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]


def _cannot_write(_data: bytes) -> bool:
    return False


class Within(Protocol):
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


@dataclass(slots=True, kw_only=True)
class Request:
    """A request that has been authenticated and resolved.

    ``query`` holds the first value of each parameter; ``headers`` the first value of each header, lower-case.
    ``now`` is the moment it arrived, in Unix seconds. ``warnings`` become ``Warning`` headers. ``write`` sends the next
    bytes of a stream that has begun, at once, or is false: then they belong into its ``chunks``. ``within``
    narrows what it can reach to some objects of its range.
    """

    principal: Principal
    info: RequestInfo
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes
    now: float
    audit_id: str = ""
    decision: Decision | None = None
    warnings: list[str] = field(default_factory=list)
    write: Callable[[bytes], bool] = _cannot_write
    within: Within | None = None

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
    """An answer that goes on: a watch. Closing ``chunks`` frees everything it holds."""

    chunks: AsyncIterator[bytes]
    media: bytes = JSON
    headers: Headers = ()
