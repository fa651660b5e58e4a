"""Who may be in a workspace at all: verb ``access`` on ``/`` inside it (KC2, KC9)."""

from __future__ import annotations

from access.authorization.base import CLOSED, NOTHING, Holdings, abstain, deny
from access.workspaces import Workspaces
from kube.identity import Principal
from kube.logicalclusters import Terrain, is_workspace
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from kube.workspaces import ADMIN_GROUPS, with_groups


class WorkspaceContent:
    """Lets in who has access, and makes it a member of the virtual groups that later steps and bindings can use."""

    name = "workspace-content"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def concerns(self, *, operator: bool, terrain: Terrain) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return terrain is Terrain.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY without access, or where there is no workspace; otherwise no opinion."""
        if not is_workspace(request.cluster):
            return abstain(self.name, "not in a workspace")
        groups = await self._workspaces.groups(principal, request.cluster)
        if not groups:
            return deny(self.name, 'the user has no verb "access" on "/" in the workspace')
        return abstain(self.name, f"the user has {'admin ' if ADMIN_GROUPS[0] in groups else ''}access")

    async def joined(self, principal: Principal, cluster: str) -> Principal:
        """The principal as later steps see it."""
        if not is_workspace(cluster):
            return principal
        return with_groups(principal, await self._workspaces.groups(principal, cluster))

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing, and without access the end of it."""
        if not is_workspace(cluster) or await self._workspaces.groups(principal, cluster):
            return NOTHING
        return CLOSED
