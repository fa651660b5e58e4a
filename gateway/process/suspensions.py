"""The suspensions of the database in memory: loaded at start, told of changes, and polled behind that (GW5).

A row of the table ``locks`` suspends a logical cluster, or one namespace of it; one of ``freezes`` holds it still (GW28).
With them comes from when on credentials of a tenant count: a door is never known to be open before it is known which of
the old keys are spent (P5). Why no request passes a suspension:

1. The row is committed together with the decision to suspend, and ``NOTIFY`` with it.
2. A notification only wakes the reader; the whole table is read each time, so a lost or doubled one changes nothing.
3. A poll stands behind the notifications, every ``POLL_SECONDS``.
4. What is known is as old as the question, not as the answer: after ``STALE_SECONDS`` without a reading the suspensions
   are unknown, and tenants' requests are refused (``Runtime.require_trustworthy``).
5. The memory is replaced before the open watches are asked again, so none of them is judged by the old state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from access.authorization.tenancy.suspension import freeze_reason, suspended_tenants, suspension_reason
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.supervision import Supervised

logger = logging.getLogger(__name__)

CHANNEL: Final = "tenantry_locks"
POLL_SECONDS: Final = 0.5
_QUESTION: Final = """
SELECT 'lock', space, namespace, reason FROM locks
UNION ALL
SELECT 'freeze', space, namespace, reason FROM freezes
UNION ALL
SELECT 'spent', name, '', extract(epoch FROM credentials_not_before)::text FROM tenants
 WHERE credentials_not_before IS NOT NULL
"""
STALE_SECONDS: Final = 2.0
"""Without a successful poll for this long the locks are unknown, and tenants' requests are refused."""


class SuspensionCache:
    """The suspensions as this process knows them.

    ``on_change`` is called with each logical cluster whose locks changed, so that open streams are looked at again.
    """

    def __init__(self, database_url: str, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._locks: dict[tuple[str, str], str] = {}
        self._not_before: dict[str, float] = {}
        self.tenants: frozenset[str] = frozenset()
        """The tenants behind locked doors."""
        self._freezes: dict[tuple[str, str], str] = {}
        self.frozen_tenants: frozenset[str] = frozenset()
        """The tenants of which something is frozen."""
        self.changes = 0
        """How often the locks have changed."""
        self._listeners: list[Callable[[], None]] = []
        self._read_at = float("-inf")
        self._told = asyncio.Event()
        self._connection = DedicatedConnection(
            database_url, "tenantry-locks", channel=CHANNEL, heard=lambda _: self._told.set(), lost=self._told.set
        )
        self._task = Supervised("locks", self._follow)

    @property
    def healthy(self) -> bool:
        """Whether the locks are known."""
        return time.monotonic() - self._read_at < STALE_SECONDS

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why this namespace of this logical cluster is closed, or ``None``."""
        return suspension_reason(self._locks, cluster, namespace)

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        """Why nothing is written in this namespace of this logical cluster, or ``None``."""
        return freeze_reason(self._freezes, cluster, namespace, inside=inside)

    def holds(self, cluster: str, namespace: str) -> bool:
        """Whether what people have set off there waits: behind a lock, where it is frozen, and while neither is known.

        What is the operators' own never does.
        """
        if tenant_of(cluster) == SYSTEM_TENANT:
            return False
        closed = self.reason(cluster, namespace) is not None or self.freeze(cluster, namespace) is not None
        return closed or not self.healthy

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told when any door has changed, or is known again; what this returns ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def not_before(self, tenant: str) -> float:
        """From when on credentials of the tenant count, in Unix seconds; 0 for all that there are."""
        return self._not_before.get(tenant, 0.0)

    def namespaces(self, cluster: str) -> frozenset[str]:
        """The namespaces of this logical cluster that are closed by themselves."""
        if tenant_of(cluster) not in self.tenants:
            return frozenset()
        return frozenset(namespace for space, namespace in self._locks if space == cluster and namespace)

    async def start(self) -> None:
        """Load the locks once, then follow them. Raises ``psycopg.Error`` when the first load fails."""
        await self._read()
        self._task.start()

    async def stop(self) -> None:
        """End the follower and its connection; what is known stays as it was."""
        await self._task.stop()
        self._connection.close()

    async def _follow(self) -> None:
        while True:
            # Cleared before the reading: what is told while it runs brings another one.
            self._told.clear()
            try:
                await self._read()
            except AWAY as error:
                logger.warning("the locks cannot be read: %s", type(error).__name__)
                self._connection.close()
                await asyncio.sleep(POLL_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._told.wait()

    async def _read(self) -> None:
        # Of the moment before the question: the answer may be of any moment after it.
        asked_at = time.monotonic()
        async with asyncio.timeout(STALE_SECONDS):
            result = await self._connection.ask(_QUESTION)
        rows = [
            [(result.get_value(row, column) or b"").decode() for column in range(4)] for row in range(result.ntuples)
        ]
        self._not_before = {tenant: float(moment) for kind, tenant, _, moment in rows if kind == "spent"}
        locks = {(space, namespace): reason for kind, space, namespace, reason in rows if kind == "lock"}
        freezes = {(space, namespace): reason for kind, space, namespace, reason in rows if kind == "freeze"}
        changed = {space for (space, _), _ in locks.items() ^ self._locks.items()}
        changed |= {space for (space, _), _ in freezes.items() ^ self._freezes.items()}
        self._locks, self._freezes = locks, freezes
        self.tenants, self.frozen_tenants = suspended_tenants(locks), suspended_tenants(freezes)
        self.changes += bool(changed)
        unknown, self._read_at = not self.healthy, asked_at
        for cluster in changed:
            self._on_change(cluster)
        for listener in self._listeners if changed or unknown else ():
            listener()
