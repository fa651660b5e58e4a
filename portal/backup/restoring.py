"""Puts a backup in place of what the database holds: closed first, then in one transaction (P12).

1. The file is read whole and compared with its sealed manifest, the release with this one, and the database with both,
   before anything is done (``portal.backup.judging``).
2. The doors are closed in a transaction of their own, and every running process is given the time to know.
3. One transaction takes all tables for itself, empties and fills them, ends what was issued, suspends the tenants and
   closes the doors of the new content too. A process that is killed before its commit leaves the old content behind closed
   doors; the command is run again, or ``--open`` opens what was there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

from audit.actions import Action
from gateway.process.suspensions import STALE_SECONDS
from portal.backup import archive, closing, judging
from portal.backup.archive import Archive, Manifest, Table
from portal.backup.newer import (
    RESTORE,
    Newer,
    accounts_keep,
    freezes_keep,
    newer_than,
    offboardings_keep,
    orphans,
    workspaces_keep_closed,
)
from portal.backup.snapshot import LEFT_OUT, MIGRATIONS, TRANSIENT, tables_here
from portal.database.alone import alone
from portal.database.rights import as_owner
from portal.database.undisturbed import undisturbed
from store.log.replacement import history_replace
from tenants.suspensions import installation_close

CLOSED_SECONDS: Final = STALE_SECONDS + 1
"""After so long every API server knows that the doors are closed, or knows that it does not know."""

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
        judging.require_this_release(opened.manifest)
        opened.verify(progress)
        with as_owner(), alone():
            ground = judging.judge(opened.manifest, replace=replace)
            if operator and not keep_accounts and not ground.continued:
                judging.require_operator(opened, operator)
            _migrate(opened.manifest)
            if ground.inhabited:
                with transaction.atomic():
                    installation_close(closing.REASON)
                progress("waiting until every process knows that the doors are closed")
                time.sleep(CLOSED_SECONDS)

            def replaced() -> Restored:
                _lock_tables()
                judging.require_same(opened.manifest, ground)
                return _replace(opened, keep_accounts, operator, now, progress)

            return undisturbed(replaced)


def _migrate(manifest: Manifest) -> None:
    """Make the tables that are missing."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
        judging.require_tables(manifest)


def _lock_tables() -> None:
    """Have all tables alone, or none: whoever is at work holds one and may ask for another that is taken already.

    Writers of the store begin with its counter, and so does this.
    """
    counter = "store_revision"
    tables = [counter, *sorted(LEFT_OUT - {MIGRATIONS, counter}, reverse=True), *tables_here()]
    with connection.cursor() as cursor:
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
    else:
        if not keep_accounts:
            done.signs_in = closing.accounts_forget(operator)
        done.differences += closing.links_tell()
    done.differences += closing.credentials_end_all(now=now)
    done.differences += closing.webhooks_end(newer)
    done.differences += closing.tenants_close(newer)
    done.differences += workspaces_keep_closed(newer)
    done.differences += freezes_keep(newer)
    done.differences += offboardings_keep(newer)
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
