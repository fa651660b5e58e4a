"""What every test with a database needs; ``tests.servers`` starts the servers."""

from __future__ import annotations

import pytest
from pytest_django import DjangoDbBlocker

pytest_plugins = ["tests.apiserver", "tests.kubeapiserver", "tests.clusters"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Let the tests' own clean-up between tests truncate the audit; nothing else may (GW13)."""
    from django.db import connection
    from django.db.models.signals import post_migrate

    post_migrate.connect(_first_revision, dispatch_uid="tests")
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for table in ("audit_logs", "audit_chains"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_no_truncate")


def _first_revision(**_: object) -> None:
    """Give the store its counter row again, which the clean-up between tests took with all others."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO store_revision (id, revision, compacted, epoch) "
            "SELECT 1, coalesce(max(revision), 0), 0, gen_random_uuid() FROM store_event ON CONFLICT DO NOTHING"
        )
