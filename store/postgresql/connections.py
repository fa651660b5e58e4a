"""How the engine connects, apart from Django, and what counts as the database being away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from psycopg import InterfaceError, OperationalError

from store.types import Unavailable

T = TypeVar("T")

# Sequential scans and hash joins would be right for an empty table and stay in prepared plans when it has grown;
# every statement of the store is a walk along an index. No statement of the engine holds a lock while it waits for its
# client; the timeouts are a second line, for what an operator or a driver may do otherwise.
SESSION: Final = (
    "SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off; "
    "SET plan_cache_mode TO force_generic_plan; SET jit TO off; "
    "SET lock_timeout TO '5s'; SET statement_timeout TO '30s'; SET idle_in_transaction_session_timeout TO '2s';"
)
"""What every connection of the engine begins with. A statement, for a connection pooler lets no ``options`` pass."""

AWAY: Final = (OperationalError, InterfaceError, TimeoutError, OSError)
"""The errors after which the same question may be asked again on another connection."""

PATIENCE_SECONDS: Final = 10.0
"""How long a read tries to reach the database, or waits for its answer, before ``Unavailable``.

As long as a machine or a disk may stand still, or a database take to start again, without anybody being refused; short
beside the time that a request has at all.
"""

AGAIN_SECONDS: Final = 0.05
"""How long to rest between two questions to a database that is away."""


def connection_settings(application: str) -> dict[str, Any]:
    """The keyword arguments of every connection of the engine, whose first statement is ``SESSION``."""
    return {
        "autocommit": True,
        "prepare_threshold": 0,
        "application_name": application,
        "connect_timeout": 3,
        "tcp_user_timeout": 5000,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    }


async def ask_patiently(question: Callable[[], Awaitable[T]]) -> T:
    """What ``question`` brings, asked again for as long as the database is away or silent.

    ``question`` bounds its own time, and raises one of ``AWAY``. Raises ``Unavailable`` after ``PATIENCE_SECONDS``.
    """
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    return await question()
                except AWAY:
                    await asyncio.sleep(AGAIN_SECONDS)
    except TimeoutError as error:
        raise Unavailable("the database cannot be reached") from error
