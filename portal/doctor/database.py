"""PostgreSQL and the host: who the product is there, what it may, whose rows it sees, and what time it is."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from portal.database.rights import RIGHTS
from portal.doctor.findings import Finding, failed, ok, warning

_OLDEST: Final = 150_000
_APART_SECONDS: Final = 2.0
_FAR_APART_SECONDS: Final = 30.0
_FREE_SHARE: Final = 0.05


def role() -> Iterator[Finding]:
    """The product is no superuser, evades no row-level security, and owns nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT rolname, rolsuper, rolbypassrls, current_setting('server_version_num')::int"
            " FROM pg_roles WHERE rolname = current_user"
        )
        name, superuser, bypasses, version = cursor.fetchone()
        cursor.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            " AND relowner = current_user::regrole"
        )
        (owned,) = cursor.fetchone()
    apart = "Let DATABASE_URL name another role than MIGRATION_DATABASE_URL, and run manage.py bootstrap."
    if version < _OLDEST:
        yield failed("database", f"PostgreSQL {version // 10000} is too old", "Move to PostgreSQL 15 or newer.")
    if superuser:
        yield failed("database-role", f"{name} is a superuser: nothing in the database binds the product", apart)
    elif bypasses:
        yield failed("database-role", f"{name} evades row-level security", f"Run ALTER ROLE {name} NOBYPASSRLS.")
    elif owned:
        yield failed("database-role", f"{name} owns {owned} tables and indexes: it could take triggers away", apart)
    else:
        yield ok("database-role", f"{name} owns nothing")


def row_security() -> Iterator[Finding]:
    """Every table whose rows are somebody's has row-level security."""
    wanted = {table for table, right in RIGHTS.items() if right.rows}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            " AND relrowsecurity AND relname = ANY(%s)",
            [sorted(wanted)],
        )
        missing = wanted - {name for (name,) in cursor.fetchall()}
    if missing:
        yield failed(
            "row-level-security",
            f"it is off for {', '.join(sorted(missing))}",
            "Run manage.py bootstrap with MIGRATION_DATABASE_URL, which puts grants and policies right.",
        )
    else:
        yield ok("row-level-security", f"on for {len(wanted)} tables")


def migrations() -> Iterator[Finding]:
    """The database is of this release."""
    executor = MigrationExecutor(connection)
    missing = [
        f"{step.app_label}.{step.name}" for step, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())
    ]
    if missing:
        yield failed("migrations", f"not applied: {', '.join(missing[:5])}", "Run manage.py bootstrap of this release.")
    else:
        yield ok("migrations", "all applied")


def clock() -> Iterator[Finding]:
    """This machine and the database agree on the time: leases, expiries and the audit's order are the database's."""
    before = time.time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        (theirs,) = cursor.fetchone()
    after = time.time()
    apart = max(before - theirs, theirs - after, 0.0)
    remedy = "Let both hosts follow the same time server (chrony, systemd-timesyncd)."
    if apart > _FAR_APART_SECONDS:
        yield failed("clocks", f"{apart:.0f} s apart from the database's", remedy)
    elif apart > _APART_SECONDS:
        yield warning("clocks", f"{apart:.1f} s apart from the database's", remedy)
    else:
        yield ok("clocks", "the database's and this one agree")


def disk() -> Iterator[Finding]:
    """The data folder's disk has room: checkpoints and logs are written to it."""
    if not settings.DATA_DIR.is_dir():
        yield warning(
            "data-folder",
            f"{settings.DATA_DIR} is not there",
            "Set TENANTRY_DATA_DIR to the folder of this installation.",
        )
        return
    usage = shutil.disk_usage(settings.DATA_DIR)
    if usage.free < usage.total * _FREE_SHARE:
        yield failed("data-folder", f"{usage.free // 2**20} MiB are left", "Make room on the disk of the data folder.")
    else:
        yield ok("data-folder", f"{usage.free // 2**20} MiB are left")
