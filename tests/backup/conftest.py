"""Installations on databases of their own, worked with by their commands alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from cryptography.fernet import Fernet

from tests.databases import OWNER, ROOT, migrated, url_of

PEOPLE = """
from audit.recorder import Actor
from tenants.models import User
from tenants.services import tenant_create
actor = Actor(name="operator@platform.test", operator=True)
User.objects.create_superuser("operator@platform.test", "correct horse battery")
alice = User.objects.create_user("alice@acme.test", "correct horse battery")
for name in ("acme", "globex"):
    tenant_create(actor=actor, name=name, owner=alice)
"""
"""An operator, and two tenants of one owner."""


@dataclass(frozen=True)
class Installation:
    """A database, a data folder, and the keys."""

    database: str
    folder: Path
    sealing_key: str

    @property
    def name(self) -> str:
        """The database's own name."""
        return urlsplit(self.database).path.removeprefix("/")

    @property
    def owner(self) -> str:
        """The URL of the tables' owner."""
        return url_of(self.name, OWNER)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DATABASE_URL": self.database,
            OWNER: self.owner,
            "TENANTRY_DATA_DIR": str(self.folder),
            "TENANTRY_SEALING_KEYS": self.sealing_key,
        }

    def begin(self, *arguments: str, **given: str) -> subprocess.Popen[str]:
        """Start a command and do not wait for it, with these variables."""
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**self.environment, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def manage(self, *arguments: str, code: str | None = None) -> str:
        """Run a command; what it says. Fails when it does."""
        process = self.begin(*arguments)
        said, errors = process.communicate(code, timeout=400)
        assert process.returncode == 0, errors
        return said

    def refused(self, *arguments: str) -> str:
        """Run a command that has to fail, without a traceback; why."""
        process = self.begin(*arguments)
        _, errors = process.communicate(timeout=400)
        assert process.returncode == 1, errors
        assert "Traceback" not in errors
        return errors

    def change(self, statement: str) -> None:
        """What brings no rows."""
        with psycopg.connect(self.owner) as connection:
            connection.execute(statement)

    def ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of the database, whatever they are."""
        with psycopg.connect(self.owner) as connection:
            return connection.execute(statement, parameters).fetchall()


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Callable[..., Installation]]:
    """Makes installations: with the same sealing key unless another is given, and nobody in them."""
    key = Fernet.generate_key().decode()
    with ExitStack() as stack:

        def made(sealing_key: str = key) -> Installation:
            database = stack.enter_context(migrated("backup"))
            folder = tmp_path / urlsplit(database).path.removeprefix("/")
            folder.mkdir()
            return Installation(database, folder, sealing_key)

        yield made


@pytest.fixture
def house(install: Callable[..., Installation]) -> Installation:
    """One with people in it."""
    made = install()
    made.manage("shell", code=PEOPLE)
    return made
