"""Groups that a user must be a member of to enter a workspace (KC3)."""

from __future__ import annotations

from access.authorization.base import CLOSED, NOTHING, Holdings, abstain, deny
from access.workspaces import Workspaces
from kube.identity import Principal
from kube.logicalclusters import Terrain, is_workspace
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from kube.workspaces import is_member


class RequiredGroups:
    """Denies who fulfils no alternative of the annotation.

    Exempt are the workspace's own service accounts, and operators: a tenant cannot lock them out.
    """

    name = "required-groups"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def concerns(self, *, operator: bool, terrain: Terrain) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return terrain is Terrain.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY without the groups, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return abstain(self.name, "not in a workspace")
        if await self._is_refused(principal, request.cluster):
            return deny(self.name, "the user is not a member of the required groups")
        return abstain(self.name, "no group is missing")

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing, and without the groups the end of it."""
        return CLOSED if is_workspace(cluster) and await self._is_refused(principal, cluster) else NOTHING

    async def _is_refused(self, principal: Principal, cluster: str) -> bool:
        if principal.is_system or principal.cluster == cluster:
            return False
        state = await self._workspaces.state(cluster)
        if state is None or state.required is None:
            return True
        return bool(state.required) and not is_member(principal.groups, state.required)
