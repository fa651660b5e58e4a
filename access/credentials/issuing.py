"""Issues kubeconfigs, in the one order that leaves no unrecorded token (GW3, GW9).

Ownership → active, under the row's lock → rate limit → intent committed → anchor → token → checked → outcome → YAML.
A file for a whole tenant is this for each of its workspaces.
No record, no token; and a token whose workspace was closed in the meantime dies with its anchor, unseen.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, transaction
from django.views.decorators.debug import sensitive_variables

from access.credentials.tokenrequests import Anchor, BrokenPromise, ClusterToken, require_done, token_request
from access.models import Credential
from audit.actions import Action
from audit.addresses import address_of
from audit.models import Outcome as AuditOutcome
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, InvalidKubeconfig, write_kubeconfig
from kube.requests.status import Conflict, Forbidden, NotFound, ServiceUnavailable, StatusError, TooManyRequests
from tenants import actionlimits
from tenants.clusters import objects
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import ClusterClient, ClusterUnusable, client_for
from tenants.models import Phase, Role, Status, Workspace
from tenants.rights import require_role, role_of

_ROLE_OF_MEMBER: Final = {Role.OWNER: "admin", Role.ADMIN: "admin", Role.EDITOR: "editor", Role.VIEWER: "viewer"}
_RANK: Final = {"admin": 2, "editor": 1, "viewer": 0}
_IN_ONE_FILE: Final = 100


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
def kubeconfig_issue(*, actor: Actor, workspace_id: UUID, role: str = "", now: datetime) -> IssuedKubeconfig:
    """A kubeconfig for a workspace, good for two hours at most.

    ``role`` is ``admin``, ``editor`` or ``viewer``, by default the highest that the actor's membership allows.
    Raises ``NotFound`` for a workspace that is not the actor's to know of, ``Forbidden`` for a role above the actor's,
    ``Conflict`` while it is not ready or suspended, ``TooManyRequests``, ``ServiceUnavailable`` when the cluster
    cannot be reached or does not answer as agreed; then nothing is left behind.
    """
    workspace, credential = _intend(actor, workspace_id, role, now)
    access = _opened(actor, workspace, credential, now)
    return IssuedKubeconfig(credential, write_kubeconfig([access]))


@sensitive_variables()
def tenant_kubeconfig_issue(*, actor: Actor, tenant: str, now: datetime) -> IssuedTenantKubeconfig:
    """One kubeconfig for all workspaces of a tenant that are ready, the first hundred by name: a context each.

    Each context is a credential of its own, with the highest role that the actor's membership allows. What one cluster
    refuses is left out and named. Raises ``NotFound`` for a tenant that is not the actor's to know of, ``Conflict`` where
    no workspace is ready, ``TooManyRequests``, ``ServiceUnavailable`` where nothing could be issued.
    """
    require_role(actor, tenant, Role.VIEWER)
    ready = Workspace.objects.filter(tenant_id=tenant, status=Status.ACTIVE, phase=Phase.READY)
    rows = list(ready.order_by("name")[:_IN_ONE_FILE])
    if not rows:
        raise Conflict(f"No workspace of {tenant} is ready.", kind="tenants", name=tenant)
    actionlimits.take(actionlimits.TENANT_CREDENTIALS, actor.user_id or actor.name)
    accesses: list[Access] = []
    issued: list[Credential] = []
    missing: list[tuple[Workspace, str]] = []
    away: dict[UUID, StatusError] = {}
    for row in rows:
        error = away.get(row.cluster_id)
        if error is None:
            try:
                workspace, credential = _intend(actor, row.pk, "", now, limited=False)
                accesses.append(_opened(actor, workspace, credential, now))
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
def _opened(actor: Actor, workspace: Workspace, credential: Credential, now: datetime) -> Access:
    """Turn the intent into a token that opens the workspace, or into a failure that leaves nothing behind."""
    account = objects.ACCOUNTS[credential.role]
    client = None
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
        credential.anchor_uid = _anchor(client, workspace, credential, account)
        anchor = Anchor(credential.anchor, credential.anchor_uid)
        token = token_request(client, workspace, account=account, now=now, anchor=anchor)
        access = _access(workspace, credential, token)
        _conclude(actor, workspace, credential, token)
    except StatusError as error:
        # Closed in the meantime: the token, if there is one, must not outlive its anchor.
        _undo(actor, client, workspace, credential, reason=error.message, now=now)
        raise
    except (BrokenPromise, ClusterUnusable) as error:
        _undo(actor, client, workspace, credential, reason=str(error), now=now)
        raise ServiceUnavailable(str(error), retry_after=5) from None
    except DatabaseError:
        _undo(actor, client, workspace, credential, reason="The issue could not be recorded.", now=now)
        raise ServiceUnavailable("The issue could not be recorded, so nothing was issued.", retry_after=5) from None
    return access


def _intend(
    actor: Actor, workspace_id: UUID, role: str, now: datetime, *, limited: bool = True
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
            chosen = _chosen(workspace, member, role, workspace_id)
            if limited:
                actionlimits.take(actionlimits.CREDENTIAL, actor.user_id or actor.name)
        except StatusError as error:
            refusal = error
            # Refusals are recorded as often as credentials are given, so that a flood of them fills nothing.
            quota = actionlimits.wait_for(actionlimits.CREDENTIAL, f"refused:{actor.user_id or actor.name}")
            if quota == 0 and not isinstance(error, TooManyRequests):
                _record(actor, workspace, AuditOutcome.DENIED, {"role": role, "reason": error.message})
        else:
            identifier = uuid.uuid4()
            credential = Credential.objects.create(
                id=identifier,
                workspace=workspace,
                issued_to_id=actor.user_id or workspace.user_id,
                role=chosen,
                anchor=f"tenantry-anchor-{identifier.hex}",
                ip_address=address_of(actor.ip),
                user_agent=actor.user_agent[:256],
                issued_at=now,
            )
            _record(actor, workspace, AuditOutcome.INTENT, {"id": str(identifier), "role": chosen})
            return workspace, credential
    raise refusal


def credential_roles(member: Role) -> list[str]:
    """The roles that a member's credentials may have, the highest first."""
    highest = _RANK[_ROLE_OF_MEMBER[member]]
    return [role for role, rank in _RANK.items() if rank <= highest]


