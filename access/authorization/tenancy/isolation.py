"""The wall between tenants (AZ1, TS13): before every rule, and opened by cross-tenant grants alone (AZ6, AZ7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from access.authentication import clusterwebhooks
from access.authorization.base import DENY_ALL, EVERYTHING, NO_RULES, RuleSet, allow, deny, passes
from kube.authentication.identity import Principal, is_masters
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Rule
from kube.requests.logicalclusters import ClusterKind, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo

ALWAYS_ALLOWED: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Probes must work for whoever cannot sign in."""


def is_probe(request: RequestInfo) -> bool:
    """Whether it is asked for how this process is: open to all, whatever is closed and whatever it does not know."""
    return not request.is_resource and request.path in ALWAYS_ALLOWED


STEP: Final = "tenant-isolation"
MASTERS_STEP: Final = "system-masters"
# Made once: these are on the way of every request.
_OPERATOR: Final = passes(STEP, "users of the system tenant may reach any space")
_AT_HOME: Final = passes(STEP, "the user is in its own tenant's space")
_NO_MASTER: Final = passes(MASTERS_STEP, "not of the group system:masters of the system tenant")


class Grants(Protocol):
    """What cluster admins and tenants' admins have opened to users of other tenants."""

    async def find_grant(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The ALLOW of a grant that says exactly this, or ``None``."""
        ...

    async def rules(self, principal: Principal, cluster: str, namespace: str) -> tuple[Rule, ...]:
        """What grants give this principal of another tenant in a namespace."""
        ...


class TenantIsolation:
    """A user of the system tenant may come anywhere, any other only into its own space, or where a grant lets it in.

    ``system_only`` says of (group, resource) whether it belongs to the operators alone, such as nodes and tenants:
    then no tenant's user sees it, not even in its own space.
    """

    name = STEP

    def __init__(self, system_only: Callable[[str, str], bool], grants: Grants) -> None:
        self._system_only = system_only
        self._grants = grants

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY at the wall, otherwise no opinion; probes are allowed to all, and grants for exactly what they say."""
        decision = self.decide(principal, request)
        if decision is not None:
            return decision
        granted = await self._grants.find_grant(principal, request)
        if granted is not None:
            return granted
        if principal.is_system:
            return _OPERATOR
        return deny(self.name, "the request is for another tenant's space")

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The same without waiting, as far as no grant has to be looked for."""
        if not request.is_resource and is_probe(request):
            return allow(self.name, "probes are open to all")
        tenant = principal.tenant
        # A missing tenant equals nothing, not even another missing tenant.
        if tenant is None:
            if clusterwebhooks.is_its_own(principal, request):
                return allow(self.name, "a cluster asks its own webhooks")
            return deny(self.name, "the user belongs to no tenant")
        if request.all_tenants:
            if tenant == SYSTEM_TENANT:
                return _OPERATOR
            return deny(self.name, "reading across tenants is for the system tenant")
        if tenant != request.tenant:
            return None
        if tenant != SYSTEM_TENANT and request.is_resource and self._system_only(request.group, request.resource):
            return deny(self.name, f'"{request.resource}" belongs to the system tenant')
        return _AT_HOME

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What grants give in other tenants' spaces, and for tenants' users nothing after that."""
        if principal.tenant is None:
            return DENY_ALL
        if principal.tenant == tenant_of(cluster):
            return NO_RULES
        rules = await self._grants.rules(principal, cluster, namespace)
        return RuleSet(rules, final=not principal.is_system)


class SystemMasters:
    """Group ``system:masters`` of the system tenant: everything, everywhere. A tenant's ends at its space."""

    name = MASTERS_STEP

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Whether the caller is of the system tenant: nobody else is looked at."""
        return operator

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW for the operators' own masters."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:  # noqa: ARG002
        """The same, without waiting."""
        if is_masters(principal):
            return allow(self.name, "group system:masters of the system tenant")
        return _NO_MASTER

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """Everything, for the operators' own masters."""
        return RuleSet(EVERYTHING) if is_masters(principal) else NO_RULES
