"""What every test with a database needs; ``tests.servers`` starts the servers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from pytest_django import DjangoDbBlocker

from tests.databases import migrated, owning

pytest_plugins = ["tests.apiserver", "tests.kubeapiserver", "tests.clusters"]

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have failures told of as they come: of a run that is cut off, nothing else would say which test it was."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(reporter))


class _Failures:
    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A line for each, with the last of what went wrong."""
        if report.failed:
            said = report.longreprtext.strip().splitlines() or [""]
            self._reporter.write_line(f"\nwent wrong: {report.nodeid} ({report.when}): {said[-1]}")


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Argon2 is slow on purpose; in this process it need not be."""
    from django.test import override_settings

    with override_settings(PASSWORD_HASHERS=["tests.passwords.QuickArgon2"]):
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient_cleaning() -> Iterator[None]:
    """Emptying the tables may deadlock with what a server beside reads just then: PostgreSQL ends one of the two.

    Most are empty, and then to delete costs a hundredth of to truncate. Whoever still writes is waited for all the same,
    and what else happens when rows go (triggers, references) does not, as when they are truncated. The store's are, for
    the counter stays (see ``_COUNTER_STAYS``), and requests, whose days are measured by their size; all are where the
    owner of the tables may not leave triggers out.
    """
    from django.db import OperationalError
    from django.db.backends.postgresql.operations import DatabaseOperations

    flush = DatabaseOperations.execute_sql_flush

    def patiently(self: DatabaseOperations, statements: Sequence[str]) -> None:
        tables = sorted(name for statement in statements for name in re.findall(r'"\w+"', statement))
        truncated = [name for name in tables if name.startswith('"store_') or name == '"api_requests"']
        emptied = [
            f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE",
            "SET LOCAL session_replication_role = replica",
            *(f"DELETE FROM {name}" for name in tables if name not in truncated),
            "SET LOCAL session_replication_role = origin",
            f"TRUNCATE {', '.join(truncated)}",
        ]
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('is_superuser') = 'on'")
            (may,) = cursor.fetchone()
        for _ in range(20):
            try:
                flush(self, emptied if may else statements)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != "40P01":
                    raise
            else:
                return
        raise AssertionError("the tables cannot be emptied: each attempt met a deadlock")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", patiently)
        yield


@pytest.fixture(autouse=True)
def _patient_transaction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that rolls back is one transaction, which may take as long as the machine does; none holds up another."""
    marker = request.node.get_closest_marker("django_db")
    rolls_back = "db" in request.fixturenames or marker is not None
    if (
        rolls_back
        and "transactional_db" not in request.fixturenames
        and not (marker and marker.kwargs.get("transaction"))
    ):
        monkeypatch.setattr("store.synchronous.HOLD_SECONDS", 0)


# In the transaction of the clean-up itself, so that no API server ever meets a store without its counter row, and none
# reads on by a lease on what was there: nobody can renew one while the clean-up holds the table. The counter goes on past
# all that a server knows, or each clean-up would be a broken history, which needs partitions of its own.
_COUNTER_STAYS = """
CREATE OR REPLACE FUNCTION tests_counter_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('tests.revision', (SELECT (revision + 1)::text FROM store_revision), true);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tests_counter_goes BEFORE TRUNCATE ON store_revision
  FOR EACH STATEMENT EXECUTE FUNCTION tests_counter_goes();
CREATE OR REPLACE FUNCTION tests_counter_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  begins CONSTANT bigint := current_setting('tests.revision')::bigint;
BEGIN
  INSERT INTO store_revision (id, revision, compacted, began, epoch)
  VALUES (1, begins, begins, begins, gen_random_uuid());
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tests_counter_stays AFTER TRUNCATE ON store_revision
  FOR EACH STATEMENT EXECUTE FUNCTION tests_counter_stays();
CREATE OR REPLACE FUNCTION tests_leases_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM store_lease) THEN
    PERFORM pg_sleep(0.9);
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tests_leases_end BEFORE TRUNCATE ON store_lease
  FOR EACH STATEMENT EXECUTE FUNCTION tests_leases_end();
"""


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database of Django's own tests is a copy as well, and its connection the product's.

    Only the clean-up between tests is the owner's: it truncates, the audit too, as nothing else may (GW13), and keeps
    the store's counter.
    """
    from django.db import connections
    from django.test import TransactionTestCase, override_settings

    from portal.database.rights import as_owner

    def clean(case: Any) -> None:
        with as_owner():
            cleaned(case)

    cleaned, TransactionTestCase._fixture_teardown = TransactionTestCase._fixture_teardown, clean
    with migrated("tests") as url, override_settings(DATABASE_URL=url), django_db_blocker.unblock():
        for settings_dict in (connections["default"].settings_dict, connections.databases["default"]):
            settings_dict["NAME"] = urlsplit(url).path.removeprefix("/")
        with owning() as cursor:
            for table in ("audit_logs", "audit_chains"):
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_no_truncate")
            cursor.execute(_COUNTER_STAYS)
        with django_db_blocker.block():
            yield
        connections.close_all()
