"""Who does what only one process of a database may do: whoever holds an advisory lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from psycopg import OperationalError

from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.types import StoreError

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0

TRY_LOCK: Final = "SELECT pg_try_advisory_lock(%s)"
"""Whether the session leads from now on: as long as it lasts, however its holder ends."""

ANSWER_SECONDS: Final = 5.0
"""A session that does not answer for this long is given up, and the lock with it."""


CheckLeadership = Callable[[], Awaitable[None]]
"""Raises one of ``AWAY`` when the session is gone, and the lock with it."""


async def lead(conninfo: str, lock: int, name: str, work: Callable[[CheckLeadership], Awaitable[object]]) -> None:
    """Do ``work`` whenever this process leads, until cancelled.

    ``work`` calls now and then what it is given. It may end at any time, and begins anew once the database is back, or the
    history that it went by is another one: it must not rely on what it has done before. ``name`` is that of its session.
    """
    while True:
        try:
            async with leader_election(conninfo, lock, name) as check_leadership:
                await work(check_leadership)
        except (*AWAY, StoreError) as error:
            logger.warning("%s starts over: %s", name, type(error).__name__)
        await asyncio.sleep(RETRY_SECONDS)


@asynccontextmanager
async def leader_election(conninfo: str, lock: int, name: str) -> AsyncIterator[CheckLeadership]:
    """Wait until this process leads, and lead until the block ends, calling now and then what is given."""
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
        leads = await ask(TRY_LOCK, lock)
        while leads != b"t":
            await asyncio.sleep(RETRY_SECONDS)
            leads = await ask(TRY_LOCK, lock)
        yield check_leadership
    finally:
        connection.close()
