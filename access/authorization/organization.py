"""The top-level organisation: whoever is to enter a workspace is a member of the tenant above it (KC1)."""

from __future__ import annotations

from access.authorization.base import CLOSED, NOTHING, Holdings, abstain, deny
from kube.identity import Principal
from kube.logicalclusters import Terrain, is_workspace, tenant_of
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision


class TopLevelOrganization:
    """Denies strangers in workspaces, whatever is granted to their names below. Operators go by the system's RBAC."""

    name = "top-level-organization"

    def concerns(self, *, operator: bool, terrain: Terrain) -> bool:  # noqa: ARG002
        """Only in workspaces."""
        return terrain is Terrain.WORKSPACE

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY for whoever is not of the organisation, otherwise no opinion."""
        if not is_workspace(request.cluster):
            return abstain(self.name, "not in a workspace")
        if not _belongs(principal, request.cluster):
            return deny(self.name, "the user is not a member of the organisation")
        return abstain(self.name, "the user is a member of the organisation")

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing, and for strangers the end of it."""
        return NOTHING if not is_workspace(cluster) or _belongs(principal, cluster) else CLOSED


def _belongs(principal: Principal, cluster: str) -> bool:
    return principal.is_system or (principal.tenant is not None and principal.tenant == tenant_of(cluster))
