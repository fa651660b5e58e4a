"""What the server alone writes, and where nothing of a kind can be: no right opens it (AD1, KC4, KC5, KC13)."""

from __future__ import annotations

from typing import Final

from access.authorization.base import NO_RULES, RuleSet, deny, passes
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import Principal, is_masters
from kube.authorization.decisions import Decision
from kube.quota.tenantquotas import TENANT_QUOTAS
from kube.requests.logicalclusters import ClusterKind, cluster_kind_of
from kube.requests.requestinfo import RequestInfo
from kube.workspaces.apiexports import BINDINGS, EXPORTS
from kube.workspaces.types import LOGICAL_CLUSTERS, TYPES, WORKSPACES

STEP: Final = "server-owned"
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_GROUPS: Final = frozenset({WORKSPACES[0], LOGICAL_CLUSTERS[0], EXPORTS[0], TENANT_QUOTAS[0]})
_STATUS: Final = frozenset({WORKSPACES, TYPES, EXPORTS, BINDINGS})
_NOT_OURS: Final = passes(STEP, "not what the server alone writes")


class ServerOwned:
    """Denies the writing of what controllers of the server write, before any right is looked at.

    So a review says what the request would be answered with: admission refuses the same, to the operators' masters and
    to writes that come by the view of an export as well. The status of a logical cluster is for those who administer it from above.
    """

    name = STEP

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY what the server alone writes, otherwise no opinion."""
        decision = self.decide(principal, request)
        if decision is not None:
            return decision
        below = cluster_kind_of(request.cluster) is not ClusterKind.SYSTEM
        if below and await self._workspaces.administers(principal, request.cluster):
            return _NOT_OURS
        return deny(self.name, "the status of a logical cluster is for those who administer the workspace from above")

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The same without waiting, except about the status of logical clusters."""
        if request.group not in _GROUPS or request.verb not in _WRITES or is_masters(principal):
            return _NOT_OURS
        kind = (request.group, request.resource)
        if kind == TENANT_QUOTAS and not (principal.is_system and request.verb in ("update", "patch")):
            return deny(self.name, "a tenant's quota is changed by operators, and made and removed with the tenant")
        if request.subresource == "status":
            if kind == LOGICAL_CLUSTERS:
                return None
            return (
                deny(self.name, f"the status of {request.resource} is the server's") if kind in _STATUS else _NOT_OURS
            )
        if kind == LOGICAL_CLUSTERS and request.verb not in ("update", "patch"):
            return deny(self.name, "a logical cluster begins and ends with its Workspace or Tenant object")
        if (
            cluster_kind_of(request.cluster) is ClusterKind.SYSTEM
            and kind in (WORKSPACES, BINDINGS)
            and request.verb == "create"
        ):
            return deny(self.name, f"no {request.resource} can be in the system space")
        return _NOT_OURS

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """No rules: this step only refuses."""
        return NO_RULES
