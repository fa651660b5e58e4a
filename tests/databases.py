"""Databases on the run's PostgreSQL. The product's tables are made once for the whole run, and then copied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from django.db import connection
from psycopg import sql

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "TENANTRY_TESTS_TEMPLATE"
"""The variable that names the migrated database to every process of a run."""

OWNER = "MIGRATION_DATABASE_URL"
"""The variable with the URL of whoever owns the tables; the product, and the tests themselves, do not."""


def url_of(name: str, variable: str = "DATABASE_URL") -> str:
    """The URL of another database on the run's server, for the product or for the owner of the tables."""
    base, _, query = os.environ[variable].partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


def run(statement: str, *names: str) -> None:
    """One statement outside transactions, with these names in its places."""
    with psycopg.connect(os.environ[OWNER], autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def template() -> str:
    """The name of the migrated database, which is made by whichever process asks first."""
    name = os.environ[TEMPLATE]
    with psycopg.connect(os.environ[OWNER], autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", [name])  # until the connection ends
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            unfinished = f"{name}_unfinished"
            run("CREATE DATABASE {}", unfinished)
            migrate = [sys.executable, "manage.py", "migrate", "-v0"]
            subprocess.run(migrate, cwd=ROOT, env={**os.environ, "DATABASE_URL": url_of(unfinished)}, check=True)
            run("ALTER DATABASE {} RENAME TO {}", unfinished, name)
    return name


@contextmanager
def migrated(purpose: str) -> Iterator[str]:
    """The URL of a database with the product's tables and nothing in them; it ends with the context."""
    name = f"{purpose}_{uuid4().hex[:12]}"
    run("CREATE DATABASE {} TEMPLATE {}", name, template())
    try:
        yield url_of(name)
    finally:
        run("DROP DATABASE {} WITH (FORCE)", name)


@contextmanager
def owning() -> Iterator[psycopg.Cursor[Any]]:
    """A cursor of whoever owns the tables, on the database of Django's tests: for what the product cannot do itself."""
    name = connection.settings_dict["NAME"]
    with psycopg.connect(url_of(name, OWNER), autocommit=True) as owner, owner.cursor() as cursor:
        yield cursor
