"""Who may be in a workspace at all: verb ``access`` on ``/`` inside it (KC2, KC9)."""

from __future__ import annotations

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import ADMIN_GROUPS, Principal
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind, is_workspace
from kube.requests.requestinfo import RequestInfo
from kube.workspaces.types import with_groups


class WorkspaceContent:
    """Lets in who has access, and makes it a member of the virtual groups that later steps and bindings can use."""

    name = "workspace-content"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return cluster_kind is ClusterKind.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY without access, or where there is no workspace; otherwise no opinion."""
        if not is_workspace(request.cluster):
            return passes(self.name, "not in a workspace")
        groups = await self._workspaces.groups(principal, request.cluster)
        if not groups:
            return deny(self.name, 'the user has no verb "access" on "/" in the workspace')
        return passes(self.name, f"the user has {'admin ' if ADMIN_GROUPS[0] in groups else ''}access")

    async def map_principal(self, principal: Principal, cluster: str) -> Principal:
        """The principal as later steps see it."""
        if not is_workspace(cluster):
            return principal
        return with_groups(principal, await self._workspaces.groups(principal, cluster))

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Nothing, and without access the end of it."""
        if not is_workspace(cluster) or await self._workspaces.groups(principal, cluster):
            return NO_RULES
        return DENY_ALL
