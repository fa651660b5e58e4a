"""Whether a backup can be restored here: everything that speaks against it is found before anything is changed (P12)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from portal.backup.archive import Archive, Manifest, Unusable
from portal.backup.newer import is_continued
from portal.backup.snapshot import tables_here
from tenants.models import Tenant, User
from tenants.models.mailaddresses import address_key

_NAMED: Final = 3
"""So many names stand for all."""

_STRANGERS: Final = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
  AND NOT pg_has_role(current_user, relowner, 'USAGE') ORDER BY relname
"""


def require_this_release(manifest: Manifest) -> None:
    """Raise ``Unusable`` for the backup of another release."""
    known = {".".join(key) for key in MigrationLoader(None).disk_migrations}
    foreign = sorted(known ^ set(manifest.migrations))
    if foreign:
        raise Unusable(
            f"The backup is of another release (it differs by {_some(foreign)}). Restore it with the release that made "
            "it, then upgrade."
        )


def require_operator(opened: Archive, email: str) -> None:
    """Raise ``Unusable`` where nobody could sign in by this address: it is no active operator's of the backup."""
    (users,) = (table for table in opened.manifest.tables if table.name == "users")
    names = ("email", "is_staff", "status")
    places = [list(users.columns).index(name) for name in names]
    rest = b""
    for block in opened.blocks(users):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            fields = line.split(b"\t")
            found, staff, status = (fields[place].decode() for place in places)
            if address_key(found) == address_key(email) and staff == "t" and status == User.Status.ACTIVE:
                return
    raise Unusable(
        f"{email} is no active operator of the backup: name another --operator, or none for its first superuser."
    )


@dataclass(frozen=True, slots=True)
class Ground:
    """A database that a backup is to be put into: whether anybody lives there, and whether the backup is of it."""

    inhabited: bool
    continued: bool


def judge(manifest: Manifest, *, replace: bool) -> Ground:
    """Look at the database, as its owner, and change nothing.

    Raises ``Unusable`` for one of a later release, with tables of others, or of another installation unless that is to go.
    """
    executor = MigrationExecutor(connection)
    ahead = sorted(
        ".".join(key) for key in executor.loader.applied_migrations if key not in executor.loader.disk_migrations
    )
    if ahead:
        raise Unusable(
            f"The database is of a later release (by {_some(ahead)}). Restore with that release, or name an empty database."
        )
    here, there = tables_here(), {table.name: list(table.columns) for table in manifest.tables}
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        # Those that are missing are made by migrations; nothing makes those go that are too many.
        differing = sorted(here.keys() - there.keys())
    else:
        differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differing:
        raise Unusable(
            f"The database has not the tables of the backup ({_some(differing)}): migrate it by its own release first, or "
            "name an empty one."
        )
    with connection.cursor() as cursor:
        cursor.execute(_STRANGERS)
        strangers = [name for (name,) in cursor.fetchall()]
    if strangers:
        raise Unusable(
            f"Tables here belong to somebody else ({_some(strangers)}): let MIGRATION_DATABASE_URL name their owner."
        )
    ground = _ground(manifest, here)
    if ground.inhabited and not replace and not ground.continued:
        raise Unusable(
            "The database is not empty, and the backup is not of it. Name another one (DATABASE_URL), or say --replace: "
            "all that is in it goes."
        )
    return ground


def require_same(manifest: Manifest, ground: Ground) -> None:
    """Raise ``Unusable`` where what was judged is not what is there: asked by who has all tables alone."""
    found = _ground(manifest, tables_here())
    if found.inhabited and found != ground:
        raise Unusable(
            "The database has got another content while the restore was waiting for it, and that is still there: stop what "
            "writes there, and restore again."
        )


def _ground(manifest: Manifest, here: Collection[str]) -> Ground:
    inhabited = ("users" in here and User.objects.exists()) or ("tenants" in here and Tenant.objects.exists())
    return Ground(inhabited, "audit_logs" in here and is_continued(manifest))


def require_tables(manifest: Manifest) -> None:
    """Raise ``Unusable`` where the migrations have not made what the backup holds."""
    here, there = tables_here(), {table.name: list(table.columns) for table in manifest.tables}
    differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differing:
        raise Unusable(f"The database has not the tables of the backup ({_some(differing)}): name an empty one.")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
