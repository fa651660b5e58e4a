"""Issues kubeconfigs, in the one order that leaves no unrecorded token (GW3, GW9).

Ownership → active, under the row's lock → rate limit → row and record committed → token → YAML. No record, no token.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from access.credentials.clustertokens import cluster_access
from access.credentials.logins import TOKEN_SECONDS
from access.credentials.portaltokens import (
    FIRST_NAMESPACE,
    exec_access,
    find_own_apiserver,
    own_apiserver,
    portal_access,
    portal_token,
)
from access.credentials.records import allows, highest_role, issue_record, refusal_record
from access.credentials.tokenrequests import SECONDS
from access.models import Credential, Login
from audit.addresses import address_of
from audit.models import Outcome
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, write_kubeconfig
from kube.requests.status import Conflict, Forbidden, NotFound, ServiceUnavailable, StatusError, TooManyRequests
from tenants import actionlimits
from tenants.clusters import objects
from tenants.models import CredentialKind, Phase, Role, Status, Tenant, TenantState, Workspace
from tenants.rights import require_role, role_of

_IN_ONE_FILE: Final = 100
_LIFE: Final = timedelta(seconds=SECONDS)


@dataclass(frozen=True, slots=True)
class IssuedKubeconfig:
    """A kubeconfig: ``yaml`` is for the one answer that carries it (``application/x-yaml``, ``no-store``)."""

    credential: Credential
    yaml: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IssuedTenantKubeconfig:
    """A file with a context for each workspace of a tenant, but those ``missing``, each with what it said."""

    credentials: tuple[Credential, ...]
    missing: tuple[tuple[Workspace, str], ...]
    yaml: str = field(repr=False)


@sensitive_variables()
def kubeconfig_issue(
    *, actor: Actor, workspace_id: UUID, role: str = "", kind: str = CredentialKind.DIRECT, now: datetime
) -> IssuedKubeconfig:
    """A kubeconfig for a workspace, good for two hours at most.

    ``role`` is ``admin``, ``editor`` or ``viewer``, by default the highest that the actor's membership allows; ``kind``
    one that the workspace's cluster offers. Raises ``NotFound`` for a workspace that is not the actor's to know of,
    ``Forbidden`` for a role above the actor's, ``Conflict`` while it is not ready or suspended and for a kind that is
    not offered, ``TooManyRequests``, ``ServiceUnavailable`` when the cluster cannot be reached or does not answer as
    agreed; then nothing is left behind.
    """
    if kind == CredentialKind.EXEC:
        raise Conflict("This way has no file with a token: tenantry-login signs in.", kind="workspaces")
    workspace, credential = _intend(actor, workspace_id, role, kind, now)
    return IssuedKubeconfig(credential, write_kubeconfig([_access(actor, workspace, credential, now)]))


@sensitive_variables()
def tenant_kubeconfig_issue(*, actor: Actor, tenant: str, now: datetime) -> IssuedTenantKubeconfig:
    """One kubeconfig for a tenant: a context for each workspace that is ready, the first hundred by name.

    Workspaces whose cluster is reached through Tenantry share one credential, which opens the tenant's space with the
    rights of the actor's membership; each other has a credential of its own, with the highest role that the membership
    allows. What one cluster refuses is left out and named. Raises ``NotFound`` for a tenant that is not the actor's to
    know of, ``Conflict`` where it is closed or nothing is ready, ``TooManyRequests``, ``ServiceUnavailable`` where nothing
    could be issued.
    """
    require_role(actor, tenant, Role.VIEWER)
    ready = Workspace.objects.filter(tenant_id=tenant, status=Status.ACTIVE, phase=Phase.READY).select_related(
        "cluster"
    )
    rows = list(ready.order_by("name")[:_IN_ONE_FILE])
    if not rows:
        raise Conflict(f"No workspace of {tenant} is ready.", kind="tenants", name=tenant)
    actionlimits.take(actionlimits.TENANT_CREDENTIALS, actor.user_id or actor.name)
    accesses: list[Access] = []
    issued: list[Credential] = []
    missing: list[tuple[Workspace, str]] = []
    away: dict[UUID, StatusError] = {}
    server = find_own_apiserver()
    through = [row for row in rows if server and CredentialKind.GATEWAY in row.cluster.credential_kinds]
    if server is not None and through:
        credential = _intend_for_tenant(actor, tenant, now)
        token = portal_token(credential, now=now, expires_at=now + _LIFE)
        issued.append(credential)
        accesses.append(portal_access(credential, server, token, namespace=FIRST_NAMESPACE))
        accesses += [
            portal_access(credential, server, token, workspace=row.name, namespace=row.k8s_namespace) for row in through
        ]
    for row in rows:
        if row in through:
            continue
        error = away.get(row.cluster_id)
        if error is None:
            try:
                workspace, credential = _intend(actor, row.pk, "", CredentialKind.DIRECT, now, limited=False)
                accesses.append(_access(actor, workspace, credential, now))
                issued.append(credential)
                continue
            except ServiceUnavailable as silent:
                # One that does not answer is not asked a hundred times.
                error = away[row.cluster_id] = silent
            except StatusError as refusal:
                error = refusal
        missing.append((row, error.message))
    if not issued:
        raise ServiceUnavailable(missing[0][1], retry_after=5)
    return IssuedTenantKubeconfig(tuple(issued), tuple(missing), write_kubeconfig(accesses))


@sensitive_variables()
def _access(actor: Actor, workspace: Workspace, credential: Credential, now: datetime) -> Access:
    """The token behind a committed row, as a context."""
    if credential.kind == CredentialKind.DIRECT:
        return cluster_access(actor, workspace, credential, now)
    token = portal_token(credential, now=now, expires_at=now + _LIFE)
    return portal_access(
        credential, own_apiserver(), token, workspace=workspace.name, namespace=workspace.k8s_namespace
    )


@sensitive_variables()
def exec_token_issue(
    *, actor: Actor, login: Login, tenant: str, workspace_id: UUID | None, role: str, now: datetime
) -> tuple[str, datetime]:
    """A token for the API server by a login, for a workspace or for a tenant's space, and when it ends.

    A login has one credential for each place and role, which is recorded once, and lives as long as the login; each token
    of it lives ten minutes. Raises as ``kubeconfig_issue`` does, ``Forbidden`` for a credential that was revoked.
    """
    if workspace_id is not None:
        _, credential = _intend(actor, workspace_id, role, CredentialKind.EXEC, now, login=login, limited=False)
    else:
        credential = _intend_for_tenant(actor, tenant, now, role=role, kind=CredentialKind.EXEC, login=login)
    ends = min(now + timedelta(seconds=TOKEN_SECONDS), login.expires_at)
    return portal_token(credential, now=now, expires_at=ends), ends


def tenant_kinds() -> list[str]:
    """The ways of files for whole tenants, the recommended one first: without a secret where Tenantry's own server offers it."""
    own = find_own_apiserver()
    offered = own is not None and CredentialKind.EXEC in own.credential_kinds
    return [*([CredentialKind.EXEC] if offered else []), CredentialKind.GATEWAY]


