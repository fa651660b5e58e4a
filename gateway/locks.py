"""All locks of the database in memory: loaded at start, told of changes, and polled behind that (GW5)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

import psycopg

from access.authorization.lock import closed_by, tenants_behind

logger = logging.getLogger(__name__)

CHANNEL: Final = "tenantry_locks"
POLL_SECONDS: Final = 0.5
STALE_SECONDS: Final = 2.0
"""Without a successful poll for this long the locks are unknown, and tenants' requests are refused."""


class LockTable:
    """The locks as this process knows them.

    ``on_change`` is called with each logical cluster whose locks changed, so that open streams are looked at again.
    """

    def __init__(self, database_url: str, on_change: Callable[[str], None]) -> None:
        self._database_url = database_url
        self._on_change = on_change
        self._locks: dict[tuple[str, str], str] = {}
        self.tenants: frozenset[str] = frozenset()
        """The tenants behind locked doors."""
        self.changes = 0
        """How often the locks have changed."""
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Whether the locks are known."""
        return time.monotonic() - self._read_at < STALE_SECONDS

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why this namespace of this logical cluster is closed, or ``None``."""
        return closed_by(self._locks, cluster, namespace)

    async def start(self) -> None:
        """Load the locks once, then follow them. Raises ``psycopg.Error`` when the first load fails."""
        async with await psycopg.AsyncConnection.connect(self._database_url, autocommit=True) as connection:
            await self._read(connection)
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._database_url, autocommit=True) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    while True:
                        async with asyncio.timeout(STALE_SECONDS):
                            await self._read(connection)
                        async for _ in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
                            pass
            except (psycopg.Error, OSError, TimeoutError) as error:
                logger.warning("the locks cannot be read: %s", type(error).__name__)
                await asyncio.sleep(POLL_SECONDS)

    async def _read(self, connection: psycopg.AsyncConnection) -> None:
        asked_at = time.monotonic()
        cursor = await connection.execute("SELECT space, namespace, reason FROM locks")
        locks = {(space, namespace): reason for space, namespace, reason in await cursor.fetchall()}
        changed = {space for (space, _), _ in locks.items() ^ self._locks.items()}
        self._locks = locks
        self.tenants = tenants_behind(locks)
        self.changes += bool(changed)
        self._read_at = asked_at
        for cluster in changed:
            self._on_change(cluster)
