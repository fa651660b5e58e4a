"""Commits what is about to be issued, before any token is made: no record, no token (GW3, GW9).

Ownership, state and rate are checked under the locks of the tenant and the workspace, so that a membership which ends
meanwhile has ended before, or ends the credential too; a refusal is committed as well, and raised after that.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from django.db import transaction

from access.credentials.logins import login_end
from access.credentials.records import (
    allows,
    closed_because,
    highest_role,
    issue_record,
    refusal_record,
    require_allowed,
    require_direct,
)
from access.credentials.tokenrequests import SECONDS
from access.models import Credential, Login
from audit.addresses import address_of
from audit.models import Outcome
from audit.recorder import Actor
from kube.authentication.portaltokens import AUDIENCE, cluster_audience
from kube.requests.status import Cause, Conflict, Forbidden, Invalid, NotFound, StatusError, TooManyRequests
from tenants import actionlimits
from tenants.clusters import objects
from tenants.models import Cluster, CredentialKind, NoticeKind, Role, Tenant, TenantState, User, Workspace
from tenants.notices import note
from tenants.rights import require_role, role_of, tenant_locked

LIFE: Final = timedelta(seconds=SECONDS)
"""The longest life of a token that is in a file."""
MINUTES_MIN: Final = 10
"""The shortest: clusters make none for less."""


class Intent(NamedTuple):
    """What may be issued. Without ``credential`` it is a file that holds no secret: a login has one when it is used.

    ``audience`` is who takes a token of the portal: the product's own API server, or the workspace's cluster alone.
    """

    workspace: Workspace
    kind: str
    credential: Credential | None
    life: timedelta = LIFE
    audience: str = AUDIENCE


def intend(
    actor: Actor,
    workspace_id: UUID,
    role: str,
    kind: str,
    now: datetime,
    *,
    login: Login | None = None,
    limited: bool = True,
    life: timedelta = LIFE,
    at_cluster: bool = False,
) -> Intent:
    """Check everything under the rows' locks and commit the intent, or the refusal; raise the refusal.

    Without ``kind`` it is what the cluster recommends. ``life`` is that of a token in a file; ``at_cluster`` has a
    ``gateway`` one be for the workspace's cluster alone, which asks about it (GW17).
    """
    if not timedelta(minutes=MINUTES_MIN) <= life <= LIFE:
        words = f"From {MINUTES_MIN} to {SECONDS // 60} minutes."
        raise Invalid(f"minutes: {words}", kind="Credential", causes=[Cause("FieldValueInvalid", words, "minutes")])
    refusal: StatusError
    with transaction.atomic():
        found = Workspace.objects.filter(pk=workspace_id)
        tenant = found.values_list("tenant_id", flat=True).first()
        if tenant is None:
            raise _unknown(workspace_id)
        tenant_locked(tenant)
        rows = found.select_for_update(no_key=True, of=("self",))
        workspace = rows.select_related("tenant", "cluster", "tier", "user").first()
        if workspace is None:
            raise _unknown(workspace_id)
        kind = kind or next(iter(workspace.cluster.credential_kinds), "")
        try:
            member = role_of(actor, workspace.tenant_id)
            chosen = _chosen(workspace, member, role, kind, workspace_id)
            audience = _audience(workspace, kind) if at_cluster else AUDIENCE
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
            credential = _committed(actor, user, workspace.tenant, workspace, chosen, kind, now, login, life, audience)
            return Intent(workspace, kind, credential, life, audience)
    raise refusal


@transaction.atomic
def intend_for_tenant(
    actor: Actor, tenant: str, role: str, kind: str, now: datetime, *, login: Login | None = None
) -> Credential | None:
    """Check the tenant under its row's lock, and commit a credential for its space; without a login none for ``exec``."""
    found = tenant_locked(tenant)
    member = require_role(actor, tenant, Role.VIEWER)
    require_allowed(member, role, tenant)
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
    login: Login | None,
    life: timedelta = LIFE,
    audience: str = AUDIENCE,
) -> Credential | None:
    """The row, and its record; one of the portal's is whole from the beginning, and a login's is there once."""
    if actor.auditor:
        raise Forbidden(
            "Auditors see everything and change nothing: they are given no credentials.", kind="credentials"
        )
    account = workspace.service_accounts.get(objects.ACCOUNTS[role], "") if workspace is not None else ""
    expires_at = None if kind == CredentialKind.DIRECT else now + life
    if kind == CredentialKind.EXEC:
        if login is None:
            return None
        expires_at = login_end(login)
        before = _renewed(login, tenant, workspace, role, account, expires_at)
        if before is not None:
            return before
    identifier, direct = uuid.uuid4(), kind == CredentialKind.DIRECT
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
        expires_at=expires_at,
    )
    detail: dict[str, object] = {"id": str(identifier), "role": role}
    if not direct:
        detail |= {"jti": credential.jti, "expires": credential.expires_at}
    if audience != AUDIENCE:
        detail["audience"] = audience
    if user != actor.user_id:
        what = f"A credential for {workspace or tenant.name} is issued for you by {actor.name}"
        to = User.objects.get(pk=user)
        note(NoticeKind.CREDENTIAL_ISSUED, what, actor=actor, tenant=tenant, workspace=workspace, user=to)
    issue_record(actor, credential, Outcome.INTENT if direct else Outcome.SUCCESS, detail)
    return credential


def _renewed(
    login: Login, tenant: Tenant, workspace: Workspace | None, role: str, account: str, expires_at: datetime
) -> Credential | None:
    """The login's credential for this place and role, as long as the session is. Raises ``Forbidden`` for a revoked one."""
    known = Credential.objects.filter(login=login, tenant=tenant, workspace=workspace, role=role, anchor_uid=account)
    before = known.select_for_update(no_key=True).first()
    if before is None:
        return None
    if before.revoked_at is not None:
        way = "sign out of the portal" if login.of_portal else "tenantry-login logout"
        raise Forbidden(f"This credential was revoked; {way}, then sign in again for another.", kind="credentials")
    if before.expires_at != expires_at:
        before.expires_at = expires_at
        before.save(update_fields=["expires_at"])
    return before


def _chosen(workspace: Workspace, member: Role | None, role: str, kind: str, workspace_id: UUID) -> str:
    """The role of the credential; raises the refusal that fits."""
    if member is None:
        raise _unknown(workspace_id)
    highest = highest_role(member)
    chosen = role or highest
    if chosen == "owner" or not allows(member, chosen):
        raise Forbidden(f"Your role in {workspace.tenant_id} allows credentials up to {highest}.", kind="workspaces")
    if closed := closed_because(workspace):
        raise Conflict(closed, kind="workspaces", name=workspace.name)
    if kind == CredentialKind.DIRECT:
        require_direct(workspace, chosen)
    if kind not in workspace.cluster.credential_kinds:
        offered = ", ".join(workspace.cluster.credential_kinds) or "none"
        raise Conflict(f"The cluster {workspace.cluster.name} offers other credentials: {offered}.", kind="workspaces")
    return chosen


def _audience(workspace: Workspace, kind: str) -> str:
    """Of a token for the workspace's cluster alone. Raises ``Conflict`` where it could never be shown there."""
    cluster = workspace.cluster
    if kind != CredentialKind.GATEWAY or cluster.kind != Cluster.Kind.EXTERNAL:
        raise Conflict(
            "Only a gateway credential is made for a cluster, and only for one that is registered.", kind="workspaces"
        )
    return cluster_audience(cluster.name)


def _unknown(workspace_id: UUID) -> NotFound:
    return NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
