"""Issues one kubeconfig for everything that a tenant has: its space, and a context for each namespace in it (D9, GW3).

What has none is named beside the file, with its reason.
"""

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
from access.credentials.records import closed_because, require_allowed
from access.models import Credential
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, write_kubeconfig
from kube.requests.status import Conflict, ServiceUnavailable, StatusError
from tenants import actionlimits, spaces
from tenants.models import Cluster, CredentialKind, Phase, Role, Workspace
from tenants.rights import require_role

_BY_THEMSELVES: Final = 100
"""Workspaces that do not share the space's credential: each is asked for one of its own, at its cluster."""
_NAMESPACES: Final = 1000
"""Of the space, beside those of workspaces: a tenant makes as many as it likes."""

_ONE_TOO_MANY: Final = (
    f"A file has {_BY_THEMSELVES} workspaces at most that do not share its credential: get this one's by itself."
)


class Missing(NamedTuple):
    """What is not in the file, and why: a workspace, or what the reason names."""

    workspace: Workspace | None
    reason: str


@dataclass(frozen=True, slots=True)
class IssuedTenantKubeconfig:
    """A file with a context for each namespace of a tenant, but those ``missing``."""

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
    """One kubeconfig for a tenant: its space, and a context for each workspace and each other namespace in the space.

    ``kind`` is ``gateway`` or ``exec``, ``role`` at most the membership's, and that one by default. Where the product's
    own API server offers the kind, the space, its namespaces and all workspaces whose cluster offers it share one
    credential. By ``gateway`` each other workspace has a credential of its own, of a hundred in a file; a file for
    ``exec`` holds no secret. What is not ready, or suspended, or refused by its cluster, or beyond a bound is left out and
    named. Raises ``NotFound`` for a tenant that is not the actor's to know of, ``Forbidden`` for a role above the
    actor's, ``Conflict`` where it is closed or nothing is ready, ``TooManyRequests``, ``ServiceUnavailable`` where
    nothing could be issued.
    """
    require_allowed(require_role(actor, tenant, Role.VIEWER), role, tenant)
    actionlimits.take(actionlimits.TENANT_CREDENTIALS, actor.user_id or actor.name)
    server = find_own_apiserver()
    file = _File(actor, tenant, role, kind, server, now)
    living = Workspace.objects.filter(tenant_id=tenant).exclude(phase=Phase.DELETED)
    rows = list(living.select_related("cluster", "tenant").order_by("name"))
    ready = file.opened(rows)
    namespaces = _own_namespaces(tenant, rows)
    if server is not None and kind in server.credential_kinds:
        shared = [row for row in ready if kind in row.cluster.credential_kinds]
        file.add_space(server, shared, namespaces)
        ready = [row for row in ready if kind not in row.cluster.credential_kinds]
    elif namespaces:
        why = f"The tenant's space is not opened by {kind}: what it has made there, as {namespaces[0]}, has no context."
        file.missing.append(Missing(None, why))
    for row in ready[:_BY_THEMSELVES]:
        file.add_workspace(row)
    file.missing += [Missing(row, _ONE_TOO_MANY) for row in ready[_BY_THEMSELVES:]]
    if not file.accesses:
        if file.refusal is None:
            raise Conflict(f"No workspace of {tenant} is ready.", kind="tenants", name=tenant)
        raise ServiceUnavailable(file.refusal.message, retry_after=5)
    return IssuedTenantKubeconfig(kind, tuple(file.issued), tuple(file.missing), write_kubeconfig(file.accesses))


def tenant_kinds() -> list[str]:
    """The kinds of files for whole tenants, the recommended one first."""
    server = find_own_apiserver()
    offered = server.credential_kinds if server is not None else []
    return [kind for kind in offered if kind != CredentialKind.DIRECT] or [CredentialKind.GATEWAY]


def _own_namespaces(tenant: str, workspaces: list[Workspace]) -> list[str]:
    """What the tenant has made in its space beside these, by name; one more than has room in a file says that there are."""
    known = {row.k8s_namespace for row in workspaces}
    stored = spaces.namespaces_made(tenant, limit=_NAMESPACES + len(known) + 1)
    return [name for name in stored if name not in known][: _NAMESPACES + 1]


class _File:
    """What a tenant's file holds so far."""

    def __init__(self, actor: Actor, tenant: str, role: str, kind: str, server: Cluster | None, now: datetime) -> None:
        self._actor, self._tenant, self._role, self._kind, self._now = actor, tenant, role, kind, now
        self._through = server is not None
        self._away: dict[UUID, StatusError] = {}
        self.accesses: list[Access] = []
        self.issued: list[Credential] = []
        self.missing: list[Missing] = []
        self.refusal: StatusError | None = None
        """The first that was told for a workspace that is ready."""

    def opened(self, rows: list[Workspace]) -> list[Workspace]:
        """Those that are open; the others are missing."""
        closed = {row.pk: why for row in rows if (why := closed_because(row))}
        self.missing += [Missing(row, closed[row.pk]) for row in rows if row.pk in closed]
        return [row for row in rows if row.pk not in closed]

    @sensitive_variables()
    def add_space(self, server: Cluster, workspaces: list[Workspace], namespaces: list[str]) -> None:
        """The tenant's space, these workspaces and these namespaces, by one credential."""
        credential = intend_for_tenant(self._actor, self._tenant, self._role, self._kind, self._now)
        places = [
            ("", FIRST_NAMESPACE),
            *((row.name, row.k8s_namespace) for row in workspaces),
            *((f"namespaces.{name}", name) for name in namespaces[:_NAMESPACES]),
        ]
        for first in namespaces[_NAMESPACES:]:
            why = f"A file has {_NAMESPACES} namespaces of a space at most: from {first} on they have no context of their own."
            self.missing.append(Missing(None, f"{why} That of the space reaches them with kubectl --namespace."))
        if credential is None:
            self.accesses = [
                signing_in_access(server, self._tenant, self._role, place=place, namespace=namespace)
                for place, namespace in places
            ]
            return
        token = portal_token(credential, now=self._now, expires_at=self._now + LIFE)
        self.issued.append(credential)
        self.accesses = [
            portal_access(credential, server, token, place=place, namespace=namespace) for place, namespace in places
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
        self.refusal = self.refusal or error
        self.missing.append(Missing(row, error.message))
