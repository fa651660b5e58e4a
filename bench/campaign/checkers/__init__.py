"""What must be true in the end: pure functions of a history and of what is there, which return what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Kind = Literal["lost", "doubled", "orphaned", "out of order", "open", "not ended", "audit"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise that does not hold."""

    kind: Kind
    text: str


def counted(findings: list[Finding]) -> dict[str, int]:
    """How many of each kind."""
    return dict(Counter(finding.kind for finding in findings))
