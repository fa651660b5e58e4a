"""What the objects of each tenant take, as one process knows it, and whether a write still has room (AD8).

The database counts (``store_space``, from the change log). A process reads the sums once, with the revision of the same moment,
and then counts on with the events of the log, each of which brings the bytes of before and of after: so no request asks.

How exact that is: what this process has under way is counted before it is sent, ``UNDER_WAY_BYTES`` of it at once at most.
What another process has committed is known as soon as the log brings it, and with this process' next commit at the latest. So
a limit is never passed by one process alone, and together they pass it by no more than ``UNDER_WAY_BYTES`` for each further
one, however many write at once. Then nothing that grows is admitted before enough has gone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kube.requests.logicalclusters import ROOT, tenant_of
from store.log.preconditions import CHECK, DATA_BYTES, Rows
from store.postgresql.dedicatedconnection import ConnectionPool
from store.postgresql.results import text_of
from store.postgresql.statements import SIZES
from store.types import Event, EventType, Key, Room, Stored, Unavailable

UNDER_WAY_BYTES: Final = DATA_BYTES
"""Of one tenant's writes in one process, between admission and commit: room for the largest object."""

_REVISION_BYTES: Final = 20
"""What the revision in an object takes at most, which the database alone puts in."""

_KEEPING: Final = (str(EventType.ADDED), str(EventType.MODIFIED))
_TENANTS: Final = f"{ROOT}:"


class TenantSizes:
    """``pool`` is asked for the sums once, ``found`` tells of an object as this process has seen it."""

    def __init__(self, pool: ConnectionPool, found: Callable[[Key], Awaitable[Stored | None]]) -> None:
        self._pool = pool
        self._found = found
        self._taken: dict[str, int] | None = None
        self._counting: list[tuple[int, str, int]] | None = None
        """What the log has brought while the sums are asked for: revision, tenant, bytes."""
        self._loading = asyncio.Lock()
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow the log: the sums of the spaces that these events are of."""
        if self._taken is None and self._counting is None:
            return
        for event in events:
            if not event.key.space.startswith(_TENANTS):
                continue
            more = -len(event.previous or b"")
            if event.type is not EventType.DELETED:
                more += len(event.data)
            tenant = tenant_of(event.key.space)
            if self._counting is not None:
                self._counting.append((event.revision, tenant, more))
            elif self._taken is not None:
                self._count(self._taken, tenant, more)

    def forget(self) -> None:
        """The history is another one now."""
        self._taken = self._counting = None

    async def of(self, tenant: str) -> int:
        """The bytes that a tenant's objects take."""
        taken = self._taken
        if taken is None:
            taken = await self._known()
        return taken.get(tenant, 0)

    async def within(
        self, room: Room, rows: Rows, commit: Callable[[Rows], Awaitable[Sequence[Stored]]]
    ) -> Sequence[Stored]:
        """Commit a write that has room, or leaves no less than before. Raises what ``room.refused`` returns."""
        tenant, asked = room.tenant, 0
        for row in rows:
            if row.type in _KEEPING:
                asked += len(row.head) + len(row.tail) + _REVISION_BYTES
        taken = self._taken if self._taken is not None else await self._known()
        if not self._fits(tenant, asked, room.limit - taken.get(tenant, 0)):
            # What is kept together with the object is the product's own, and decides nothing.
            asked = max(await self._growth(rows), 0) if await self._growth(rows[:1]) > 0 else 0
            await self._wait_for(room, asked)
        self._under_way[tenant] += asked
        try:
            return await commit(rows)
        finally:
            self._under_way[tenant] -= asked
            if not self._under_way[tenant]:
                del self._under_way[tenant]
            if tenant in self._waiting:
                for waiter in self._waiting.pop(tenant):
                    if not waiter.done():
                        waiter.set_result(None)

    async def _wait_for(self, room: Room, asked: int) -> None:
        while asked > 0:
            used = await self.of(room.tenant)
            if used + asked > room.limit:
                raise room.refused(asked, used)
            if self._fits(room.tenant, asked, room.limit - used):
                return
            # What is under way may take the room, or fail and leave it: a refusal comes of what is kept alone.
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[room.tenant].append(waiter)
            await waiter

    def _fits(self, tenant: str, asked: int, free: int) -> bool:
        held = self._under_way.get(tenant, 0)
        return held + asked <= free and (not held or held + asked <= UNDER_WAY_BYTES)

    async def _growth(self, rows: Rows) -> int:
        """By how much a write lets the objects grow, to the byte but for digits of revisions; below zero where they shrink."""
        growth = 0
        for row in rows:
            if row.type == CHECK:
                continue
            if row.type in _KEEPING:
                growth += len(row.head) + len(row.tail) + len(str(row.expected))
            stored = await self._found(row.key) if row.expected else None
            growth -= len(stored.data) if stored is not None else 0
        return growth

    async def _known(self) -> dict[str, int]:
        async with self._loading:
            while self._taken is None:
                counting = self._counting = []
                try:
                    revision, taken = await self._asked()
                except BaseException:
                    self._counting = None
                    raise
                if self._counting is not counting:
                    continue  # Everything was forgotten meanwhile.
                for at, tenant, more in counting:
                    if at > revision:
                        self._count(taken, tenant, more)
                self._taken, self._counting = taken, None
            return self._taken

    async def _asked(self) -> tuple[int, dict[str, int]]:
        result = await self._pool.ask(SIZES)
        get, rows = result.get_value, range(result.ntuples)
        if not rows:
            raise Unavailable("the store has no counter row: migrate first")
        taken = {text_of(get(row, 1)): int.from_bytes(get(row, 2) or b"") for row in rows if get(row, 1) is not None}
        return int.from_bytes(get(0, 0) or b""), taken

    @staticmethod
    def _count(taken: dict[str, int], tenant: str, more: int) -> None:
        now = taken.get(tenant, 0) + more
        if now:
            taken[tenant] = now
        else:
            taken.pop(tenant, None)
