"""How each backup ended is known afterwards, of whatever it died but of a kill, and after a restore what it was of (P12)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.backup.conftest import Installation
from tests.story.product import eventually


def found(house: Installation) -> tuple[str, str]:
    """What the doctor says of backups: how it is, and what it found."""
    process = house.begin("doctor", "backups", "--output=json")
    said, errors = process.communicate(timeout=400)
    assert "Traceback" not in errors
    (finding,) = json.loads(said)["findings"]
    assert process.returncode == int(finding["state"] == "failed")
    return finding["state"], finding["found"]


def test_a_file_that_cannot_be_made_is_told_until_one_is(house: Installation, tmp_path: Path) -> None:
    assert found(house) == ("ok", found(house)[1])
    house.refused("backup", str(tmp_path / "nowhere" / "a.backup"))
    state, words = found(house)
    assert state == "failed"
    assert "cannot be written" in words
    house.manage("backup", str(tmp_path / "a.backup"))
    assert found(house)[0] == "ok"


def test_a_session_that_postgresql_ends_in_its_midst_is_told(house: Installation, tmp_path: Path) -> None:
    with psycopg.connect(house.owner, autocommit=True) as others:
        with psycopg.connect(house.owner) as holding:
            holding.execute("LOCK TABLE workspaces IN ACCESS EXCLUSIVE MODE")
            process = house.begin("backup", str(tmp_path / "a.backup"))
            waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            eventually(lambda: others.execute(waiting).fetchone())
            others.execute(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) AS waiting")
            _, errors = process.communicate(timeout=400)
    assert process.returncode == 1
    assert "PostgreSQL refuses" in errors
    assert "Traceback" not in errors
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []
    state, words = found(house)
    assert state == "failed"
    assert "has failed" in words


@pytest.mark.parametrize("lost", [False, True], ids=["over itself", "into an empty database"])
def test_what_counts_after_a_restore_is_the_backup_that_was_restored(
    house: Installation, install: Callable[..., Installation], tmp_path: Path, *, lost: bool
) -> None:
    first, second = tmp_path / "a.backup", tmp_path / "b.backup"
    house.manage("backup", str(first))
    house.manage("backup", str(second))
    there = install() if lost else house
    there.manage("restore", str(first))
    state, words = found(there)
    assert state == "warning"
    assert "this database was restored from it" in words
    assert datetime.now(UTC) - timedelta(hours=1) < _moment(there) < datetime.now(UTC)
    there.manage("backup", str(tmp_path / "c.backup"))
    assert found(there)[0] == "ok"


def _moment(house: Installation) -> datetime:
    said = house.manage(
        "shell",
        code="from portal.backup.freshness import backups_standing\nprint(backups_standing().holds.isoformat())",
    )
    return datetime.fromisoformat(said.splitlines()[-1])
