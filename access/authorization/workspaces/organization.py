"""The top-level organisation: whoever is to enter a workspace is a member of the tenant above it (KC1)."""

from __future__ import annotations

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind, is_workspace, tenant_of
from kube.requests.requestinfo import RequestInfo


class TopLevelOrganization:
    """Denies strangers in workspaces, whatever is granted to their names below. Operators go by the system's RBAC."""

    name = "top-level-organization"

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return cluster_kind is ClusterKind.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY for whoever is not of the organisation, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return passes(self.name, "not in a workspace")
        if not _belongs(principal, request.cluster):
            return deny(self.name, "the user is not a member of the organisation")
        return passes(self.name, "the user is a member of the organisation")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Nothing, and for strangers the end of it."""
        return NO_RULES if not is_workspace(cluster) or _belongs(principal, cluster) else DENY_ALL


def _belongs(principal: Principal, cluster: str) -> bool:
    return principal.is_system or (principal.tenant is not None and principal.tenant == tenant_of(cluster))
