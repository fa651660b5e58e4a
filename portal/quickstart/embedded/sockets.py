"""Where the embedded servers of a data folder listen: the quickstart opens it, every other command finds it there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_PATH_LIMIT = 90
"""Unix socket paths end at 107 bytes; PostgreSQL adds its own file name."""


def postgresql_sockets(folder: Path) -> Path:
    """The folder of PostgreSQL's socket."""
    return _short(folder / "socket")


OWNER, PRODUCT = "postgres", "tenantry"
"""Who owns the tables of the embedded PostgreSQL, and as whom the product runs on them."""


def postgresql_url(folder: Path, *, user: str = PRODUCT) -> str:
    """The URL to connect with."""
    return f"postgresql://{user}@/postgres?host={postgresql_sockets(folder)}"


def redis_socket(folder: Path) -> Path:
    """The path of the socket that Redis listens on."""
    return _short(folder) / "redis.sock"


def redis_url(folder: Path) -> str:
    """The URL to connect with."""
    return f"unix://{redis_socket(folder)}"


def make_private(folder: Path, owner: int) -> None:
    """Make a folder that only ``owner`` may enter. Raises ``RuntimeError`` when somebody else's is in its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid not in {os.geteuid(), owner}:
        raise RuntimeError(f"{folder} belongs to somebody else.")
    folder.chmod(0o700)
    if owner != os.geteuid():
        os.chown(folder, owner, -1)


def _short(folder: Path) -> Path:
    """The folder, or one in the system's temporary folder when its path is too long for a socket."""
    if len(str(folder)) <= _PATH_LIMIT:
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tenantry-{os.geteuid()}-{name}"
