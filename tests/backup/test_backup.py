"""Backups are whole, of one moment and their owner's alone; restores refuse what is not, and end closed (P12)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from portal.backup import keeping
from tests.backup.conftest import PEOPLE, Installation
from tests.databases import OWNER, ROOT
from tests.story.product import eventually

Install = Callable[..., Installation]


def rewritten(file: Path, to: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """The same ZIP with one member changed, its own checksums right again."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name == member else data)
    return to


COLUMNS = (
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'users' AND table_schema = 'public'"
    " AND is_generated = 'NEVER'"
)


def state(house: Installation) -> list[tuple[object, ...]]:
    """What a refused restore must not touch."""
    return house.ask(
        "SELECT 'lock', space, reason FROM locks UNION ALL SELECT 'user', email, password_hash FROM users"
        " UNION ALL SELECT 'store', epoch::text, revision::text FROM store_revision ORDER BY 1, 2"
    )


def test_a_backup_is_one_new_file_for_its_owner_alone(house: Installation, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    assert "rows of" in house.manage("backup", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert "is there already" in house.refused("backup", str(file))
    assert file.read_bytes() == before
    assert "cannot be written" in house.refused("backup", str(tmp_path / "nowhere" / "b.backup"))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.backup"], "nothing half made is left"


def test_in_a_folder_it_is_called_by_its_time_and_the_newest_stay(house: Installation, tmp_path: Path) -> None:
    """What is called otherwise, or is being made, is nobody's to remove."""
    folder = tmp_path / "backups"
    folder.mkdir()
    old = [folder / f"tenantry-2026-01-0{day}T02-23-00Z.backup" for day in (1, 2, 3)]
    killed, running = (folder / f".{old[0].name}.{pid}.partial" for pid in (7, 8))
    others = [folder / "tenantry-2025.backup", folder / "before-the-move.backup", running]
    for path in (*old, killed, *others):
        path.write_text("as it was")
    os.utime(killed, (0, 0))
    assert "--keep" in house.refused("backup", str(folder / "a.backup"), "--keep=2")
    assert "--keep" in house.refused("backup", str(folder), "--keep=0")
    assert "removed" not in house.manage("backup", str(folder))
    said = house.manage("backup", str(folder), "--keep=3")
    made = sorted(set(folder.iterdir()) - {*old, killed, *others})
    assert len(made) == 2
    assert set(folder.iterdir()) == {old[2], *made, *others}
    assert said.count("removed") == 3
    house.manage("restore", str(made[-1]))


def test_what_a_clock_ahead_has_named_does_not_cost_the_backup_that_is_made(
    house: Installation, tmp_path: Path
) -> None:
    ahead = [tmp_path / f"tenantry-2999-01-0{day}T02-23-00Z.backup" for day in (1, 2)]
    for path in ahead:
        path.write_text("as it was")
    assert "removed" not in house.manage("backup", str(tmp_path), "--keep=1")
    (made,) = {path for path in tmp_path.iterdir() if path.is_file()} - {*ahead}
    house.manage("restore", str(made))


def test_two_who_keep_one_folder_hinder_nobody(tmp_path: Path) -> None:
    """What one lists the other has removed or called otherwise by then: it is in the folder, and nothing is behind it."""
    now = datetime(2026, 1, 9, tzinfo=UTC)
    files = [keeping.file_of(tmp_path, now - timedelta(days=days)) for days in range(6)]
    for path in files:
        path.write_text("as it was")
    (tmp_path / f".{files[0].name}.7.partial").symlink_to("finished")
    start = threading.Barrier(8)

    def keep() -> None:
        start.wait()
        keeping.older_remove(tmp_path, 2, now)

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(keep) for _ in range(8)]:
            each.result()
    assert {path for path in tmp_path.iterdir() if path.suffix == ".backup"} == {*files[:2]}


def test_no_room_is_said_and_leaves_nothing(house: Installation, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", sys.executable, "manage.py", "backup", str(file)]
    environment = {**house.environment, "PYTHONDONTWRITEBYTECODE": "1"}  # half a module would stay as well
    done = subprocess.run(limited, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_backup_leaves_out_sessions_and_keys(house: Installation, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    everything = {
        name
        for (name,) in house.ask(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition"
        )
    }
    with zipfile.ZipFile(file) as archive:
        members = {name.removeprefix("tables/") for name in archive.namelist() if name.startswith("tables/")}
        text = b"".join(archive.read(name) for name in archive.namelist())
    assert everything - members == {
        "django_migrations",
        "django_session",
        "pod_connections",
        "portal_sessions",
        "store_event",
        "store_lease",
        "store_revision",
        "store_space",
        "stream_counts",
    }
    assert house.sealing_key.encode() not in text


@pytest.fixture
def writing(house: Installation) -> Iterator[Callable[[], int]]:
    """Somebody who writes the same number into two tables, one transaction after the other; how many so far."""
    done, count = threading.Event(), [0]

    def write() -> None:
        with psycopg.connect(house.owner) as connection:
            connection.execute(
                "INSERT INTO locks (space, namespace, reason, created_at) VALUES ('root:a', '', '0', now())"
            )
            while not done.is_set():
                number = str(count[0] + 1)
                connection.execute("UPDATE locks SET reason = %s WHERE space = 'root:a'", [number])
                connection.execute("UPDATE users SET name = %s", [number])
                connection.commit()
                count[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    yield lambda: count[0]
    done.set()
    thread.join()


def test_a_backup_under_writes_is_of_one_moment(
    house: Installation, install: Install, writing: Callable[[], int], tmp_path: Path
) -> None:
    """Whatever is written together is in the backup together; the audit's chains are whole in it."""
    file, elsewhere = tmp_path / "a.backup", install()
    eventually(writing)
    before = writing()
    house.manage("backup", str(file))
    assert writing() > before, "somebody wrote meanwhile"
    elsewhere.manage("restore", str(file), "--keep-accounts")
    ((reason,),) = elsewhere.ask("SELECT reason FROM locks WHERE space = 'root:a'")
    names = {name for (name,) in elsewhere.ask("SELECT name FROM users")}
    assert names == {reason}
    assert int(reason) >= before
    assert "system:" in elsewhere.manage("audit", "verify")
    elsewhere.manage("audit", "verify")


def test_nothing_damaged_foreign_or_of_another_release_is_touched_with(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    whole, before = file.read_bytes(), state(house)
    cut, bent = tmp_path / "cut", tmp_path / "bent"
    cut.write_bytes(whole[: len(whole) // 2])
    bent.write_bytes(bytes(byte ^ (255 if at == len(whole) // 3 else 0) for at, byte in enumerate(whole)))
    forged = rewritten(file, tmp_path / "forged", "tables/users", lambda data: data.replace(b"alice@", b"mallo@"))

    def older(data: bytes) -> bytes:
        body = json.loads(data)
        body["migrations"].append("tenants.9999_later")
        return json.dumps(body).encode()

    unsealed = rewritten(file, tmp_path / "unsealed", "manifest.json", older)
    for damaged in (cut, bent, forged, unsealed):
        assert "is damaged" in house.refused("restore", str(damaged), "--replace"), damaged
    assert "cannot be read" in house.refused("restore", str(tmp_path / "missing"), "--replace")
    other = install()
    other.manage("shell", code=PEOPLE)
    assert "is not empty, and the backup is not of it" in other.refused("restore", str(file))
    stranger = install(Fernet.generate_key().decode())
    assert "sealing key" in stranger.refused("restore", str(file))
    assert stranger.ask("SELECT count(*) FROM users") == [(0,)]
    assert state(house) == before

    house.ask("INSERT INTO django_migrations (app, name, applied) VALUES ('tenants', '9999_later', now()) RETURNING id")
    later = tmp_path / "later.backup"
    house.manage("backup", str(later))
    assert "another release" in house.refused("restore", str(later), "--replace")
    assert state(house) == before


def structure(house: Installation) -> list[tuple[object, ...]]:
    """Tables, columns, rights and migrations: what a refused restore must not touch either."""
    return house.ask(
        "SELECT 'column', table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'"
        " UNION ALL SELECT 'migration', app, name FROM django_migrations"
        " UNION ALL SELECT 'rights', relname::text, relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " UNION ALL SELECT 'mark', '', obj_description('django_migrations'::regclass) ORDER BY 1, 2, 3"
    )


LAST = "SELECT app, name FROM django_migrations WHERE app = 'tenants' ORDER BY name DESC LIMIT 1"


def of_an_older_release(other: Installation) -> None:
    """It lacks the last migration."""
    ((app, name),) = other.ask(LAST)
    other.change(f"DELETE FROM django_migrations WHERE app = '{app}' AND name = '{name}'")


def of_a_later_release(other: Installation) -> None:
    other.change("INSERT INTO django_migrations (app, name, applied) VALUES ('tenants', '9999_later', now())")


def with_tables_of_others(other: Installation) -> None:
    other.change("CREATE TABLE accounting (id int)")


def older_and_with_tables_of_others(other: Installation) -> None:
    of_an_older_release(other)
    with_tables_of_others(other)


def as_it_is(_other: Installation) -> None:
    """A good one."""


@pytest.mark.parametrize(
    ("made", "arguments", "why"),
    [
        (as_it_is, (), "is not empty, and the backup is not of it"),
        (as_it_is, ("--replace", "--operator", "nobody@platform.test"), "is no active operator of the backup"),
        (as_it_is, ("--replace", "--operator", "alice@acme.test"), "is no active operator of the backup"),
        (of_an_older_release, (), "is not empty, and the backup is not of it"),
        (of_an_older_release, ("--replace", "--operator", "alice@acme.test"), "is no active operator of the backup"),
        (of_a_later_release, ("--replace",), "The database is of a later release (by tenants.9999_later)"),
        (with_tables_of_others, ("--replace",), "has not the tables of the backup (accounting)"),
        (older_and_with_tables_of_others, ("--replace",), "has not the tables of the backup (accounting)"),
    ],
)
def test_everything_is_judged_before_anything_is_changed(
    house: Installation,
    install: Install,
    tmp_path: Path,
    made: Callable[[Installation], None],
    arguments: tuple[str, ...],
    why: str,
) -> None:
    """A database that cannot be restored into is neither migrated nor closed, and its rights are what they were."""
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    other = install()
    other.manage("shell", code=PEOPLE)
    made(other)
    before = state(other), structure(other)
    assert why in other.refused("restore", str(file), *arguments)
    assert (state(other), structure(other)) == before


def test_a_database_with_tables_of_others_alone_is_not_made_ready(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    other = install()
    other.change("DROP SCHEMA public CASCADE")
    other.change("CREATE SCHEMA public")
    with_tables_of_others(other)
    assert "(accounting)" in other.refused("restore", str(file), "--replace")
    assert other.ask("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [("accounting",)]
    other.change("DROP TABLE accounting")
    other.manage("restore", str(file), "--operator", "OPERATOR@platform.test")
    assert other.ask("SELECT count(*) FROM users") == [(2,)]


def test_a_restore_by_another_than_the_tables_owner_is_refused_open(house: Installation, tmp_path: Path) -> None:
    """It could fill no table: said before the doors are closed."""
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    before = state(house), structure(house)
    process = house.begin("restore", str(file), **{OWNER: house.database})
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 1
    assert "belong to somebody else" in errors
    assert (state(house), structure(house)) == before


def test_a_restore_that_is_killed_leaves_what_was_there_closed_and_is_run_again(
    house: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    house.ask("UPDATE users SET name = 'later' RETURNING id")
    with psycopg.connect(house.owner) as holder:
        holder.execute("ALTER SEQUENCE memberships_id_seq INCREMENT 1")
        killed = house.begin("restore", str(file), "--replace")

        def half_way() -> bool:
            assert killed.poll() is None, killed.communicate()
            return bool(
                house.ask(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                    " AND query LIKE 'SELECT setval(%%'"
                )
            )

        eventually(half_way)
        killed.kill()
        killed.communicate()
    names = {name for (name,) in house.ask("SELECT name FROM users")}
    assert names == {"later"}, "all or nothing"
    assert house.ask("SELECT reason FROM locks WHERE space = 'root' AND namespace = ''"), "and closed"
    said = house.manage("restore", str(file), "--replace")
    assert "closed" in said
    assert house.ask("SELECT DISTINCT name FROM users") == [("",)]
    house.manage("restore", "--open")
    assert house.ask("SELECT space FROM locks") == []
    assert "is open" in house.refused("restore", "--open")


def test_whoever_comes_while_a_restore_waits_for_an_empty_database_is_not_swept_away(
    house: Installation, install: Install, tmp_path: Path
) -> None:
    """It was judged when nobody lived there; nobody has said that anything may go, and no doors were closed."""
    file, elsewhere = tmp_path / "a.backup", install()
    house.manage("backup", str(file))
    with psycopg.connect(elsewhere.owner) as comer:
        comer.execute("LOCK TABLE tenants IN ROW EXCLUSIVE MODE")
        begun = elsewhere.begin("restore", str(file), "--replace")

        def waits() -> bool:
            assert begun.poll() is None, begun.communicate()
            return bool(
                elsewhere.ask(
                    "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
                    " WHERE NOT granted AND mode = 'AccessExclusiveLock' AND datname = current_database()"
                )
            )

        eventually(waits)
        columns = ", ".join(name for (name,) in house.ask(COLUMNS))
        kept = house.ask("SELECT row_to_json(users)::text FROM users WHERE email = 'alice@acme.test'")[0][0]
        comer.execute(
            f"INSERT INTO users ({columns}) SELECT {columns} FROM json_populate_record(NULL::users, %s)", [kept]
        )
    _, errors = begun.communicate(timeout=400)
    assert begun.returncode == 1, errors
    assert "restore again" in errors
    assert elsewhere.ask("SELECT email FROM users") == [("alice@acme.test",)]
    elsewhere.manage("restore", str(file), "--replace")
    assert len(elsewhere.ask("SELECT FROM users")) > 1


HELD_BY_TURNS = ("workspaces", "users", "tiers", "tenants", "operations", "memberships", "clusters")


@pytest.fixture
def crossing(house: Installation) -> Iterator[list[str]]:
    """Somebody who holds a table that a restore waits for and asks for one that it has, again and again; what he was given."""
    done, given = threading.Event(), list[str]()
    waits = (
        "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE NOT granted AND mode = 'AccessExclusiveLock' AND datname = current_database()"
    )

    def cross() -> None:
        with psycopg.connect(house.owner) as connection, psycopg.connect(house.owner, autocommit=True) as looking:
            for table in HELD_BY_TURNS:
                while given and not looking.execute(waits).fetchall() and not done.is_set():
                    pass
                connection.execute(f"SELECT FROM {table}")
                given.append(table)

    thread = threading.Thread(target=cross)
    thread.start()
    yield given
    done.set()
    thread.join()


def test_a_restore_makes_its_way_through_those_who_are_at_work_and_ends_none_of_them(
    house: Installation, crossing: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    house.manage("restore", str(file))
    assert tuple(crossing) == HELD_BY_TURNS


def test_revisions_go_on_beyond_all_that_was_told(house: Installation, install: Install, tmp_path: Path) -> None:
    """Over what is there, and elsewhere, where nobody knows how far the old history had come."""
    file, elsewhere = tmp_path / "a.backup", install()
    house.manage("backup", str(file))
    house.ask("UPDATE store_revision SET revision = revision + 4000 RETURNING revision")
    ((told, epoch),) = house.ask("SELECT revision, epoch FROM store_revision")
    elsewhere.manage("restore", str(file))
    house.manage("restore", str(file))
    for restored in (house, elsewhere):
        ((revision, compacted, began, other),) = restored.ask(
            "SELECT revision, compacted, began, epoch FROM store_revision"
        )
        assert revision > told
        assert compacted >= told
        assert began >= told
        assert other != epoch
        assert restored.ask("SELECT max(revision) FROM store_object")[0][0] <= revision


def test_a_restore_does_not_depend_on_how_postgresql_plans_its_queries(house: Installation, tmp_path: Path) -> None:
    """Numbers that are counted go on behind those of the backup, with the plans of any statistics."""
    file = tmp_path / "a.backup"
    house.manage("backup", str(file))
    ((last,),) = house.ask("SELECT max(id) FROM memberships")
    for way in ("nestloop", "mergejoin"):
        house.change(f"ALTER ROLE CURRENT_USER IN DATABASE {house.name} SET enable_{way} = off")
    house.manage("restore", str(file))
    assert house.ask("SELECT nextval('memberships_id_seq')") == [(last + 1,)]
