"""The words of the store: keys, stored objects, events and writes.

Isolation is in the types: there is no key and no range without a space (TS3, TS9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple


class Key(NamedTuple):
    """The identity of one object. ``space`` is a logical cluster path (``root``, ``root:acme``)."""

    space: str
    group: str
    resource: str
    namespace: str
    name: str


class Range(NamedTuple):
    """The objects of one resource in one space; ``namespace`` narrows it, ``None`` means all of them."""

    space: str
    group: str
    resource: str
    namespace: str | None = None


class AllSpaces(NamedTuple):
    """The objects of one resource in every space: the system tenant's reading alone (TS14)."""

    group: str
    resource: str


class Spaces(NamedTuple):
    """The objects of one resource in these spaces, which are in order: of no other anything is read (KC6)."""

    group: str
    resource: str
    spaces: tuple[str, ...]


Place = tuple[str, str, str, str | None] | tuple[str, str]
"""A ``Range`` or an ``AllSpaces`` as it is looked up: to make one of those costs more than to find what is there."""


class Stored(NamedTuple):
    """An object as it is kept: ``data`` is its final JSON, ``metadata.resourceVersion`` included."""

    key: Key
    revision: int
    data: bytes


class EventType(StrEnum):
    """The types of watch events that the store produces."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(NamedTuple):
    """One entry of the change log. For DELETED ``data`` is the last state with the deletion's revision.

    ``previous`` is the data before the change (``None`` for ADDED), so that selectors can turn a MODIFIED
    into the ADDED or DELETED that a filtered watcher must see.
    """

    type: EventType
    key: Key
    revision: int
    data: bytes
    previous: bytes | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Write ``body`` under a key that must be free."""

    key: Key
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the object whose revision must still be ``expected``."""

    key: Key
    expected: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the object whose revision must still be ``expected``; ``body`` is its last state for watchers."""

    key: Key
    expected: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """Hold the whole write back unless this object's revision is still ``expected`` (0: it does not exist)."""

    key: Key
    expected: int


Operation = Create | Update | Delete | Check


class Room(NamedTuple):
    """What a tenant's objects may take, in ``limit`` bytes: a write that lets them grow past it is not made.

    Then ``refused`` is called with the bytes asked for and those that are taken, and what it returns is raised.
    ``store.sizes`` says how exact that is.
    """

    tenant: str
    limit: int
    refused: Callable[[int, int], Exception]


class FullListing(tuple[Stored, ...]):  # noqa: SLOT001 - the joined bytes are kept beside
    """All objects of a range, as they are listed until one of them changes."""

    @cached_property
    def joined(self) -> bytes:
        """Their JSON, one after the other with commas between."""
        return b",".join([stored.data for stored in self])


class Listing(NamedTuple):
    """Objects of a range at one revision, ordered by (namespace, name); with a space first for Everywhere."""

    items: Sequence[Stored]
    revision: int
    remaining: int = 0
    """How many more objects follow when ``limit`` cut the list short."""


class StoreError(Exception):
    """Anything the store refuses."""


class PreconditionFailed(StoreError):
    """An operation's precondition does not hold; nothing of the write was kept.

    ``current`` is the object as it is now (``None``: it does not exist).
    """

    def __init__(self, key: Key, current: Stored | None) -> None:
        super().__init__(f"precondition failed for {key.resource} {key.namespace}/{key.name}")
        self.key = key
        self.current = current


class RevisionTooOld(StoreError):
    """The change log no longer reaches back to the asked revision: 410 to the client."""


class RevisionTooNew(StoreError):
    """The asked revision lies in the future and did not come in time: 504 to the client."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} is not there yet, the newest is {current}")
        self.asked, self.current = asked, current


class SlowWatcher(StoreError):
    """The watcher did not read fast enough and its bounded buffer is full: 410 to the client."""


class Unavailable(StoreError):
    """The database cannot be reached; nothing was written (but see ``OutcomeUnknown``). 503 to the client."""


class OutcomeUnknown(Unavailable):
    """The database did not answer a write in time, or not at all: written or not, nobody knows. 504 to the client."""


class HistoryReplaced(Unavailable):
    """The history is another one than what was asked of: whoever waited for its revisions asks again. 503."""
