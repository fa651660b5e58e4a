"""Issues one kubeconfig for everything that a tenant has: its space, and a context for each workspace (D9, GW3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from django.views.decorators.debug import sensitive_variables

from access.credentials.intents import LIFE, intend, intend_for_tenant
from access.credentials.issuing import workspace_access
from access.credentials.portaltokens import (
    FIRST_NAMESPACE,
    find_own_apiserver,
    portal_access,
    portal_token,
    signing_in_access,
)
from access.credentials.records import require_allowed
from access.models import Credential
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, write_kubeconfig
from kube.requests.status import Conflict, ServiceUnavailable, StatusError
from tenants import actionlimits
from tenants.models import Cluster, CredentialKind, Phase, Role, Status, Workspace
from tenants.rights import require_role

_IN_ONE_FILE: Final = 100


class Missing(NamedTuple):
    """A workspace that is not in the file, and what it said."""

    workspace: Workspace
    reason: str


@dataclass(frozen=True, slots=True)
class IssuedTenantKubeconfig:
    """A file with a context for each workspace of a tenant, but those ``missing``."""

    kind: str
    credentials: tuple[Credential, ...]
    missing: tuple[Missing, ...]
    yaml: str = field(repr=False)

    @property
    def expires_at(self) -> datetime | None:
        """When the first of the credentials ends; ``None`` for a file that holds no secret."""
        return min((row.expires_at for row in self.credentials if row.expires_at), default=None)


@sensitive_variables()
def tenant_kubeconfig_issue(
    *, actor: Actor, tenant: str, role: str = "", kind: str = CredentialKind.GATEWAY, now: datetime
) -> IssuedTenantKubeconfig:
    """One kubeconfig for a tenant: its space, and a context for each workspace that is ready, the first hundred by name.

    ``kind`` is ``gateway`` or ``exec``, ``role`` at most the membership's, and that one by default. Where the product's
    own API server offers the kind, the space and all workspaces whose cluster offers it share one credential. By
    ``gateway`` each other workspace has a credential of its own; a file for ``exec`` holds no secret. What one cluster
    refuses is left out and named. Raises ``NotFound`` for a tenant that is not the actor's to know of, ``Forbidden`` for a
    role above the actor's, ``Conflict`` where it is closed or nothing is ready, ``TooManyRequests``,
    ``ServiceUnavailable`` where nothing could be issued.
    """
    require_allowed(require_role(actor, tenant, Role.VIEWER), role, tenant)
    actionlimits.take(actionlimits.TENANT_CREDENTIALS, actor.user_id or actor.name)
    server = find_own_apiserver()
    file = _File(actor, tenant, role, kind, server, now)
    ready = Workspace.objects.filter(tenant_id=tenant, status=Status.ACTIVE, phase=Phase.READY)
    rows = list(ready.select_related("cluster").order_by("name")[:_IN_ONE_FILE])
    shared = [row for row in rows if kind in row.cluster.credential_kinds]
    if server is not None and kind in server.credential_kinds:
        file.add_space(server, shared)
        rows = [row for row in rows if row not in shared]
    for row in rows:
        file.add_workspace(row)
    if not file.accesses:
        if not file.missing:
            raise Conflict(f"No workspace of {tenant} is ready.", kind="tenants", name=tenant)
        raise ServiceUnavailable(file.missing[0].reason, retry_after=5)
    return IssuedTenantKubeconfig(kind, tuple(file.issued), tuple(file.missing), write_kubeconfig(file.accesses))


def tenant_kinds() -> list[str]:
    """The kinds of files for whole tenants, the recommended one first."""
    server = find_own_apiserver()
    offered = server.credential_kinds if server is not None else []
    return [kind for kind in offered if kind != CredentialKind.DIRECT] or [CredentialKind.GATEWAY]


class _File:
    """What a tenant's file holds so far."""

    def __init__(self, actor: Actor, tenant: str, role: str, kind: str, server: Cluster | None, now: datetime) -> None:
        self._actor, self._tenant, self._role, self._kind, self._now = actor, tenant, role, kind, now
        self._through = server is not None
        self._away: dict[UUID, StatusError] = {}
        self.accesses: list[Access] = []
        self.issued: list[Credential] = []
        self.missing: list[Missing] = []

    @sensitive_variables()
    def add_space(self, server: Cluster, workspaces: list[Workspace]) -> None:
        """The tenant's space and these workspaces, by one credential."""
        credential = intend_for_tenant(self._actor, self._tenant, self._role, self._kind, self._now)
        if credential is None:
            self.accesses = [
                signing_in_access(server, self._tenant, self._role),
                *(signing_in_access(server, self._tenant, self._role, workspace=row, whole=True) for row in workspaces),
            ]
            return
        token = portal_token(credential, now=self._now, expires_at=self._now + LIFE)
        self.issued.append(credential)
        self.accesses = [
            portal_access(credential, server, token, namespace=FIRST_NAMESPACE),
            *(
                portal_access(credential, server, token, workspace=row.name, namespace=row.k8s_namespace)
                for row in workspaces
            ),
        ]

    @sensitive_variables()
    def add_workspace(self, row: Workspace) -> None:
        """A workspace by a credential of its own, or what was said instead."""
        through = self._through and self._kind in row.cluster.credential_kinds
        # Whoever wants no secret in the file gets none, and is told so.
        kind = self._kind if through or self._kind == CredentialKind.EXEC else CredentialKind.DIRECT
        error = self._away.get(row.cluster_id)
        if error is None:
            try:
                intent = intend(self._actor, row.pk, self._role, kind, self._now, limited=False)
                access = workspace_access(self._actor, intent, self._role, self._now)
            except ServiceUnavailable as silent:
                # One that does not answer is not asked a hundred times.
                error = self._away[row.cluster_id] = silent
            except StatusError as refusal:
                error = refusal
            else:
                self.accesses.append(access)
                self.issued += [intent.credential] if intent.credential else []
                return
        self.missing.append(Missing(row, error.message))
