"""Retention of the change log: partitions ahead of the counter are made, old ones are dropped whole.

Whoever compacts holds the counter row, so no write is under way while the log's partitions change, and the
low-water mark moves in the same transaction: a reader that finds its revision above the mark has read everything.
All of it is one call of the database (``store_log_compact`` of the migrations): nothing waits for its caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections

PARTITION_REVISIONS = 50_000
"""Revisions in one partition. The log keeps at least the current one, so this bounds what an idle system holds."""

PARTITIONS_AHEAD = 3
"""Partitions that wait for coming revisions; a writer that runs out of them makes its own (``store.log.committer``)."""

EXTENT = (PARTITION_REVISIONS, PARTITIONS_AHEAD)
"""The parameters of ``statements.EXTEND``."""


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


def log_compact(*, now: datetime, retention: Retention | None = None, using: str = "default") -> Compaction:
    """Make partitions ahead and drop those that ``retention`` no longer needs.

    A partition goes as a whole, when all of it is too old; afterwards watches and exact reads from before
    ``compacted`` are answered ``RevisionTooOld``. Safe to run at any time and from several places at once.
    """
    retention = retention or Retention()
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT mark, dropped FROM store_log_compact(%s, %s, %s, %s)",
            [*EXTENT, now - retention.age, retention.revisions],
        )
        return Compaction(*cursor.fetchone())
