"""Rounds on the store alone: kills, freezes, restores of older copies and clock jumps, and a checker of every read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg import sql

from bench.campaign.journal import Round
from tests.store.checker import Torment

TEMPLATE = "faults_template"
ROOT = Path(__file__).resolve().parents[2]


class StoreRounds:
    """Each on a database of its own, on one PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ready = False

    async def play(self, seed: int, steps: int) -> Round:
        """One round."""
        if not self._ready:
            await asyncio.to_thread(self._prepare)
            self._ready = True
        name = f"faults_{seed}"
        self._do("CREATE DATABASE {} TEMPLATE {}", name, TEMPLATE)
        torment, writes = Torment(self._url, name, seed), 0
        found: list[tuple[str, str]] = []
        try:
            await torment.run(steps)
            writes = torment.check()
        except AssertionError as error:
            found.append(("lost", str(error).partition("\n")[0] or "a promise does not hold"))
        finally:
            torment.drop()
            self._do("DROP DATABASE {} WITH (FORCE)", name)
        judged = {"acknowledged writes": writes, "reads under a lease": torment.leased}
        return Round("store", seed, dict(torment.faults), judged, found)

    def _prepare(self) -> None:
        """Make the database of which every round has a copy."""
        self._do("CREATE DATABASE {}", TEMPLATE)
        base, _, query = self._url.partition("?")
        url = f"{base.rpartition('/')[0]}/{TEMPLATE}" + (f"?{query}" if query else "")
        command = [sys.executable, "manage.py", "migrate", "-v0"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, check=True)

    def _do(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
