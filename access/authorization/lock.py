"""Locked doors: a suspended tenant or namespace is closed, whatever its RBAC says (GW5)."""

from __future__ import annotations

from typing import Protocol

from access.authorization.base import abstain, deny
from kube.identity import SERVICE_ACCOUNT_PREFIX, Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision


class Locks(Protocol):
    """Which doors are locked, from memory."""

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why this namespace of this logical cluster is closed, or ``None``. An empty namespace asks for the whole."""
        ...


class LockAuthorizer:
    """Denies what is behind a lock. Locks bind tenants' users, never the system tenant, who must be able to open."""

    name = "lock"

    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY behind a lock, otherwise no opinion."""
        if principal.is_system:
            return abstain(self.name, "locks do not bind the system tenant")
        reason = self._locks.reason(request.cluster, request.namespace)
        if reason is None and principal.cluster is not None and principal.name.startswith(SERVICE_ACCOUNT_PREFIX):
            # An account of a locked namespace is locked in: its bindings elsewhere do not help it out.
            home = principal.name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0]
            reason = self._locks.reason(principal.cluster, home)
        if reason is None:
            return abstain(self.name)
        return deny(self.name, f"locked: {reason}" if reason else "locked")
