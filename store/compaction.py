"""Retention of the change log: partitions ahead of the counter are made, old ones are dropped whole.

Whoever compacts holds the counter row, so no write is under way while the log's partitions change, and the
low-water mark moves in the same transaction: a reader that finds its revision above the mark has read everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections, transaction

PARTITION_REVISIONS = 50_000
"""Revisions in one partition. The log keeps at least the current one, so this bounds what an idle system holds."""

PARTITIONS_AHEAD = 3
"""Partitions that wait for coming revisions; a writer that runs out of them makes its own (``store.committer``)."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the log is kept: everything younger than ``age``, but not more than ``revisions``."""

    age: timedelta = timedelta(minutes=15)
    revisions: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a run did: the new low-water mark and how many partitions were dropped."""

    compacted: int
    dropped: int


def extend_statements(revision: int) -> Sequence[str]:
    """The statements that make the partition after ``revision`` and the next ones, where they are missing."""
    first = (revision + 1) // PARTITION_REVISIONS
    return [
        f"CREATE TABLE IF NOT EXISTS store_event_{number} PARTITION OF store_event "
        f"FOR VALUES FROM ({number * PARTITION_REVISIONS}) TO ({(number + 1) * PARTITION_REVISIONS})"
        for number in range(first, first + 1 + PARTITIONS_AHEAD)
    ]


def log_compact(*, now: datetime, retention: Retention | None = None, using: str = "default") -> Compaction:
    """Make partitions ahead and drop those that ``retention`` no longer needs.

    A partition goes as a whole, when all of it is too old; afterwards watches and exact reads from before
    ``compacted`` are answered ``RevisionTooOld``. Safe to run at any time and from several places at once.
    """
    retention = retention or Retention()
    connection = connections[using]
    with transaction.atomic(using=using), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute("SELECT revision, compacted FROM store_revision FOR UPDATE")
        revision, compacted = cursor.fetchone()
        for statement in extend_statements(revision):
            cursor.execute(statement)
        cursor.execute(
            "SELECT substr(c.relname, length('store_event_') + 1)::bigint FROM pg_inherits "
            "JOIN pg_class AS c ON c.oid = inhrelid WHERE inhparent = 'store_event'::regclass ORDER BY 1"
        )
        dropped = 0
        for (number,) in cursor.fetchall():
            end = (number + 1) * PARTITION_REVISIONS - 1
            if end > revision:
                break
            if revision - end < retention.revisions:
                cursor.execute(
                    "SELECT max(written_at) FROM store_event WHERE revision BETWEEN %s AND %s",
                    [number * PARTITION_REVISIONS, end],
                )
                (newest,) = cursor.fetchone()
                if newest is not None and newest > now - retention.age:
                    break
            cursor.execute(f"DROP TABLE store_event_{number}")
            compacted, dropped = max(compacted, end), dropped + 1
        if dropped:
            cursor.execute("UPDATE store_revision SET compacted = %s", [compacted])
    return Compaction(compacted, dropped)
