"""Who makes a database's first objects and who replaces all of them take turns: neither finds the other's half."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from django.db import Error, connection

logger = logging.getLogger(__name__)

_LOCK: Final = 7_232_911
"""Of ``pg_advisory_lock``: several hosts may bootstrap or restore at the same time."""


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else bootstraps or restores this database meanwhile; for as long as the connection stays open."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            logger.warning("another bootstrap or restore is at work on this database: waiting for its end")
            cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            yield
        finally:
            # It goes with a connection that is gone, and what ended that is what has to be told.
            with suppress(Error):
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
