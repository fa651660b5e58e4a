"""``make faults [ARGS="--faults 2000"]``: hurt the product and the store at random, and account for everything.

Rounds are told by their seeds and written into a journal when they are over; what is there already is not played again, so
that a campaign that was stopped goes on where it was. Ends with 1 where a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.campaign import report
from bench.campaign.journal import Journal, Round
from bench.campaign.productrounds import ProductRounds
from bench.campaign.storerounds import StoreRounds
from portal.quickstart.embedded.postgresql import PostgreSQL

STEPS = {"product": 60, "store": 12}
"""Faults of a round."""

Play = Callable[[int, int], Awaitable[Round]]


async def campaign(play: Play, of: str, journal: Journal, *, seed: int, faults: int, steps: int, ends: float) -> None:
    """Play from ``seed`` on until the journal has as many faults, or until ``ends``."""
    while journal.faults().total() < faults and time.monotonic() < ends:
        if not journal.has(of, seed):
            played = await play(seed, steps)
            journal.add(played)
            words = "; ".join(text for _, text in played.found) or "everything accounted for"
            print(f"{of} {seed}: {sum(played.faults.values())} faults, {words}", flush=True)
        seed += 1


async def _product(journal: Journal, asked: argparse.Namespace) -> None:
    rounds = ProductRounds(asked.house)
    try:
        await campaign(rounds.play, "product", journal, **_bounds(asked))
    finally:
        await rounds.end()


def _store(journal: Journal, asked: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tenantry-faults-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    try:
        asyncio.run(campaign(StoreRounds(server.owner_url).play, "store", journal, **_bounds(asked)))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _bounds(asked: argparse.Namespace) -> dict[str, float]:
    return {
        "seed": asked.seed,
        "faults": asked.faults,
        "steps": asked.steps or STEPS[asked.of],
        "ends": time.monotonic() + asked.minutes * 60,
    }


def main() -> None:
    """Play, and tell."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--of", choices=sorted(STEPS), default="product", help="what is hurt (product)")
    parser.add_argument("--faults", type=int, default=60, help="how many, those in the journal included (60)")
    parser.add_argument("--steps", type=int, help="faults of a round")
    parser.add_argument("--seed", type=int, default=0, help="of the first round (0)")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no round after so many minutes")
    parser.add_argument("--journal", type=Path, help="where rounds are kept, to go on later")
    parser.add_argument("--house", type=Path, help="a folder that keeps the installation for the next campaign")
    asked = parser.parse_args()
    journal = Journal(asked.journal)
    if asked.of == "product":
        asyncio.run(_product(journal, asked))
    else:
        _store(journal, asked)
    print("\n".join(report.lines(journal)))
    sys.exit(1 if journal.findings() else 0)


if __name__ == "__main__":
    main()
