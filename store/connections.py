"""Connections of the engine: its own pool, apart from Django's, and what counts as the database being away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from psycopg import AsyncConnection, InterfaceError, OperationalError
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from store.arrays import register
from store.types import Unavailable

T = TypeVar("T")
Connection = AsyncConnection[tuple[Any, ...]]

# Sequential scans and hash joins would be right for an empty table and stay in prepared plans when it has grown;
# every statement of the store is a walk along an index. A host that dies must not keep the counter row locked.
SESSION = (
    "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan "
    "-c jit=off -c lock_timeout=5s -c statement_timeout=30s -c idle_in_transaction_session_timeout=10s"
)

AWAY = (OperationalError, InterfaceError, PoolTimeout, PoolClosed, TimeoutError, OSError)
"""The errors after which the same question may be asked again on another connection."""

PATIENCE_SECONDS = 3.0
"""How long a read tries to reach the database before ``Unavailable``."""


def connection_settings(application: str) -> dict[str, Any]:
    """The keyword arguments of every connection of the engine."""
    return {
        "autocommit": True,
        "prepare_threshold": 0,
        "options": SESSION,
        "application_name": application,
        "connect_timeout": 3,
        "tcp_user_timeout": 5000,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    }


async def prepare(connection: Connection) -> None:
    """Make a new connection ready for the statements of the store."""
    register(connection)


def open_pool(conninfo: str, size: int) -> AsyncConnectionPool[Connection]:
    """A pool, not yet opened, of up to ``size`` connections."""
    return AsyncConnectionPool(
        conninfo,
        kwargs=connection_settings("tenantry-store"),
        min_size=1,
        max_size=size,
        timeout=PATIENCE_SECONDS,
        configure=prepare,
        open=False,
        name="store",
        reconnect_timeout=1.0,
    )


async def persist(
    pool: AsyncConnectionPool[Connection],
    ask: Callable[[Connection], Awaitable[T]],
    patience: float = PATIENCE_SECONDS,
) -> T:
    """Ask a question that may be repeated, on new connections if need be; ``Unavailable`` after ``patience`` s."""
    deadline = monotonic() + patience
    delay = 0.01
    while True:
        try:
            async with pool.connection(timeout=max(deadline - monotonic(), 0.05)) as connection:
                return await ask(connection)
        except AWAY as error:
            if isinstance(error, PoolClosed) or monotonic() + delay >= deadline:
                raise Unavailable("the database cannot be reached") from error
        await asyncio.sleep(delay)
        delay = min(delay * 2, 0.25)
