"""What is done to the product in a round: a function of its seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

PARTS = ("apiserver", "portal", "worker", "beat")
COPIES = 2
VICTIMS = tuple(f"{part}-{number}" for part in PARTS for number in range(COPIES))
"""The product's processes: two of everything."""

LINKS = (*(f"database of {victim}" for victim in VICTIMS), "apiserver", "portal")
"""What can be cut: each process' way to PostgreSQL, and people's ways to the product."""

ANSWERS = ("500", "409", "html", "truncated", "redirect", "drop-before", "drop-after", "delay")
"""How a cluster that is not well answers: ``tests.faultproxy`` has the meanings. One that says 404 of what is there is not
among them: nobody can tell that from the truth."""

_WEIGHTS = {
    "kill": 5,
    "freeze": 5,
    "end": 2,
    "jump": 2,
    "cut": 3,
    "stall": 3,
    "shut": 2,
    "cluster": 5,
    "sessions": 2,
    "backend": 2,
    "postgresql restart": 1,
    "postgresql crash": 1,
    "redis kill": 1,
    "redis freeze": 1,
    "redis flush": 1,
}
_OF_PARTS = frozenset({"kill", "freeze", "end", "jump"})
_OF_LINKS = frozenset({"cut", "stall", "shut"})
RESTORED_EVERY = 3
"""Of so many seeds one has a backup and a restore in its midst."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault: its kind, who it is done to, for how long, and how long nothing is done after it."""

    kind: str
    victim: str
    seconds: float
    pause: float


def plan(seed: int, faults: int) -> list[Step]:
    """The steps of a round. A backup comes after the first third, its restore after the second, in one seed of three."""
    chance = random.Random(seed)
    steps = [_step(chance) for _ in range(faults)]
    if seed % RESTORED_EVERY == 0:
        steps.insert(faults * 2 // 3, Step("restore", "", 0, 1.0))
        steps.insert(faults // 3, Step("backup", "", 0, 0.2))
    return steps


def _step(chance: random.Random) -> Step:
    (kind,) = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    if kind in _OF_PARTS:
        victim = chance.choice(VICTIMS)
    elif kind in _OF_LINKS:
        victim = chance.choice(LINKS)
    else:
        victim = chance.choice(ANSWERS) if kind == "cluster" else ""
    return Step(kind, victim, round(0.2 + chance.random() * 3, 2), round(0.1 + chance.random() * 0.6, 2))
