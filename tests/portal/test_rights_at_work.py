"""Rights are made right while the product runs: who is at work is waited for, and nobody is ended for them (GW15)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.databases import OWNER, ROOT, migrated, url_of
from tests.story.product import eventually

WAITS = """
SELECT pid, count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE NOT granted AND mode = 'AccessExclusiveLock' AND datname = current_database() GROUP BY pid
"""


@pytest.fixture
def database() -> Iterator[str]:
    with migrated("rights") as url:
        name = url.partition("?")[0].rpartition("/")[2]
        with psycopg.connect(url_of(name, OWNER)) as owner:
            # As an upgrade finds it: what the rights are to be is not what they were made for.
            owner.execute("COMMENT ON TABLE django_migrations IS NULL")
            owner.execute("DROP POLICY product ON workspaces")
            owner.execute("DROP POLICY product ON users")
        yield url


def granting(database: str) -> subprocess.Popen[str]:
    name = database.partition("?")[0].rpartition("/")[2]
    environment = {**os.environ, "DATABASE_URL": database, OWNER: url_of(name, OWNER)}
    return subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )


def policies(database: str) -> set[str]:
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT tablename FROM pg_policies WHERE policyname = 'product'").fetchall()
    return {name for (name,) in found}


def test_a_process_that_holds_what_is_waited_for_and_asks_for_what_is_taken_goes_on(database: str) -> None:
    """Each of the two has what the other one wants, in the order in which PostgreSQL ends one of them."""
    with psycopg.connect(database) as working, psycopg.connect(database, autocommit=True) as looking:
        working.execute("SELECT FROM users")  # late in the list of tables
        command = granting(database)
        eventually(lambda: looking.execute(WAITS).fetchall() or command.poll() is not None)
        assert command.poll() is None
        # Early in it; what this process is told is an error where it is the one that is ended.
        working.execute("SELECT FROM tenants")
        working.commit()
    _, errors = command.communicate()
    assert command.returncode == 0, errors
    assert {"workspaces", "users"} <= policies(database)


def test_others_go_on_while_one_holds_a_table_for_long(database: str) -> None:
    """It lets go of everything between two attempts, so that nobody stands behind it until the one who holds has ended."""
    with psycopg.connect(database) as holding, psycopg.connect(database, autocommit=True) as looking:
        holding.execute("SELECT FROM users")
        command = granting(database)
        answered = threading.Event()

        def read() -> None:
            with psycopg.connect(database, autocommit=True) as reading:
                reading.execute("SELECT FROM tenants")
            answered.set()

        for _ in range(3):
            eventually(lambda: looking.execute(WAITS).fetchall() or command.poll() is not None)
            assert command.poll() is None
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
            assert answered.is_set()
            answered.clear()
            eventually(lambda: not looking.execute(WAITS).fetchall())
    _, errors = command.communicate()
    assert command.returncode == 0, errors
    assert {"workspaces", "users"} <= policies(database)
