"""Puts a backup in place of what the database holds: closed first, then in one transaction (P12).

1. The file is read whole and compared with its sealed manifest, and the release with this one, before anything is done.
2. The doors are closed in a transaction of their own, and every running process is given the time to know.
3. One transaction takes all tables for itself, empties and fills them, ends what was issued, suspends the tenants and
   closes the doors of the new content too. A process that is killed before its commit leaves the old content behind closed
   doors; the command is run again, or ``--open`` opens what was there.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from psycopg import errors, sql

from audit.actions import Action
from gateway.process.suspensions import STALE_SECONDS
from portal.backup import archive, closing
from portal.backup.archive import Archive, Manifest, Table, Unusable
from portal.backup.newer import (
    RESTORE,
    Newer,
    accounts_keep,
    is_continued,
    newer_than,
    orphans,
    workspaces_keep_closed,
)
from portal.backup.snapshot import LEFT_OUT, MIGRATIONS, TRANSIENT, tables_here
from portal.database.rights import as_owner
from store.log.replacement import history_replace
from tenants.models import Tenant, User
from tenants.suspensions import installation_close

CLOSED_SECONDS: Final = STALE_SECONDS + 1
"""After so long every API server knows that the doors are closed, or knows that it does not know."""

BUSY_SECONDS: Final = 120.0
"""How long a restore tries to have the tables alone while others are at work."""

_TURNS: Final = (0.05, 0.1, 0.2, 0.4, 0.05, 0.1, 0.2, 2.0)
"""How long it waits for a table, by turns. Below PostgreSQL's ``deadlock_timeout`` of a second nobody else is ended; one
turn is above it, for then PostgreSQL ends an autovacuum that is in the way."""

_LOOK_SECONDS: Final = 0.05
_HELD: Final = (errors.DeadlockDetected, errors.LockNotAvailable)

# By what owns them. PostgreSQL puts the conditions of a query into any order, so that a function which fails for what is
# no table of the product, as pg_get_serial_sequence, may meet what another condition was to leave out.
_SEQUENCES: Final = """
SELECT format('SELECT setval(%L, (SELECT coalesce(max(%I), 0) + 1 FROM %s), false)',
              s.oid::regclass, a.attname, a.attrelid::regclass)
FROM pg_class AS s
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid
  AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE s.relkind = 'S' AND s.relnamespace = 'public'::regnamespace
"""


@dataclass(slots=True)
class Restored:
    """What a restore did: what operators have to know before they open, and the named operator's way in."""

    manifest: Manifest
    revision: int = 0
    continues: bool = False
    differences: list[str] = field(default_factory=list)
    signs_in: str = ""


def restore(
    file: Path, *, replace: bool, keep_accounts: bool, operator: str, now: datetime, progress: Callable[[str], None]
) -> Restored:
    """Restore a backup into an empty database or over the one that it is of, or with ``replace`` over any.

    ``operator`` is the address of the one who may sign in when passwords of the backup cannot be trusted;
    ``keep_accounts`` says that they can. Raises ``archive.Unusable``: then nothing was changed.
    """
    with archive.opened(file) as opened:
        _require_this_release(opened.manifest)
        opened.verify(progress)
        with as_owner():
            inhabited = _prepare_database(opened.manifest, replace=replace)
            _require_tables(opened.manifest)
            if inhabited:
                with transaction.atomic():
                    installation_close(closing.REASON)
                progress("waiting until every process knows that the doors are closed")
                time.sleep(CLOSED_SECONDS)
            return _undisturbed(lambda: _replace(opened, keep_accounts, operator, now, progress))


def _require_this_release(manifest: Manifest) -> None:
    known = {".".join(key) for key in MigrationLoader(None).disk_migrations}
    foreign = sorted(known ^ set(manifest.migrations))
    if foreign:
        raise Unusable(
            f"The backup is of another release (it differs by {', '.join(foreign[:3])}"
            f"{' and others' if len(foreign) > 3 else ''}). Restore it with the release that made it, then upgrade."
        )


