"""What an authorizer is."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision, Verdict


class Authorizer(Protocol):
    """One opinion on who may do what."""

    @property
    def name(self) -> str:
        """The step's name in decisions and traces (AZ11)."""
        ...

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW, DENY, or no opinion, with the reason. An exception counts as DENY."""
        ...


# Decisions are values, and the same few are made on every request.


@lru_cache(maxsize=1024)
def allow(step: str, reason: str = "", rule: str = "") -> Decision:
    """An ALLOW."""
    return Decision(Verdict.ALLOW, step, reason, rule)


@lru_cache(maxsize=1024)
def deny(step: str, reason: str, rule: str = "") -> Decision:
    """A DENY: no later authorizer is asked."""
    return Decision(Verdict.DENY, step, reason, rule)


@lru_cache(maxsize=1024)
def abstain(step: str, reason: str = "") -> Decision:
    """No opinion: the next authorizer is asked."""
    return Decision(Verdict.NO_OPINION, step, reason)