def _chosen(workspace: Workspace, member: Role | None, role: str, workspace_id: UUID) -> str:
    """The role of the credential; raises the refusal that fits."""
    if member is None:
        raise _unknown(workspace_id)
    highest = _ROLE_OF_MEMBER[member]
    chosen = role or highest
    if chosen not in _RANK or _RANK[chosen] > _RANK[highest]:
        raise Forbidden(f"Your role in {workspace.tenant_id} allows credentials up to {highest}.", kind="workspaces")
    if workspace.status == Status.SUSPENDED:
        raise Conflict(f"The workspace is suspended: {workspace.suspended_reason}", kind="workspaces")
    if workspace.status != Status.ACTIVE or workspace.tenant.state != "active":
        raise Conflict("The workspace is closed.", kind="workspaces")
    if workspace.phase != Phase.READY:
        raise Conflict("The workspace is not ready yet.", kind="workspaces", name=workspace.name)
    return chosen


def _anchor(client: ClusterClient, workspace: Workspace, credential: Credential, account: str) -> str:
    """Create the Secret that the token is bound to; its uid."""
    body = objects.anchor(workspace, credential.anchor, account, workspace.service_accounts.get(account, ""))
    answer = require_done(client.create(objects.path(workspace, "secrets"), body))
    return str(answer.metadata.get("uid") or "")[:64]


@sensitive_variables()
def _access(workspace: Workspace, credential: Credential, token: ClusterToken) -> Access:
    """The context of a kubeconfig, which is known to be writable: what the cluster said is in it."""
    access = Access(
        name=f"{workspace.tenant_id}.{workspace.name}.{credential.role}",
        server=workspace.cluster.client_url or workspace.cluster.server,
        certificate_authority=workspace.cluster.ca_data.encode(),
        namespace=workspace.k8s_namespace,
        token=token.text,
    )
    try:
        write_kubeconfig([access])
    except InvalidKubeconfig:
        raise BrokenPromise("The cluster's answer held no token.") from None
    return access


def _conclude(actor: Actor, workspace: Workspace, credential: Credential, token: ClusterToken) -> None:
    """Commit the outcome if the workspace is still as it was: after a suspension was answered no token comes out."""
    with transaction.atomic():
        current = Workspace.objects.select_for_update().get(pk=workspace.pk)
        # Another phase is a resume that has not yet come to the accounts: they are old ones.
        ready = current.status == Status.ACTIVE and current.phase == Phase.READY
        if not ready or current.service_accounts != workspace.service_accounts:
            raise Conflict("The workspace was closed while the credential was made.", kind="workspaces")
        revoked = Credential.objects.select_for_update().get(pk=credential.pk).revoked_at is not None
        member = role_of(actor, workspace.tenant_id)
        if revoked or member is None or _RANK[credential.role] > _RANK[_ROLE_OF_MEMBER[member]]:
            raise Forbidden("The right to the workspace ended while the credential was made.", kind="workspaces")
        credential.jti, credential.expires_at = token.jti, token.expires_at
        credential.save(update_fields=["jti", "expires_at", "anchor_uid"])
        detail = {
            "id": str(credential.id),
            "jti": token.jti,
            "expires": token.expires_at,
            "anchor": credential.anchor,
            "role": credential.role,
        }
        _record(actor, workspace, AuditOutcome.SUCCESS, detail)


def _undo(
    actor: Actor,
    client: ClusterClient | None,
    workspace: Workspace,
    credential: Credential,
    *,
    reason: str,
    now: datetime,
) -> None:
    """Delete the anchor and write the failure down; what does not succeed here is left to ``credentials_expire``."""
    state = AnchorState.SILENT
    if client is not None:
        state = anchor_end(client, workspace, credential.anchor, credential.anchor_uid, now=now)
    with contextlib.suppress(DatabaseError), transaction.atomic():
        Credential.objects.filter(pk=credential.pk).update(
            jti=None,
            expires_at=None,
            failed_at=now,
            anchor_uid=credential.anchor_uid,
            revocation_confirmed_at=now if state is AnchorState.GONE else None,
        )
        _record(actor, workspace, AuditOutcome.FAILURE, {"id": str(credential.id), "reason": reason})


def _record(actor: Actor, workspace: Workspace, outcome: AuditOutcome, detail: dict[str, Any]) -> None:
    actor.record(
        Action.KUBECONFIG_ISSUED,
        chain=workspace.tenant_id,
        outcome=outcome,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail=detail,
    )


def _unknown(workspace_id: UUID) -> NotFound:
    return NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
