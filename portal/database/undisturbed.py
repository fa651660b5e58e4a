"""Transactions that need tables alone while the product runs: nobody who is at work is ended for them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from psycopg import errors

_T = TypeVar("_T")

BUSY_SECONDS: Final = 120.0
"""How long it is tried to have the tables alone while others are at work."""

_TURNS: Final = (0.05, 0.1, 0.2, 0.4, 0.05, 0.1, 0.2, 2.0)
"""How long it waits for a table, by turns. Below PostgreSQL's ``deadlock_timeout`` of a second nobody else is ended; one
turn is above it, for then PostgreSQL ends an autovacuum that is in the way."""

_LOOK_SECONDS: Final = 0.05
_HELD: Final = (errors.DeadlockDetected, errors.LockNotAvailable)


def undisturbed(work: Callable[[], _T], *, alias: str = DEFAULT_DB_ALIAS) -> _T:
    """Do it in one transaction, begun anew while others hold what it waits for; the last error after ``BUSY_SECONDS``.

    ``work`` begins with ``lock_timeout`` as it is for the turn, and whoever has all locks may say otherwise.
    """
    given_up = time.monotonic() + BUSY_SECONDS
    for seconds in itertools.cycle(_TURNS):
        try:
            with transaction.atomic(using=alias):
                with connections[alias].cursor() as cursor:
                    cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds * 1000:.0f}ms"])
                return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, _HELD) or time.monotonic() > given_up:
                raise
        time.sleep(_LOOK_SECONDS)
    raise AssertionError("unreachable")
