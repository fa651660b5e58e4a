"""The wall between tenants (AZ1, TS13): before every rule, and no rule opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from access.authorization.base import abstain, allow, deny
from kube.identity import MASTERS, Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision

ALWAYS_ALLOWED: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Probes must work for whoever cannot sign in."""

BOOTSTRAP_CLUSTER: Final = "system:admin"


class TenantIsolation:
    """A user of the system tenant may come anywhere, any other only into its own space.

    ``system_only`` says of (group, resource) whether it belongs to the operators alone, such as nodes and tenants:
    then no tenant's user sees it, not even in its own space.
    """

    name = "tenant-isolation"

    def __init__(self, system_only: Callable[[str, str], bool]) -> None:
        self._system_only = system_only

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY at the wall, otherwise no opinion; probes are allowed to all."""
        if not request.is_resource and request.path in ALWAYS_ALLOWED:
            return allow(self.name, "probes are open to all")
        if principal.is_system:
            return abstain(self.name, "users of the system tenant may reach any space")
        # A missing tenant equals nothing, not even another missing tenant.
        if principal.tenant is None or principal.tenant != request.tenant:
            return deny(self.name, "the request is for another tenant's space")
        if request.all_tenants:
            return deny(self.name, "reading across tenants is for the system tenant")
        if request.cluster == BOOTSTRAP_CLUSTER:
            return deny(self.name, "the bootstrap policy is closed to tenants")
        if request.is_resource and self._system_only(request.group, request.resource):
            return deny(self.name, f'"{request.resource}" belongs to the system tenant')
        return abstain(self.name, "the user is in its own tenant's space")


class SystemMasters:
    """Group ``system:masters`` of the system tenant: everything, everywhere. In a tenant the group is just a name."""

    name = "system-masters"

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:  # noqa: ARG002
        """ALLOW for the operators' own masters."""
        if principal.is_system and MASTERS in principal.groups:
            return allow(self.name, "group system:masters of the system tenant")
        return abstain(self.name)
