"""The logical clusters that begin with ``system:`` are closed to users (KC12)."""

from __future__ import annotations

from typing import Final

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from kube.authentication.identity import Principal, is_masters
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind
from kube.requests.requestinfo import RequestInfo

STEP: Final = "system-workspaces"
_OTHER: Final = passes(STEP, "not a system workspace")


class SystemWorkspaces:
    """Denies everybody but the operators' own masters, who keep the bootstrap policy; no rule opens these clusters."""

    name = STEP

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only where the operators' logical clusters are."""
        return cluster_kind is ClusterKind.SYSTEM

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY in a ``system:`` cluster, otherwise no opinion."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:
        """The same, without waiting."""
        if _is_closed(principal, request.cluster):
            return deny(self.name, "system workspaces are closed to users")
        return _OTHER

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """No rules: this step only refuses."""
        return DENY_ALL if _is_closed(principal, cluster) else NO_RULES


def _is_closed(principal: Principal, cluster: str) -> bool:
    return cluster.startswith("system:") and not is_masters(principal)
