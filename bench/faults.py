"""Kills, freezes, restores and clock jumps for as long as is wanted: ``python -m bench.faults [MINUTES]``.

The checker of the tests, with more steps: every acknowledged write and every watch event is accounted for at the end of
each round. Prints what was looked at; the first thing that is not as it must be ends it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from portal.quickstart.embedded.postgresql import PostgreSQL
from tests.store.checker import Torment

STEPS = 12
ROOT = Path(__file__).resolve().parents[1]


async def torment(url: str, minutes: float) -> None:
    """Rounds on databases of their own until the time is over."""
    template = "faults_template"
    base, _, query = url.partition("?")
    parts = base.rpartition("/")

    def named(name: str) -> str:
        return f"{parts[0]}/{name}" + (f"?{query}" if query else "")

    def run(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)

    run(f"CREATE DATABASE {template}")
    await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "manage.py", "migrate", "-v0"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": named(template)},
        check=True,
    )
    end = time.monotonic() + minutes * 60
    seed = 0
    while not seed or time.monotonic() < end:
        name = f"faults_{seed}"
        run(f"CREATE DATABASE {name} TEMPLATE {template}")
        round_ = Torment(url, name, seed)
        try:
            await round_.run(STEPS)
            found = round_.check()
        finally:
            round_.drop()
            run(f"DROP DATABASE {name} WITH (FORCE)")
        print(
            f"seed {seed:<4} {found:>6} acknowledged writes accounted for, {len(round_.restores)} restores", flush=True
        )
        seed += 1


def main() -> None:
    """Start a PostgreSQL and torment it."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    folder = Path(tempfile.mkdtemp(prefix="tenantry-faults-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    try:
        asyncio.run(torment(server.owner_url, minutes))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
