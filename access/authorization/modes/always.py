"""``AlwaysAllow`` and ``AlwaysDeny``, the modes of kube-apiserver that look at nothing."""

from __future__ import annotations

from typing import Final

from access.authorization.base import EVERYTHING, NO_RULES, RuleSet, allow, no_opinion
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import RequestInfo


class AlwaysAuthorizer:
    """Says the same of every request that the gates and the modes before it have let through.

    Nobody enters another tenant's space by it, a suspended one, or a closed workspace.
    """

    def __init__(self, decision: Decision, rules: RuleSet) -> None:
        """``rules`` are what the decision comes to in a SelfSubjectRulesReview."""
        self.name = decision.step
        self._decision = decision
        self._rules = rules

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """The decision, whoever asks for whatever it is."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:  # noqa: ARG002
        """The same, without waiting."""
        return self._decision

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """The rules, whoever asks."""
        return self._rules


ALLOW: Final = "AlwaysAllow"
DENY: Final = "AlwaysDeny"

ALWAYS: Final = (
    AlwaysAuthorizer(
        allow(ALLOW, "everything is allowed to whom the gates before have let through"), RuleSet(EVERYTHING)
    ),
    # Kubernetes' own has no opinion either: what a later mode allows is allowed.
    AlwaysAuthorizer(no_opinion(DENY, "Everything is forbidden."), NO_RULES),
)
"""The authorizers of both modes."""
