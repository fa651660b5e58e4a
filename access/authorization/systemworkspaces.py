"""The logical clusters that begin with ``system:`` are closed to users (KC12)."""

from __future__ import annotations

from typing import Final

from access.authorization.base import CLOSED, NOTHING, Holdings, abstain, deny
from kube.identity import MASTERS, Principal
from kube.logicalclusters import Terrain
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision

STEP: Final = "system-workspaces"
_OTHER: Final = abstain(STEP, "not a system workspace")


class SystemWorkspaces:
    """Denies everybody but the operators' own masters, who keep the bootstrap policy; no rule opens these clusters."""

    name = STEP

    def concerns(self, *, operator: bool, terrain: Terrain) -> bool:  # noqa: ARG002
        """Only where the operators' logical clusters are."""
        return terrain is Terrain.SYSTEM

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY in a ``system:`` cluster, otherwise no opinion."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:
        """The same, without waiting."""
        if _is_closed(principal, request.cluster):
            return deny(self.name, "system workspaces are closed to users")
        return _OTHER

    async def holdings(self, principal: Principal, cluster: str, namespace: str) -> Holdings:  # noqa: ARG002
        """Nothing."""
        return CLOSED if _is_closed(principal, cluster) else NOTHING


def _is_closed(principal: Principal, cluster: str) -> bool:
    return cluster.startswith("system:") and not (principal.is_system and MASTERS in principal.groups)
