"""What an authorizer is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import CLUSTER, Rule
from kube.requests.logicalclusters import ClusterKind
from kube.requests.requestinfo import RequestInfo


class Authorizer(Protocol):
    """One opinion on who may do what."""

    @property
    def name(self) -> str:
        """The step's name in decisions and traces (AZ11)."""
        ...

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW, DENY, or no opinion, with the reason. An exception counts as DENY."""
        ...


@runtime_checkable
class SyncAuthorizer(Protocol):
    """An authorizer that mostly need not wait: the chain asks it here first, which costs a quarter."""

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """What ``authorize`` would say, or ``None`` when only that can tell."""
        ...


@runtime_checkable
class ScopedAuthorizer(Protocol):
    """An authorizer that has nothing to say to some: where it does not concern them, the chain need not ask it."""

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:
        """Whether this can be anything but no opinion on operators, or on others, in such logical clusters."""
        ...


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What one authorizer gives a principal in a namespace; with ``final`` no later one is asked.

    ``error`` says what went wrong while the rules were gathered, which are right all the same.
    """

    rules: tuple[Rule, ...] = ()
    complete: bool = True
    final: bool = False
    error: str = ""


NO_RULES = RuleSet()
DENY_ALL = RuleSet(final=True)

EVERYTHING: Final = (
    Rule(("*",), ("*",), ("*",), scope=CLUSTER),
    Rule(("*",), urls=("*",), scope=CLUSTER),
)
"""Every verb on every resource and path, of every space."""


@runtime_checkable
class RuleResolver(Protocol):
    """An authorizer that can list what it allows, for SelfSubjectRulesReview (AZ10)."""

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What this step gives the principal in a namespace of a logical cluster."""
        ...


@runtime_checkable
class RuleFilter(Protocol):
    """An authorizer that gives nothing and takes away from what the steps after it give."""

    async def filter_rules(self, held: RuleSet, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What is left of ``held``, the rules that one later step gives; raises when that cannot be told, which gives nothing."""
        ...


@runtime_checkable
class PrincipalMapper(Protocol):
    """An authorizer that makes the principal a member of further groups, for the steps after it (KC2)."""

    async def map_principal(self, principal: Principal, cluster: str) -> Principal:
        """The principal as later steps see it in this logical cluster."""
        ...


# Decisions are values, and the same few are made on every request.


@lru_cache(maxsize=1024)
def allow(step: str, reason: str = "", rule: str = "") -> Decision:
    """ALLOW: no later authorizer is asked."""
    return Decision(Verdict.ALLOW, step, reason, rule)


@lru_cache(maxsize=1024)
def deny(step: str, reason: str, rule: str = "") -> Decision:
    """A DENY: no later authorizer is asked."""
    return Decision(Verdict.DENY, step, reason, rule)


@lru_cache(maxsize=1024)
def no_opinion(step: str, reason: str = "") -> Decision:
    """No opinion: the next authorizer is asked. Where none allows, the reason is one of the refusal's."""
    return Decision(Verdict.NO_OPINION, step, reason)


@lru_cache(maxsize=1024)
def passes(step: str, why: str) -> Decision:
    """No opinion, for the request is none of the step's business or meets what it asks: no reason to refuse."""
    return Decision(Verdict.NO_OPINION, step, why, aside=True)
