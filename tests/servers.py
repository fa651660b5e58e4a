"""Real PostgreSQL and Redis for every test: the given URLs, or embedded servers of this run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from portal.quickstart.embedded.postgresql import PostgreSQL
from portal.quickstart.embedded.redis import Redis
from tests.databases import OWNER, TEMPLATE, run

_folder: Path | None = None
_servers: list[PostgreSQL | Redis] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None]:
    """Start what no URL names before anybody reads Django's settings; workers of xdist inherit the URLs.

    Each worker has a Redis database of its own, as pytest-django gives it a PostgreSQL database of its own: clearing
    the cache in one must not refill the rate limits of another.

    Every conftest is too late: pytest-django reads the settings before it loads them.
    """
    global _folder
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    if "TENANTRY_DATA_DIR" not in os.environ:
        _folder = Path(tempfile.mkdtemp(prefix="tenantry-"))
        _folder.chmod(0o711)
        os.environ["TENANTRY_DATA_DIR"] = str(_folder / "data")
    for variable, kind in (("DATABASE_URL", PostgreSQL), ("REDIS_URL", Redis)):
        if not os.environ.get(variable):
            assert _folder is not None, "TENANTRY_DATA_DIR is set: set DATABASE_URL and REDIS_URL too"
            name = kind.__name__.lower()
            server = kind(_folder / name, _folder / f"{name}.log")
            server.start()
            _servers.append(server)
            os.environ[variable] = server.url
            if isinstance(server, PostgreSQL):
                os.environ[OWNER] = server.owner_url
                _hurry(server.owner_url)
    if OWNER not in os.environ:
        os.environ[OWNER], os.environ["DATABASE_URL"] = os.environ["DATABASE_URL"], _product_url()
    if _folder is not None:
        _compile_once(_folder / "bytecode")
    os.environ.setdefault(TEMPLATE, f"tests_{uuid4().hex[:12]}")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker:
        os.environ["REDIS_URL"] = _redis_url(os.environ["REDIS_URL"], int(worker) + 1)
    return (yield)


def _compile_once(folder: Path) -> None:
    """Where Python may leave no bytecode beside the sources, dozens of processes would compile Django dozens of times."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _hurry(url: str) -> None:
    """Nothing of this server outlives the run: it need not wait for the disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {name} = off")
        connection.execute("SELECT pg_reload_conf()")


def _product_url() -> str:
    """The given server's URL for a role that is not its owner: the product runs as one."""
    given = urlsplit(os.environ["DATABASE_URL"])
    _, _, host = given.netloc.rpartition("@")
    password = f":{given.password}" if given.password else ""
    return urlunsplit(given._replace(netloc=f"tenantry_product{password}@{host}"))


def _redis_url(url: str, number: int) -> str:
    base = url.partition("?")[0]
    return f"{base}?db={number}"


def pytest_unconfigure() -> None:
    """Stop what this run started, and drop what it made."""
    if TEMPLATE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        run("DROP DATABASE IF EXISTS {} WITH (FORCE)", os.environ[TEMPLATE])
    for server in reversed(_servers):
        server.stop()
    _servers.clear()
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
