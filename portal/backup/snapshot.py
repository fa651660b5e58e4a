"""Takes a backup: every table as it was at one moment, while the product goes on writing (P12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.db import DatabaseError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import record
from audit.selectors import chain_heads
from portal.backup import archive
from portal.backup.archive import Manifest, Table, Writer

TRANSIENT: Final = frozenset({"django_session", "pod_connections", "portal_sessions", "store_lease", "stream_counts"})
"""Who is there at this moment: nobody, after a restore."""

MIGRATIONS: Final = "django_migrations"

LEFT_OUT: Final = TRANSIENT | {MIGRATIONS, "store_event", "store_revision", "store_space"}
"""What no backup holds: of the rest the manifest says enough, the change log begins anew, and sizes are counted anew."""

_TABLES: Final = """
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  AND (c.relname, a.attname) <> ('logins', 'session_id') -- which goes with the sessions
GROUP BY c.relname ORDER BY c.relname
"""
_DAYS: Final = """
SELECT DISTINCT date_trunc('day', created_at, 'UTC') FROM api_requests ORDER BY 1
"""


def backup(file: Path, *, now: datetime, progress: Callable[[str], None]) -> tuple[Manifest, int]:
    """Write the whole database into ``file``, consistent at one moment, with what it says and its size in bytes.

    Nobody waits for it. How it ended is in the audit, where ``portal.backup.freshness`` finds it. Raises ``archive.Unusable``.
    """
    made: list[Manifest] = []

    def fill(writer: Writer) -> Manifest:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            made.append(_copied(writer, cursor, now, progress))
        return made[0]

    try:
        size = archive.write(file, fill)
    except Exception as error:
        # A database that cannot be told is missed by its age.
        with suppress(DatabaseError):
            connection.close_if_unusable_or_obsolete()
            _record(Outcome.FAILURE, file, error=str(error).strip() or type(error).__name__)
        raise
    manifest = made[0]
    _record(Outcome.SUCCESS, file, bytes=size, revision=manifest.revision, made_at=manifest.made_at.isoformat())
    return manifest, size


def _record(outcome: Outcome, file: Path, **detail: Any) -> None:
    record(
        Action.BACKUP_MADE,
        actor="system:command",
        outcome=outcome,
        target="installation",
        detail={"file": str(file), **detail},
    )


def tables_here() -> Mapping[str, list[str]]:
    """The columns of every table that a backup of this database holds, but computed ones."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        return {name: columns for name, columns in cursor.fetchall() if name not in LEFT_OUT}


def _copied(writer: Writer, cursor: Any, now: datetime, progress: Callable[[str], None]) -> Manifest:
    applied = MigrationRecorder(connection).applied_migrations()
    cursor.execute("SELECT revision FROM store_revision")
    (revision,) = cursor.fetchone()
    cursor.execute(_DAYS)
    days = [day.isoformat() for (day,) in cursor.fetchall()]
    heads = dict(chain_heads())
    tables = [_table(writer, cursor, name, columns, progress) for name, columns in tables_here().items()]
    return Manifest(now, sorted(".".join(key) for key in applied), revision, heads, days, tables)


def _table(writer: Writer, cursor: Any, name: str, columns: list[str], progress: Callable[[str], None]) -> Table:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    # A partitioned table is copied by a query.
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(names, sql.Identifier(name))

    def blocks() -> Iterator[bytes | memoryview]:
        size = 0
        with connection.wrap_database_errors, cursor.copy(statement) as copy:
            for block in copy:
                size += len(block)
                progress(f"{name}: {size >> 20} MiB")
                yield block

    return writer.table(name, columns, blocks())
