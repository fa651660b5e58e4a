"""Groups that a user must be a member of to enter a workspace (KC3)."""

from __future__ import annotations

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind, is_workspace
from kube.requests.requestinfo import RequestInfo
from kube.workspaces.types import is_member


class RequiredGroups:
    """Denies who fulfils no alternative of the annotation, or of that of a logical cluster above.

    Workspaces begin with the annotation of their parent. Whoever takes it off there takes off nothing: it is asked for
    above as well.

    Exempt are the workspace's own service accounts, and operators: a tenant cannot lock them out.
    """

    name = "required-groups"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return cluster_kind is ClusterKind.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY without the groups, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return passes(self.name, "not in a workspace")
        if await self._is_refused(principal, request.cluster):
            return deny(self.name, "the user is not a member of the required groups")
        return passes(self.name, "no group is missing")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Nothing, and without the groups the end of it."""
        return DENY_ALL if is_workspace(cluster) and await self._is_refused(principal, cluster) else NO_RULES

    async def _is_refused(self, principal: Principal, cluster: str) -> bool:
        if principal.is_system or principal.cluster == cluster:
            return False
        for required in await self._workspaces.required(cluster):
            if required is None or (required and not is_member(principal.groups, required)):
                return True
        return False
