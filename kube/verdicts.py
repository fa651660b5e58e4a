"""What an authorizer says: a value with its reason, never an exception and never a bare boolean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The three answers of Kubernetes' authorizer interface."""

    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


@dataclass(frozen=True, slots=True)
class Decision:
    """One authorizer's answer.

    ``step`` names the authorizer, ``rule`` the object and the rule in it that decided (shown to those who may
    see it), ``reason`` is one sentence for the caller. Requirement AZ11.
    """

    verdict: Verdict
    step: str
    reason: str = ""
    rule: str = ""

    @property
    def allowed(self) -> bool:
        """Whether this is an ALLOW. No opinion is not."""
        return self.verdict is Verdict.ALLOW


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with every step that led to it, in order (AZ11)."""

    decision: Decision
    trace: tuple[Decision, ...]
