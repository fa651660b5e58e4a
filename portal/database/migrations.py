"""Whether the database has what this release reads and writes."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def database_is_migrated() -> bool:
    """Whether every migration of this release is through; one of a later release is none of its own. Raises ``django.db.Error``."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())
