"""``AlwaysAllow`` and ``AlwaysDeny``, the modes of kube-apiserver that look at nothing."""

from __future__ import annotations

from typing import Final

from access.authorization.base import EVERYTHING, NO_RULES, RuleSet, allow, no_opinion
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import RequestInfo

ALLOW: Final = "AlwaysAllow"
DENY: Final = "AlwaysDeny"

_ALLOWED: Final = allow(ALLOW, "everything is allowed to whom the gates before have let through")
_SILENT: Final = no_opinion(DENY, "everything is forbidden")


class AlwaysAllow:
    """Allows whatever the modes before it have not denied: for tests, and for servers that nobody shares.

    The gates before the modes stand: nobody enters another tenant's space, a suspended one, or a closed workspace.
    """

    name = ALLOW

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW, whoever asks for whatever it is."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:  # noqa: ARG002
        """The same, without waiting."""
        return _ALLOWED

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Every verb on everything."""
        return RuleSet(EVERYTHING)


class AlwaysDeny:
    """Allows nothing, and leaves to the modes after it what they allow: kube-apiserver's denial is no opinion either."""

    name = DENY

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """No opinion, whoever asks for whatever it is."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:  # noqa: ARG002
        """The same, without waiting."""
        return _SILENT

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """No rules: it gives nothing."""
        return NO_RULES