def exec_kubeconfig(*, actor: Actor, tenant: str, workspace_id: UUID | None = None, role: str = "") -> str:
    """A kubeconfig without a secret: whoever uses it signs in by ``tenantry-login``.

    For a workspace, or, without one, for a tenant's space and all its workspaces that are ready. Raises ``NotFound`` for
    what is not the actor's to know of, ``Forbidden`` for a role above the actor's, ``Conflict`` where the cluster does not
    offer it.
    """
    member = require_role(actor, tenant, Role.VIEWER)
    if role and not allows(member, role):
        raise Forbidden(f"Your role in {tenant} is less than {role}.", kind="workspaces")
    server = own_apiserver()
    rows = Workspace.objects.filter(tenant_id=tenant, status=Status.ACTIVE).select_related("cluster").order_by("name")
    if workspace_id is not None:
        found = rows.filter(pk=workspace_id).first()
        if found is None:
            raise _unknown(workspace_id)
        if CredentialKind.EXEC not in found.cluster.credential_kinds:
            raise Conflict(f"The cluster {found.cluster.name} does not offer this.", kind="workspaces")
        place = f"workspaces/{workspace_id}"
        return write_kubeconfig([exec_access(server, found.tenant_id, place, role, found.name, found.k8s_namespace)])
    place = f"tenants/{tenant}"
    through = [row for row in rows[:_IN_ONE_FILE] if CredentialKind.EXEC in row.cluster.credential_kinds]
    return write_kubeconfig(
        [
            exec_access(server, tenant, place, role, "", FIRST_NAMESPACE),
            *(exec_access(server, tenant, place, role, row.name, row.k8s_namespace) for row in through),
        ]
    )


