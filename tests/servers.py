"""Real PostgreSQL and Redis for every test: the given URLs, or embedded servers of this run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from portal.embedded.postgresql import PostgreSQL
from portal.embedded.redis import Redis

_folder: Path | None = None
_servers: list[PostgreSQL | Redis] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None]:
    """Start what no URL names before anybody reads Django's settings; workers of xdist inherit the URLs.

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
    return (yield)


def pytest_unconfigure() -> None:
    """Stop what this run started."""
    for server in reversed(_servers):
        server.stop()
    _servers.clear()
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