def _prepare_database(manifest: Manifest, *, replace: bool) -> bool:
    """Whether anybody lives there; the tables are made where there are none. Raises ``Unusable`` for another installation."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
    inhabited = User.objects.exists() or Tenant.objects.exists()
    if inhabited and not replace and not is_continued(manifest):
        raise Unusable(
            "The database is not empty, and the backup is not of it. Name another one (DATABASE_URL), or say --replace: "
            "all that is in it goes."
        )
    return inhabited


def _require_tables(manifest: Manifest) -> None:
    here, there = tables_here(), {table.name: list(table.columns) for table in manifest.tables}
    differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differing:
        raise Unusable(f"The database has not the tables of the backup ({', '.join(differing)}): migrate it first.")


def _undisturbed(work: Callable[[], Restored]) -> Restored:
    """Do it in one transaction, begun anew while others hold what it waits for; the last error after ``BUSY_SECONDS``."""
    given_up = time.monotonic() + BUSY_SECONDS
    for seconds in itertools.cycle(_TURNS):
        try:
            with transaction.atomic():
                _lock_tables(seconds)
                return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, _HELD) or time.monotonic() > given_up:
                raise
        time.sleep(_LOOK_SECONDS)
    raise AssertionError("unreachable")


def _lock_tables(seconds: float) -> None:
    """Have all tables alone, or none: whoever is at work holds one and may ask for another that is taken already.

    So nobody waits for long, and what is under way can end. Writers of the store begin with its counter, and so does this.
    """
    tables = [*sorted(LEFT_OUT - {MIGRATIONS}, reverse=True), *tables_here()]
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds * 1000:.0f}ms"])
        names = sql.SQL(", ").join(map(sql.Identifier, tables))
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(names))
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT")


def _replace(
    opened: Archive, keep_accounts: bool, operator: str, now: datetime, progress: Callable[[str], None]
) -> Restored:
    manifest, done = opened.manifest, Restored(opened.manifest)
    with connection.cursor() as cursor:
        tables = [sql.Identifier(table.name) for table in manifest.tables]
        everything = sql.SQL(", ").join([*tables, *map(sql.Identifier, sorted(TRANSIENT))])
        newer = newer_than(manifest)
        for name in tables:
            cursor.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))
        cursor.execute(sql.SQL("TRUNCATE {}").format(everything))
        for day in manifest.days:
            cursor.execute("SELECT api_requests_partition(%s)", [day])
        for table in manifest.tables:
            _fill(cursor, table, opened, progress)
        # References are checked here, and triggers cannot be put back over what waits to be checked.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for name in tables:
            cursor.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(name))
        _count_on(cursor)
    progress("ending what was issued")
    done.revision = history_replace(reached=manifest.revision)
    installation_close(closing.REASON)
    _close(done, newer, keep_accounts, operator, now)
    detail = {
        "made_at": manifest.made_at.isoformat(),
        "revision": done.revision,
        "cut": dict(newer.cut),
        "differences": len(done.differences),
    }
    RESTORE.record(Action.RESTORED, chain="system", target="installation", detail=detail)
    return done


def _close(done: Restored, newer: Newer, keep_accounts: bool, operator: str, now: datetime) -> None:
    done.continues = newer.continues
    for chain, rows in newer.cut.items():
        done.differences.append(f"audit {chain}: {rows} rows after the backup are cut off")
    if newer.continues:
        done.differences += accounts_keep(newer)
    elif not keep_accounts:
        done.signs_in = closing.accounts_forget(operator)
    done.differences += closing.credentials_end_all(now=now)
    done.differences += closing.webhooks_end(newer)
    done.differences += closing.tenants_close(newer)
    done.differences += workspaces_keep_closed(newer)
    done.differences += orphans(newer)
    closing.system_accounts_renew()


def _fill(cursor: Any, table: Table, opened: Archive, progress: Callable[[str], None]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    size = 0
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), names)) as copy:
        for block in opened.blocks(table):
            size += len(block)
            progress(f"{table.name}: {size >> 20} of {table.bytes >> 20} MiB")
            copy.write(block)


def _count_on(cursor: Any) -> None:
    """Let every sequence go on behind the rows that are there."""
    cursor.execute(_SEQUENCES)
    for (statement,) in cursor.fetchall():
        cursor.execute(statement)
