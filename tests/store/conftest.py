"""A fresh, migrated database on the run's PostgreSQL for each test of the store, and a server that may be hurt."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.db.migrations.state import ProjectState
from environ import Env
from psycopg.conninfo import make_conninfo

import store.migrations
from portal.quickstart.embedded.postgresql import PostgreSQL
from store.engine import Engine
from tests.databases import OWNER

_numbers = count()


def conninfo_of(name: str) -> str:
    """The connection string of a database on the run's server."""
    return make_conninfo(os.environ[OWNER], dbname=name)


def run(conninfo: str, statement: str) -> Any:
    """One statement on a connection of its own, and its first row."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone() if cursor.description else None


@contextmanager
def impatient(store: Engine, seconds: float = 2.0) -> Iterator[None]:
    """What is written meanwhile gets no answer, and is given up soon; nothing that must be kept is written in a hurry."""
    patience, store._committer._patience = store._committer._patience, seconds
    try:
        yield
    finally:
        store._committer._patience = patience


def alias_of(name: str, url: str | None = None) -> str:
    """A Django connection to a database of that name."""
    given = Env.db_url_config(url or os.environ[OWNER])
    connections.databases[name] = {**connections.databases["default"], **given, "NAME": name}
    return name


def migrate(alias: str) -> None:
    """The store's own migrations alone, whatever state the other floors are in."""
    state = ProjectState()
    for module in sorted(Path(store.migrations.__file__).parent.glob("0*.py")):
        migration = import_module(f"store.migrations.{module.stem}").Migration(module.stem, "store")
        with connections[alias].schema_editor() as editor:
            state = migration.apply(state, editor)
    connections[alias].close()


@pytest.fixture(scope="session")
def maintenance() -> str:
    """The connection string of the database in which others are made."""
    return os.environ[OWNER]


@pytest.fixture(scope="session")
def template(maintenance: str, django_db_blocker: Any) -> Iterator[str]:
    name = alias_of(f"store_template_{run(maintenance, 'SELECT pg_backend_pid()')[0]}")
    run(maintenance, f"CREATE DATABASE {name}")
    with django_db_blocker.unblock():
        migrate(name)
    yield name
    run(maintenance, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(maintenance: str, template: str, django_db_blocker: Any) -> Iterator[str]:
    """The name of a fresh database, which is also the alias of its Django connection."""
    name = alias_of(f"{template}_{next(_numbers)}")
    run(maintenance, f"CREATE DATABASE {name} TEMPLATE {template}")
    with django_db_blocker.unblock():
        yield name
        connections[name].close()
    del connections[name]
    del connections.databases[name]
    run(maintenance, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def conninfo(database: str) -> str:
    return conninfo_of(database)


@pytest.fixture
def fragile(django_db_blocker: Any) -> Iterator[PostgreSQL]:
    """A server of the test's own with a migrated database, to stop and to kill.

    Not below pytest's own folder: every start of pytest closes that to other accounts, the server's included.
    """
    folder = Path(tempfile.mkdtemp(prefix="tenantry-fragile-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    with django_db_blocker.unblock():
        alias = alias_of("postgres", server.owner_url)
        migrate(alias)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
