"""Kills, freezes, restores of older copies and clock jumps in any order, and what must be true afterwards.

The orchestrator knows when it took which copy and put it back; the witnesses (``tests.store.witness``) tell of every
acknowledged write, every read and every event. What may be missing in the end is what was written after a copy was taken
and before it had been put back; everything else must be there, once, nobody may have changed what he has not seen, and
no read may be older than what was acknowledged, or read by anybody, before it began.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

FROZEN_SECONDS = 3.0
"""Longer than a silence that needs no proof."""

NOTICED_SECONDS = 2.0
"""How long after a restore somebody may still read what was there before."""

ABSENT = 0
"""The revision that is read of what is not there."""


Log = list[tuple[int, str, str, bytes, bytes]]
"""Revision, type, name, data and previous data of each change, in order."""


@dataclass
class Witnessed:
    """A process, and what it has told."""

    process: asyncio.subprocess.Process
    output: Path
    told: list[list[Any]] = field(default_factory=list)

    def read(self) -> None:
        lines = self.output.read_text().split("\n")
        # Whoever was killed may have left half a line.
        self.told = [json.loads(line) for line in lines[:-1]]


class Torment:
    """A database and the processes on it, to be hurt step by step."""

    def __init__(self, maintenance: str, database: str, seed: int) -> None:
        self._maintenance, self._database = maintenance, database
        self.conninfo = make_conninfo(maintenance, dbname=database)
        self.chance = random.Random(seed)
        self.witnesses: list[Witnessed] = []
        self.dead: list[Witnessed] = []
        self.restores: list[tuple[float, float]] = []
        self.leased = 0
        """How many of the reads that were looked at were answered by a lease."""
        self.faults: Counter[str] = Counter()
        """What has been done to it, by kind; a copy hurts nobody and is no fault."""
        self._copies: list[tuple[str, float]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="witnesses-")
        self._thawing: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """One more process."""
        name = f"p{len(self.witnesses) + len(self.dead)}"
        output = Path(self._folder.name) / name
        with output.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.store.witness", self.conninfo, name),
                stdout=file,
                stderr=asyncio.subprocess.DEVNULL,
            )
        self.witnesses.append(Witnessed(process, output))
        async with asyncio.timeout(300):
            while b"ready" not in output.read_bytes():
                if process.returncode is not None:  # It was started while there was no database.
                    self.witnesses.pop()
                    return
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        victim = self.witnesses.pop(self.chance.randrange(len(self.witnesses)))
        victim.process.kill()
        await victim.process.wait()
        self.dead.append(victim)
        await self.start()

    async def freeze(self) -> None:
        """Stop a process at any instant; what follows meets it asleep."""
        victim = self.chance.choice(self.witnesses)
        os.kill(victim.process.pid, signal.SIGSTOP)

        async def thaw() -> None:
            await asyncio.sleep(FROZEN_SECONDS)
            if victim.process.returncode is None:
                os.kill(victim.process.pid, signal.SIGCONT)

        self._thawing.append(asyncio.create_task(thaw()))

    async def jump(self) -> None:
        os.kill(self.chance.choice(self.witnesses).process.pid, signal.SIGUSR1)

    async def copy(self) -> None:
        """Take a copy, as a nightly dump would be."""
        name = f"{self._database}_copy{len(self._copies)}"
        begun = time.monotonic()
        await asyncio.to_thread(self._replace, name, self._database, keep=True)
        self._copies.append((name, begun))

    async def restore(self) -> None:
        """Put a copy in the place of what is there."""
        if not self._copies:
            await self.copy()
            await asyncio.sleep(0.5)
        name, begun = self.chance.choice(self._copies)
        await asyncio.to_thread(self._replace, self._database, name, keep=False)
        self.restores.append((begun, time.monotonic()))

    def _replace(self, target: str, source: str, *, keep: bool) -> None:
        with psycopg.connect(self._maintenance, autocommit=True) as connection:

            def do(statement: str, *names: str) -> None:
                connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

            do("ALTER DATABASE {} ALLOW_CONNECTIONS false", self._database)
            if not keep:
                do("DROP DATABASE {} WITH (FORCE)", target)
            patience = time.monotonic() + 300
            while True:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [self._database]
                )
                try:
                    do("CREATE DATABASE {} TEMPLATE {}", target, source)
                    break
                except psycopg.errors.ObjectInUse:
                    # Who was let in before the door was shut shows among the sessions only once it has begun.
                    if time.monotonic() > patience:
                        raise
            do("ALTER DATABASE {} ALLOW_CONNECTIONS true", self._database)

    async def end(self) -> None:
        """Let everybody wake up, finish and tell."""
        await asyncio.gather(*self._thawing)
        for witness in self.witnesses:
            witness.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(300):
            for witness in self.witnesses:
                await witness.process.wait()
        for witness in (*self.witnesses, *self.dead):
            witness.read()
        self._folder.cleanup()

    def drop(self) -> None:
        """Clear the copies away, and whoever still runs."""
        for witness in self.witnesses:
            if witness.process.returncode is None:
                witness.process.kill()
        with psycopg.connect(self._maintenance, autocommit=True) as connection:
            for name, _ in self._copies:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    async def run(self, steps: int, *, restores: bool = True) -> None:
        """That many steps, in an order of chance, among which every kind is."""
        kinds = [self.kill, self.freeze, self.jump, self.freeze]
        if restores:
            kinds[2:2] = [self.restore, self.copy]
        plan = [kinds[number % len(kinds)] for number in range(steps)]
        self.chance.shuffle(plan)
        for _ in range(3):
            await self.start()
        for step in plan:
            await asyncio.sleep(0.3 + self.chance.random())
            await step()
            if step != self.copy:
                self.faults[step.__name__] += 1
        await asyncio.sleep(1)
        await self.end()

    def check(self) -> int:
        """Assert what must be true; returns how many acknowledged writes were looked at."""
        with psycopg.connect(self.conninfo) as connection:
            log = connection.execute(
                "SELECT revision, type, name, data, previous FROM store_event ORDER BY revision"
            ).fetchall()
            rows = connection.execute("SELECT name, revision, data FROM store_object").fetchall()

        # The log makes sense: nobody changed what he has not seen, nobody made what was there.
        state: dict[str, tuple[int, str]] = {}
        kept: dict[str, int] = {}
        for revision, type_, name, data, previous in log:
            body = orjson.loads(data)
            before = state.get(name, (0, ""))
            assert (type_ == "ADDED") == (name not in state), (revision, type_, name)
            assert body["base"] == before[1], f"{revision} changed {before}, but had seen {body['base']!r}"
            assert (orjson.loads(previous)["id"] if previous else "") == before[1]
            assert body["metadata"]["resourceVersion"] == str(revision)
            assert body["id"] not in kept, "a write is there twice"
            kept[body["id"]] = revision
            state[name] = (revision, body["id"])
            if type_ == "DELETED":
                del state[name]
        assert {name: (revision, orjson.loads(data)["id"]) for name, revision, data in rows} == state

        acknowledged = 0
        everything = {revision: (type_, name, orjson.loads(data)["id"]) for revision, type_, name, data, _ in log}
        for witness in (*self.witnesses, *self.dead):
            acknowledged += self._check_answers(witness, kept, log)
            self._check_watches(witness, everything, alive=witness in self.witnesses)
        self._check_reads(log, kept)
        return acknowledged

    def _may_be_lost(self, begun: float, ended: float) -> bool:
        return any(ended > taken and begun < back for taken, back in self.restores)

    def _check_answers(self, witness: Witnessed, kept: dict[str, int], log: Log) -> int:
        acknowledged = 0
        for what, *rest in witness.told:
            if what == "write":
                begun, ended, name, identity, revision = rest
                acknowledged += 1
                if not self._may_be_lost(begun, ended):
                    assert kept.get(identity) == revision, f"{identity} of {name} was acknowledged as {revision}"
            elif what in ("refused", "away"):
                assert rest[-1] not in kept, f"{rest[-1]} was refused and is there"
            elif what == "holds":
                # Another may have written once more since.
                as_of, holds = rest
                assert {name: tuple(found) for name, found in holds.items()} == _state_as_of(log, as_of)
        return acknowledged

    def _check_reads(self, log: Log, kept: dict[str, int]) -> None:
        """Each object's reads and writes are in one order, which is that of the revisions and of time."""
        versions: dict[str, list[int]] = defaultdict(list)
        gone = set()
        for revision, type_, name, *_ in log:
            versions[name].append(revision)
            if type_ == "DELETED":
                gone.add(revision)
        told: dict[str, list[tuple[float, float, int, bool, bool]]] = defaultdict(list)
        for witness in (*self.witnesses, *self.dead):
            for what, *rest in witness.told:
                if what == "write" and not self._may_be_lost(*rest[:2]):
                    begun, ended, name, identity, _ = rest
                    told[name].append((ended, begun, kept[identity], True, False))
                elif what == "read" and not self._may_be_lost(rest[0] - NOTICED_SECONDS, rest[1]):
                    begun, ended, name, revision, leased = rest
                    told[name].append((ended, begun, revision, False, bool(leased)))
        for name, all_told in told.items():
            ends: list[float] = []
            known: list[int] = []
            for ended, begun, revision, written, leased in sorted(all_told):
                if written:
                    at_least = revision
                else:
                    self.leased += leased
                    before = bisect_left(ends, begun)
                    seen = known[before - 1] if before else 0
                    at_least = _first_moment(versions[name], gone, revision, seen)
                    assert at_least is not None, (
                        f"{name} was read as of {revision}{' by a lease' * leased} after {seen} was known"
                    )
                ends.append(ended)
                known.append(max(at_least, known[-1] if known else 0))

    def _check_watches(self, witness: Witnessed, log: dict[int, tuple[str, str, str]], *, alive: bool) -> None:
        positions: dict[int, int] = {}
        seen: dict[int, dict[int, tuple[str, str, str]]] = {}
        gone = set()
        for what, *rest in witness.told:
            if what == "open":
                segment, positions[segment] = rest
                seen[segment] = {}
            elif what == "event":
                segment, revision, *event = rest
                assert revision == positions[segment] + 1, "a watch left something out"
                positions[segment] = revision
                seen[segment][revision] = tuple(event)
            elif what == "seen":
                assert rest[1] >= positions[rest[0]]
            elif what == "gone":
                gone.add(rest[0])
        for segment in seen:
            if alive and segment not in gone:
                # It was never told to begin anew: all that it has seen is still true.
                assert seen[segment].items() <= log.items()


def _state_as_of(log: Log, as_of: int) -> dict[str, tuple[int, str]]:
    """The objects that were there at a revision, each with its own and with who wrote it."""
    newest = {name: (type_, revision, data) for revision, type_, name, data, _ in log if revision <= as_of}
    return {
        name: (revision, orjson.loads(data)["id"])
        for name, (type_, revision, data) in newest.items()
        if type_ != "DELETED"
    }


def _first_moment(versions: list[int], gone: set[int], read: int, known: int) -> int | None:
    """The first revision, not before ``known``, as of which an object with these versions is what was read."""
    moments = [0, *versions]
    for start, end in zip(moments, [*versions, float("inf")], strict=True):
        is_it = start == read if read != ABSENT else start == 0 or start in gone
        if is_it and end > known:
            return max(start, known)
    return None
