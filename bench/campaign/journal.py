"""What was played, one round a line: a campaign that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is over: faults by kind, how much was judged, and what was wrong, each with its kind."""

    of: str
    """``store`` or ``product``."""
    seed: int
    faults: dict[str, int]
    judged: dict[str, int]
    found: list[tuple[str, str]] = field(default_factory=list)
    silence: float = 0
    """The longest time without an acknowledged write, in seconds."""
    settled: float = 0
    """Seconds from the last fault until everything was as it should be."""
    closed: dict[str, float] = field(default_factory=dict)
    """The longest time without an acknowledged write by the kind of fault, in seconds; behind a restore, until it was opened."""
    opened: float = 0
    """The longest time for which a credential opened something after the answer that had ended it, in seconds."""


class Journal:
    """Rounds in a file, or only in memory."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.rounds = [Round(**json.loads(line)) for line in lines]

    def add(self, played: Round) -> None:
        """Keep a round; it is in the file when this returns."""
        self.rounds.append(played)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(played)) + "\n")

    def has(self, of: str, seed: int) -> bool:
        """Whether this round was played."""
        return any(each.of == of and each.seed == seed for each in self.rounds)

    def faults(self) -> Counter[str]:
        """All that was done, by kind."""
        return sum((Counter(each.faults) for each in self.rounds), Counter())

    def judged(self) -> Counter[str]:
        """All that was judged, by kind."""
        return sum((Counter(each.judged) for each in self.rounds), Counter())

    def closed(self) -> dict[str, float]:
        """The longest time without an acknowledged write, by kind of fault, the longest first."""
        kinds = {kind for each in self.rounds for kind in each.closed}
        longest = {kind: max(each.closed.get(kind, 0.0) for each in self.rounds) for kind in kinds}
        return dict(sorted(longest.items(), key=lambda each: (-each[1], each[0])))

    def findings(self) -> list[tuple[Round, str, str]]:
        """What was wrong: the round, the kind, the words."""
        return [(each, kind, text) for each in self.rounds for kind, text in each.found]
