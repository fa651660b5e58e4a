"""Loaded by ``-p`` into the tests of the release before, where they run on the tables of a later one.

``tests`` is theirs in that run, so nothing of this tree's is used here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path


def pytest_configure() -> None:
    """Before their own fixtures lay hands on any of it."""
    _empty_what_they_do_not_know()
    # Those of the store make its tables by themselves.
    migrations = import_module("store.migrations")
    newer = Path(os.environ["NEWER_TREE"]) / "store" / "migrations"
    migrations.__path__, migrations.__file__ = [str(newer)], str(newer / "__init__.py")


def _empty_what_they_do_not_know() -> None:
    """What they empty between tests may be named by newer tables: those are emptied with it.

    Most are empty, and to delete from those costs a hundredth of to truncate them.
    """
    from django.db.backends.postgresql.operations import DatabaseOperations

    flush = DatabaseOperations.execute_sql_flush

    def emptied(self: DatabaseOperations, statements: Sequence[str]) -> None:
        tables = sorted(name for statement in statements for name in re.findall(r'"\w+"', statement))
        truncated = [name for name in tables if name.startswith('"store_') or name == '"api_requests"']
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('is_superuser') = 'on'")
            (may,) = cursor.fetchone()
        if not may:
            flush(self, [f"TRUNCATE {', '.join(tables)} CASCADE"])
            return
        flush(
            self,
            [
                f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE",
                "SET LOCAL session_replication_role = replica",
                *(f"DELETE FROM {name}" for name in tables if name not in truncated),
                "SET LOCAL session_replication_role = origin",
                f"TRUNCATE {', '.join(truncated)}",
            ],
        )

    DatabaseOperations.execute_sql_flush = emptied
