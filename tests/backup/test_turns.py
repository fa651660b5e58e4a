"""A restore and a bootstrap of one database do not meet: whichever comes second waits for the first (P12)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psycopg

from tests.backup.conftest import Installation
from tests.story.product import eventually

WAITING = (
    "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
    " WHERE NOT granted AND locktype = %s AND datname = current_database()"
)


def waits(house: Installation, process: subprocess.Popen[str], kind: str) -> bool:
    """Whether a command that has not ended waits for a lock of this kind."""
    assert process.poll() is None, process.communicate()
    return bool(house.ask(WAITING, kind))


def ended(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    return said


def test_a_bootstrap_waits_for_a_restore_that_is_under_way(house: Installation, tmp_path: Path) -> None:
    """It finds what was restored, not what was there when it came."""
    file = tmp_path / "a.backup"
    house.change(
        "UPDATE users SET is_superuser = true, created_at = created_at - (email LIKE 'op%')::int * interval '1 day'"
    )
    house.manage("backup", str(file))
    house.change("UPDATE users SET created_at = now() WHERE email LIKE 'op%'")
    with psycopg.connect(house.owner) as at_work:
        at_work.execute("LOCK TABLE memberships IN ROW EXCLUSIVE MODE")
        restoring = house.begin("restore", str(file))
        eventually(lambda: waits(house, restoring, "relation"))
        starting = house.begin("bootstrap", TENANTRY_STATIC_DIR=str(tmp_path))
        eventually(lambda: waits(house, starting, "advisory"))
    assert "Restored as of" in ended(restoring)
    facts = json.loads(ended(starting).splitlines()[-1])
    first = "operator@platform.test", None
    assert (facts["operator_email"], facts["operator_password"]) == first, "the first superuser of the backup"
    assert house.ask("SELECT email FROM users ORDER BY email") == [("alice@acme.test",), ("operator@platform.test",)]


def test_a_restore_waits_for_a_bootstrap_that_is_under_way(house: Installation, tmp_path: Path) -> None:
    """And judges what that has made; meanwhile the doors stay open."""
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    with psycopg.connect(house.owner) as at_work:
        at_work.execute("LOCK TABLE tiers IN ACCESS EXCLUSIVE MODE")
        starting = house.begin("bootstrap", TENANTRY_STATIC_DIR=str(tmp_path))
        eventually(lambda: waits(house, starting, "relation"))
        restoring = house.begin("restore", str(file))
        eventually(lambda: waits(house, restoring, "advisory"))
        assert house.ask("SELECT FROM locks WHERE space = 'root' AND namespace = ''") == []
    ended(starting)
    assert "Restored as of" in ended(restoring)
    assert house.ask("SELECT FROM locks WHERE space = 'root' AND namespace = ''")
