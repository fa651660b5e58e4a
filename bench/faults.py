"""``make faults [ARGS="--faults 2000"]``: a campaign of kills, freezes, restores of older copies and clock jumps.

The checker of the tests, for as many faults as are wanted: at the end of each round every acknowledged write and every
watch event is accounted for, and no read, under a lease or not, was older than what was known before it. A round is told
by its seed and written into a journal when it is over; what is there already is not played again, so a campaign that was
stopped goes on where it was. Ends with 1 where anything was not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from portal.quickstart.embedded.postgresql import PostgreSQL
from tests.store.checker import Torment

STEPS = 12
TEMPLATE = "faults_template"
ROOT = Path(__file__).resolve().parents[1]

Round = dict[str, Any]
"""``seed``, ``faults`` by kind, ``writes`` that were accounted for, ``leased`` reads that were judged, and ``found``: what was
wrong, or empty."""


class Campaign:
    """Rounds on databases of their own, on one PostgreSQL."""

    def __init__(self, url: str, journal: Path) -> None:
        self._url, self._journal = url, journal
        lines = journal.read_text().splitlines() if journal.exists() else []
        self.rounds: list[Round] = [json.loads(line) for line in lines]

    @property
    def faults(self) -> Counter[str]:
        """All that has been done, by kind."""
        return sum((Counter(round_["faults"]) for round_ in self.rounds), Counter())

    def prepare(self) -> None:
        """Make the database of which every round has a copy."""
        self._do("CREATE DATABASE {}", TEMPLATE)
        environment = {**os.environ, "DATABASE_URL": _with_name(self._url, TEMPLATE)}
        command = [sys.executable, "manage.py", "migrate", "-v0"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)

    async def play(self, seed: int) -> Round:
        """One round, which is then in the journal."""
        name = f"faults_{seed}"
        self._do("CREATE DATABASE {} TEMPLATE {}", name, TEMPLATE)
        torment, writes, found = Torment(self._url, name, seed), 0, ""
        try:
            await torment.run(STEPS)
            writes = torment.check()
        except AssertionError as error:
            found = str(error).partition("\n")[0] or "a promise does not hold"
        finally:
            torment.drop()
            self._do("DROP DATABASE {} WITH (FORCE)", name)
        played: Round = {
            "seed": seed,
            "faults": dict(torment.faults),
            "writes": writes,
            "leased": torment.leased,
            "found": found,
        }
        self.rounds.append(played)
        with self._journal.open("a") as file:
            file.write(json.dumps(played) + "\n")
        return played

    def _do(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _with_name(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


async def campaign(url: str, journal: Path, *, seed: int, faults: int) -> bool:
    """Play from ``seed`` on until there are as many faults; says whether all promises have held."""
    played = Campaign(url, journal)
    await asyncio.to_thread(played.prepare)
    known = {round_["seed"] for round_ in played.rounds}
    while played.faults.total() < faults:
        if seed not in known:
            last = await played.play(seed)
            words = last["found"] or f"{last['writes']} acknowledged writes accounted for"
            print(f"seed {seed}: {sum(last['faults'].values())} faults, {words}", flush=True)
        seed += 1
    wrong = [round_ for round_ in played.rounds if round_["found"]]
    print(f"\n{'faults':<24}{played.faults.total():>8}")
    for kind, times in sorted(played.faults.items()):
        print(f"  {kind:<22}{times:>8}")
    print(f"{'acknowledged writes':<24}{sum(round_['writes'] for round_ in played.rounds):>8}")
    print(f"{'reads under a lease':<24}{sum(round_.get('leased', 0) for round_ in played.rounds):>8}")
    print(f"{'rounds with a finding':<24}{len(wrong):>8}")
    for round_ in wrong:
        print(f"  seed {round_['seed']}: {round_['found']}")
    return not wrong


def main() -> None:
    """Start a PostgreSQL and torment what stands on it."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=50, help="how many, those in the journal included (50)")
    parser.add_argument("--seed", type=int, default=0, help="of the first round (0)")
    parser.add_argument("--journal", type=Path, help="where rounds are kept, to go on later")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tenantry-faults-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    try:
        journal = asked.journal or folder / "journal.jsonl"
        held = asyncio.run(campaign(server.owner_url, journal, seed=asked.seed, faults=asked.faults))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
