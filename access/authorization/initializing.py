"""Workspaces that are not ready: closed to all but those who administer them by their parent (KC4)."""

from __future__ import annotations

from access.authorization.base import CLOSED, NOTHING, Holdings, abstain, deny
from access.workspaces import Workspaces
from kube.identity import Principal
from kube.logicalclusters import Terrain, is_workspace
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from kube.workspaces import Phase


class InitializingWorkspaces:
    """Denies everybody in workspaces that are scheduled, end, or are not there.

    Those that initialize are open to holders of ``admin`` on ``workspaces/content`` in the parent, never to service
    accounts.
    """

    name = "initializing-workspaces"

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def concerns(self, *, operator: bool, terrain: Terrain) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return terrain is Terrain.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY before the workspace is ready, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return abstain(self.name, "not in a workspace")
        refusal = await self._refusal(principal, request.cluster)
        return deny(self.name, refusal) if refusal else abstain(self.name, "the workspace is open to the user")

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing, and before the workspace is ready the end of it."""
        return CLOSED if is_workspace(cluster) and await self._refusal(principal, cluster) else NOTHING

    async def _refusal(self, principal: Principal, cluster: str) -> str:
        state = await self._workspaces.state(cluster)
        if state is None:
            return "there is no such workspace"
        if state.is_ready:
            return ""
        if state.phase == Phase.INITIALIZING and principal.cluster is None:
            if await self._workspaces.administers(principal, cluster):
                return ""
            return 'the workspace is initializing and the user has no verb "admin" on it in its parent'
        return f"the workspace is not ready: {state.phase}"
