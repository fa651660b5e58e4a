"""Who does what only one process of a database may do: whoever holds an advisory lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from psycopg import AsyncConnection

from store.connections import connection_settings

RETRY_SECONDS: Final = 1.0


@asynccontextmanager
async def leading(conninfo: str, lock: int, name: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Wait until this process leads, and lead until the block ends.

    Call what it gives now and then: it raises one of ``store.connections.AWAY`` when the session is gone, and the lock
    with it.
    """
    connection = await AsyncConnection.connect(conninfo, **connection_settings(name))
    async with connection:
        while True:
            cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", (lock,))
            if await cursor.fetchone() == (True,):
                break
            await asyncio.sleep(RETRY_SECONDS)

        async def still() -> None:
            await connection.execute("SELECT 1")

        yield still
