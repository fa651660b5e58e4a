"""What the floors above may ask of the store, as one protocol; ``store.engine`` keeps the promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Protocol

from store.types import AllSpaces, Event, Key, Listing, Operation, Range, Room, Stored


class Watch(Protocol):
    """One open watch. Iterate it for batches; close it when the client goes.

    A batch is ``(events, revision)``: the events of the watched range with ``since < revision`` in order, and
    the revision up to which the watcher now knows everything (for bookmarks). Empty batches only move the revision.
    Raises ``SlowWatcher`` when the bounded buffer overflows, ``RevisionTooOld`` after compaction.
    ``sink`` may take single events while the reader waits; what it declines comes in a batch.
    """

    sink: Callable[[Event], bool] | None

    def __aiter__(self) -> AsyncIterator[tuple[Sequence[Event], int]]: ...

    def interrupt(self) -> None:
        """Let the reader have a batch now, empty if need be."""
        ...

    async def aclose(self) -> None:
        """End the watch and free what it holds."""
        ...


class Reader(Protocol):
    """What decisions need of the store: objects as they are."""

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """The newest state (linearizable), or, with ``cached``, whatever this process has seen."""
        ...

    async def list(
        self,
        selection: Range | AllSpaces,
        *,
        at_least: int | None = None,
        exact: int | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 0,
        cached: bool = False,
    ) -> Listing:
        """Objects in order of (space, namespace, name).

        Newest unless ``cached``; with ``at_least`` waits (3 s at most) until that revision has been seen, else
        raises ``RevisionTooNew``; with ``exact`` answers as of that revision or raises ``RevisionTooOld``.
        ``after`` is the last (space, namespace, name) of the previous chunk.
        """
        ...

    def peek(self, key: Key) -> Stored | None:
        """What ``get`` with ``cached`` returns, where it need not wait; ``None`` also where it would have to."""
        ...


class Store(Reader, Protocol):
    """Objects, revisions, watches. Every method raises ``Unavailable`` when the database is away."""

    async def commit(self, *operations: Operation, room: Room | None = None) -> Sequence[Stored]:
        """Write all operations or none, durably; results in the order of the operations (``Check`` omitted).

        Every operation gets a revision of its own, put into ``metadata.resourceVersion`` of the kept bytes. When it
        returns, this process' reads and listeners have seen the write, and its watches are about to.
        Raises ``PreconditionFailed`` naming the first operation that does not hold, and what ``room.refused`` returns
        where there is none; a write that lets nothing grow always has.
        """
        ...

    async def bytes_of(self, tenant: str) -> int:
        """What a tenant's objects take, as this process knows it: the database is not asked."""
        ...

    def watch(self, selection: Range | AllSpaces, *, since: int) -> Watch:
        """Every event with a revision above ``since``: none lost, doubled or out of order."""
        ...

    def subscribe(
        self,
        listener: Callable[[Sequence[Event]], None],
        *,
        lost: Callable[[], None] | None = None,
        resources: Collection[tuple[str, str]] | None = None,
    ) -> Callable[[], None]:
        """Call ``listener`` synchronously with each batch of events of all spaces, in order; returns the undo.

        Whoever names the ``resources`` (group, plural) that it looks at is called with the batches that hold any of
        them: most batches concern few.
        ``lost`` is called when the log does not continue where this process stopped (the database was restored, or
        this process slept through a compaction): whatever was derived from events is void and must be built anew.
        """
        ...

    async def resources(self, space: str, namespace: str | None = None) -> Sequence[tuple[str, str]]:
        """The (group, resource) pairs of which a space, or one namespace of it, holds at least one object."""
        ...

    @property
    def revision(self) -> int:
        """The revision up to which this process has seen every event."""
        ...

    @property
    def silence(self) -> float:
        """For how many seconds nobody has proved that this process knows all that there was."""
        ...

    @property
    def histories_replaced(self) -> int:
        """How often everything was forgotten here: after a restore, a fail-over, or when the log no longer reached back."""
        ...

    @property
    def healthy(self) -> bool:
        """Whether this process follows the log: false when it has neither been notified nor polled for 2 s."""
        ...
