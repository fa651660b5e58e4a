"""What every test with a database needs; ``tests.servers`` starts the servers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pytest_django import DjangoDbBlocker

from tests.databases import template

pytest_plugins = ["tests.apiserver", "tests.kubeapiserver", "tests.clusters"]

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Argon2 is slow on purpose; in this process it need not be."""
    from django.test import override_settings

    with override_settings(PASSWORD_HASHERS=["tests.passwords.QuickArgon2"]):
        yield


# In the transaction of the clean-up itself, so that no API server ever meets a store without its counter row.
_COUNTER_STAYS = """
CREATE OR REPLACE FUNCTION tests_counter_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO store_revision (id, revision, compacted, epoch) VALUES (1, 0, 0, gen_random_uuid());
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tests_counter_stays AFTER TRUNCATE ON store_revision
  FOR EACH STATEMENT EXECUTE FUNCTION tests_counter_stays();
"""


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """The database of Django's own tests is a copy as well."""
    from django.db import connection

    connection.settings_dict["TEST"]["TEMPLATE"] = template()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Let the clean-up between tests truncate the audit, as nothing else may (GW13), and keep the store's counter."""
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for table in ("audit_logs", "audit_chains"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_no_truncate")
        cursor.execute(_COUNTER_STAYS)