def _intend(
    actor: Actor,
    workspace_id: UUID,
    role: str,
    kind: str,
    now: datetime,
    *,
    login: Login | None = None,
    limited: bool = True,
) -> tuple[Workspace, Credential]:
    """Check everything under the workspace's row lock and commit the intent, or the refusal; raise the refusal."""
    refusal: StatusError
    with transaction.atomic():
        rows = Workspace.objects.select_for_update(of=("self",)).select_related("tenant", "cluster", "tier", "user")
        workspace = rows.filter(pk=workspace_id).first()
        if workspace is None:
            raise _unknown(workspace_id)
        try:
            member = role_of(actor, workspace.tenant_id)
            chosen = _chosen(workspace, member, role, kind, workspace_id)
            if limited:
                actionlimits.take(actionlimits.CREDENTIAL, actor.user_id or actor.name)
        except StatusError as error:
            refusal = error
            # Refusals are recorded as often as credentials are given, so that a flood of them fills nothing.
            quota = actionlimits.wait_for(actionlimits.CREDENTIAL, f"refused:{actor.user_id or actor.name}")
            if quota == 0 and not isinstance(error, TooManyRequests):
                refusal_record(actor, workspace, {"role": role, "kind": kind[:8], "reason": error.message})
        else:
            user = actor.user_id or workspace.user_id
            credential = _committed(actor, user, workspace.tenant, workspace, chosen, kind, now, login)
            return workspace, credential
    raise refusal


@transaction.atomic
def _intend_for_tenant(
    actor: Actor,
    tenant: str,
    now: datetime,
    *,
    role: str = "",
    kind: str = CredentialKind.GATEWAY,
    login: Login | None = None,
) -> Credential:
    """Check the tenant under its row's lock, and commit a credential for its space."""
    found = Tenant.objects.select_for_update().filter(name=tenant).first()
    member = require_role(actor, tenant, Role.VIEWER)
    if found is None:
        raise NotFound(f'tenants "{tenant[:63]}" not found', kind="tenants", name=tenant[:63])
    if role and not allows(member, role):
        raise Forbidden(f"Your role in {tenant} is less than {role}.", kind="tenants")
    if found.state != TenantState.ACTIVE:
        raise Conflict(f"The tenant is closed: {found.suspended_reason}", kind="tenants", name=tenant)
    if actor.user_id is None:
        raise Forbidden("A credential is issued to a person.", kind="tenants", name=tenant)
    return _committed(actor, actor.user_id, found, None, role or member.value, kind, now, login)


def _committed(
    actor: Actor,
    user: UUID,
    tenant: Tenant,
    workspace: Workspace | None,
    role: str,
    kind: str,
    now: datetime,
    login: Login | None = None,
) -> Credential:
    """The row, and its record; one of the portal's is whole from the beginning, and a login's is there once."""
    identifier, direct = uuid.uuid4(), kind == CredentialKind.DIRECT
    account = workspace.service_accounts.get(objects.ACCOUNTS[role], "") if workspace is not None else ""
    if login is not None:
        known = Credential.objects.filter(login=login, tenant=tenant, workspace=workspace, role=role)
        before = known.filter(anchor_uid=account).first()
        if before is not None and before.revoked_at is not None:
            raise Forbidden("This credential was revoked; sign in again for another.", kind="credentials")
        if before is not None:
            return before
    credential = Credential.objects.create(
        id=identifier,
        login=login,
        kind=kind,
        tenant=tenant,
        workspace=workspace,
        issued_to_id=user,
        role=role,
        jti=None if direct else str(uuid.uuid4()),
        anchor=f"tenantry-anchor-{identifier.hex}" if direct else "",
        anchor_uid="" if direct else account,
        ip_address=address_of(actor.ip),
        user_agent=actor.user_agent[:256],
        issued_at=now,
        expires_at=None if direct else login.expires_at if login is not None else now + _LIFE,
    )
    detail: dict[str, object] = {"id": str(identifier), "role": role}
    if not direct:
        detail |= {"jti": credential.jti, "expires": credential.expires_at}
    issue_record(actor, credential, Outcome.INTENT if direct else Outcome.SUCCESS, detail)
    return credential


def _chosen(workspace: Workspace, member: Role | None, role: str, kind: str, workspace_id: UUID) -> str:
    """The role of the credential; raises the refusal that fits."""
    if member is None:
        raise _unknown(workspace_id)
    highest = highest_role(member)
    chosen = role or highest
    if chosen == "owner" or not allows(member, chosen):
        raise Forbidden(f"Your role in {workspace.tenant_id} allows credentials up to {highest}.", kind="workspaces")
    if workspace.status == Status.SUSPENDED:
        raise Conflict(f"The workspace is suspended: {workspace.suspended_reason}", kind="workspaces")
    if workspace.status != Status.ACTIVE or workspace.tenant.state != "active":
        raise Conflict("The workspace is closed.", kind="workspaces")
    if workspace.phase != Phase.READY:
        raise Conflict("The workspace is not ready yet.", kind="workspaces", name=workspace.name)
    if kind not in workspace.cluster.credential_kinds:
        offered = ", ".join(workspace.cluster.credential_kinds) or "none"
        raise Conflict(f"The cluster {workspace.cluster.name} offers other credentials: {offered}.", kind="workspaces")
    return chosen


def _unknown(workspace_id: UUID) -> NotFound:
    return NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
