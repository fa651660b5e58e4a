"""What an authorizer says: a value with its reason, never an exception and never a bare boolean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(Enum):
    """The three answers of Kubernetes' authorizer interface."""

    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


_ALLOW: Final = Verdict.ALLOW
"""An attribute of an Enum costs as much as a whole step of a decision."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One authorizer's answer.

    ``step`` names the authorizer, ``rule`` the object and the rule in it that decided (shown to those who may
    see it), ``reason`` is for the caller; with ``aside`` it says why a step has nothing against the request, which is for
    a trace and for no refusal. ``trace`` holds the answers of every step that led to it, in order, where somebody wants
    to know. Requirement AZ11.
    """

    verdict: Verdict
    step: str
    reason: str = ""
    rule: str = ""
    aside: bool = False
    trace: tuple[Decision, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether this is an ALLOW. No opinion is not."""
        return self.verdict is _ALLOW
