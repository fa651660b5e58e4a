"""Workspaces that are not ready: closed to all but those who administer them by their parent (KC4)."""

from __future__ import annotations

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind, is_workspace
from kube.requests.requestinfo import RequestInfo
from kube.workspaces.types import LOGICAL_CLUSTERS, Phase


class InitializingWorkspaces:
    """Denies everybody in workspaces that are scheduled, end, or are not there.

    Those that initialize are open to holders of ``admin`` on ``workspaces/content`` in the parent, never to service
    accounts. Of those that are inactive, the ``LogicalCluster`` that says so and OpenAPI are open to all who have access.
    """

    name = "initializing-workspaces"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return cluster_kind is ClusterKind.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY before the workspace is ready, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return passes(self.name, "not in a workspace")
        refusal = await self._refusal(principal, request.cluster, reaches_inactive=_reaches_inactive(request))
        return deny(self.name, refusal) if refusal else passes(self.name, "the workspace is open to the user")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Nothing, and before the workspace is ready the end of it."""
        return DENY_ALL if is_workspace(cluster) and await self._refusal(principal, cluster) else NO_RULES

    async def _refusal(self, principal: Principal, cluster: str, *, reaches_inactive: bool = False) -> str:
        state = await self._workspaces.state(cluster)
        if state is None:
            return "there is no such workspace"
        if state.is_ready:
            return ""
        if state.phase == Phase.INACTIVE:
            return "" if reaches_inactive else "the logical cluster is marked inactive"
        if state.phase == Phase.INITIALIZING and principal.cluster is None:
            if await self._workspaces.administers(principal, cluster):
                return ""
            return 'the workspace is initializing and the user has no verb "admin" on it in its parent'
        return f"the workspace is not ready: {state.phase}"


def _reaches_inactive(request: RequestInfo) -> bool:
    if not request.is_resource:
        return request.path == "/openapi" or request.path.startswith("/openapi/")
    return (request.group, request.resource) == LOGICAL_CLUSTERS
