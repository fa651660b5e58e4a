"""Who does what only one process of a database may do: whoever holds an advisory lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from psycopg import OperationalError

from store.postgresql.dedicatedconnection import DedicatedConnection

RETRY_SECONDS: Final = 1.0

_LOCK: Final = "SELECT pg_try_advisory_lock(%s)"

ANSWER_SECONDS: Final = 5.0
"""A session that does not answer for this long is given up, and the lock with it."""


@asynccontextmanager
async def leader_election(conninfo: str, lock: int, name: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Wait until this process leads, and lead until the block ends.

    Call what it gives now and then: it raises one of ``store.postgresql.connections.AWAY`` when the session is gone, and the lock
    with it.
    """
    gone = False

    def lost() -> None:
        nonlocal gone
        gone = True

    connection = DedicatedConnection(conninfo, name, lost=lost)

    async def ask(statement: str, *parameters: int) -> bytes | None:
        if gone:
            raise OperationalError("the session is gone")
        async with asyncio.timeout(ANSWER_SECONDS):
            result = await connection.ask(statement, parameters)
        return result.get_value(0, 0)

    async def check_leadership() -> None:
        await ask("SELECT 1")

    try:
        leads = await ask(_LOCK, lock)
        while leads != b"t":
            await asyncio.sleep(RETRY_SECONDS)
            leads = await ask(_LOCK, lock)
        yield check_leadership
    finally:
        connection.close()
