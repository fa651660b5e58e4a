"""Tenants: the row and the ``Tenant`` object are made and ended together, whichever way one asks (TS1)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditChain
from audit.recorder import Actor
from kube.quota import tenantquotas
from kube.quota.usage import Scope
from kube.requests.fielderrors import invalid_object
from kube.requests.status import AlreadyExists, Conflict
from kube.validation.quotas import resource_quota_causes
from store.types import Operation, PreconditionFailed
from tenants import spaces
from tenants.models import Membership, NoticeKind, Phase, Role, Status, Tenant, TenantState, User, Workspace
from tenants.naming import check_manager, check_tenant_name, check_text, check_until
from tenants.notices import note
from tenants.quotas import tenant_quota, tenant_quota_write
from tenants.rights import require_open, require_operator, require_retained, require_role, tenant_locked
from tenants.services import desiredstate
from tenants.services.revocation import access_tokens_end, credentials_changed
from tenants.suspensions import credentials_spend, lock_clear, lock_set


@transaction.atomic
def tenant_create(
    *,
    actor: Actor,
    name: str,
    display_name: str = "",
    owner: User | None = None,
    quota: Mapping[str, str] | None = None,
    managed_by: str = "",
    body: Mapping[str, Any] | None = None,
    held: Sequence[Operation] = (),
) -> Tenant:
    """Create a tenant with its space: the row, the ``Tenant`` object, ``default`` and the members' bindings (TS1).

    ``owner`` becomes the first owner. ``quota`` bounds what it may hold, by resource name; the configured default
    without one (AD1). ``managed_by`` names the declaration that makes it. ``body`` is the object as it was admitted, where
    it is asked for by one, and ``held`` what must hold then. What was made out to a tenant that had the name before does
    not count. Operators only. Raises ``AlreadyExists`` for a taken name, ``Invalid`` for one that is no DNS label or
    reserved, and for amounts that are none, and ``PreconditionFailed`` for what does not hold.
    """
    require_operator(actor)
    hard = settings.TENANT_QUOTA if quota is None else checked_hard(quota, name)
    check_tenant_name(name)
    display_name = check_text(display_name, field="displayName", kind="Tenant", limit=128)
    try:
        with transaction.atomic():
            tenant = Tenant.objects.create(
                name=name, display_name=display_name, managed_by=check_manager(managed_by, kind="Tenant")
            )
    except IntegrityError:
        raise AlreadyExists(f'tenants "{name}" already exists', kind="tenants", name=name) from None
    if AuditChain.objects.filter(chain=name).exists():
        # Somebody had the name before, and certificates and ID tokens are made out to names.
        credentials_spend(tenant)
    if owner is not None:
        Membership.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
    detail = {"displayName": display_name, "owner": owner.email if owner else "", "managedBy": managed_by}
    actor.record(Action.TENANT_CREATED, chain=name, target=f"tenants/{name}", detail=detail)
    try:
        spaces.space_create(tenant, body=body, quota=hard, held=held)
    except PreconditionFailed as failure:
        if any(failure.key == each.key for each in held):
            raise
        raise AlreadyExists(f'tenants "{name}" already exists', kind="tenants", name=name) from None
    return tenant


@transaction.atomic
def tenant_change(*, actor: Actor, name: str, display_name: str, together: Sequence[Operation] = ()) -> Tenant:
    """Give a tenant another display name, in its object too. Operators, and owners of the tenant while it is open.

    ``together`` as in ``tenant_delete``. Raises ``NotFound``, ``Forbidden``, ``Invalid``.
    """
    tenant = _locked(actor, name, Role.OWNER)
    require_open(actor, tenant)
    display_name = check_text(display_name, field="display_name", kind="Tenant", limit=128)
    before, tenant.display_name = tenant.display_name, display_name
    tenant.save(update_fields=["display_name"])
    detail = {"before": before, "after": display_name}
    actor.record(Action.TENANT_CHANGED, chain=name, target=f"tenants/{name}", detail=detail)
    spaces.tenant_show_name(tenant, together)
    return tenant


@transaction.atomic
def tenant_quota_change(*, actor: Actor, name: str, hard: Mapping[str, str]) -> None:
    """Bound what a tenant may hold, in the scopes that its quota has, from the commit on (AD1). Operators only.

    Below what is used, nothing is taken away and nothing more is admitted. Raises ``NotFound``, ``Forbidden``,
    ``Invalid``.
    """
    require_operator(actor)
    hard = checked_hard(hard, name, tenant_quota(name).scopes)
    _locked(actor, name, Role.OWNER)
    detail = {"hard": dict(hard)}
    actor.record(Action.TENANT_QUOTA_CHANGED, chain=name, target=f"tenants/{name}", detail=detail)
    while True:
        with contextlib.suppress(PreconditionFailed):
            tenant_quota_write(name, hard)
            return


def checked_hard(hard: Mapping[str, str], name: str, scopes: Sequence[Scope] = ()) -> dict[str, str]:
    """A quota's amounts, if they are such, and in its scopes. Raises ``Invalid`` with a cause for each that is not."""
    selected = [{"scopeName": each.name, "operator": each.operator, "values": list(each.values)} for each in scopes]
    causes = resource_quota_causes({"spec": {"hard": dict(hard), "scopeSelector": {"matchExpressions": selected}}})
    if causes:
        raise invalid_object(tenantquotas.GROUP, "TenantQuota", name, causes)
    return dict(hard)


@transaction.atomic
def tenant_delete(*, actor: Actor, name: str, together: Sequence[Operation] = ()) -> Tenant:
    """Begin the end of a tenant: closed at once, then workers delete all that is in it and the tenant itself (TS1).

    Operators only: owners ask for an offboarding (GW28). Deleting twice is one deletion. ``together`` is the write of
    the object by which it is asked for, and what must hold then. Raises ``NotFound``, ``Forbidden``, and
    ``PreconditionFailed`` for what does not hold.
    """
    if together and actor.operator:
        # An object that stands alone, as older servers let one be made, ends as all others do.
        Tenant.objects.get_or_create(name=name)
    tenant = _locked(actor, name, Role.OWNER)
    require_operator(actor)
    if tenant.state == TenantState.TERMINATING:
        return tenant
    tenant.state = TenantState.TERMINATING
    tenant.save(update_fields=["state"])
    lock_set(space=tenant.cluster_path, reason="The tenant is being deleted.")
    for workspace in tenant.workspaces.exclude(status=Status.DELETED).select_for_update(no_key=True).order_by("id"):
        desiredstate.request_deleted(workspace, actor)
    actor.record(Action.TENANT_DELETED, chain=name, target=f"tenants/{name}")
    spaces.tenant_mark_terminating(tenant, together)
    transaction.on_commit(desiredstate.enqueue_sweep)
    return tenant


@transaction.atomic
def tenant_suspend(
    *, actor: Actor, name: str, reason: str, stop: bool = False, until: datetime | None = None
) -> Tenant:
    """Close a tenant's space and suspend its workspaces, from the commit on (GW5). Operators only.

    All that still exist, those that are being deleted too; with ``stop`` their pods end as well. Personal access tokens
    for this tenant alone end. Suspending twice keeps the first and tries at once what waits. A tenant that is being
    deleted goes on ending. ``until`` is when a worker resumes it; the newest word about that counts. Raises ``NotFound``,
    ``Forbidden``, ``Invalid`` without a reason.
    """
    require_operator(actor)
    reason = check_text(reason, field="reason", kind="Tenant", limit=512, required=True)
    check_until(until, kind="Tenant")
    tenant = _locked(actor, name, Role.OWNER)
    there = tenant.workspaces.exclude(phase=Phase.DELETED)
    if tenant.state == TenantState.SUSPENDED:
        news = tenant.suspended_until != until
        if news:
            tenant.suspended_until = until
            tenant.save(update_fields=["suspended_until"])
        if stop:
            _stop(there, actor)
        if stop or news:
            detail = {"reason": reason, "stop": stop, "until": until and until.isoformat()}
            actor.record(Action.TENANT_SUSPENDED, chain=name, target=f"tenants/{name}", detail=detail)
        desiredstate.retry_now(there)
        return tenant
    tenant.suspended_reason, tenant.suspended_at, tenant.suspended_by = reason, timezone.now(), actor.name
    if tenant.state != TenantState.TERMINATING:
        tenant.state, tenant.suspended_until = TenantState.SUSPENDED, until
    tenant.save()
    lock_set(space=tenant.cluster_path, reason=reason)
    for workspace in there.exclude(status=Status.SUSPENDED).select_for_update(no_key=True).order_by("id"):
        desiredstate.request_suspended(workspace, actor, reason, with_tenant=True, stop=stop)
    if stop:
        _stop(there, actor)
    detail = {"reason": reason, "stop": stop, "tokens_revoked": access_tokens_end(tenant)}
    if until is not None:
        detail["until"] = until.isoformat()
    actor.record(Action.TENANT_SUSPENDED, chain=name, target=f"tenants/{name}", detail=detail)
    note(NoticeKind.WORKSPACE_SUSPENDED, f"The tenant {name} is suspended: {reason}", actor=actor, tenant=tenant)
    if tenant.state == TenantState.SUSPENDED:
        spaces.tenant_mark_phase(tenant)
    desiredstate.retry_now(there)
    return tenant


@transaction.atomic
def tenant_resume(*, actor: Actor, name: str, leaving: bool = False) -> Tenant:
    """Open a suspended tenant again, with those workspaces that were suspended with it. Operators only.

    Whatever was made out to the tenant's people and service accounts so far, and says when, does not count any more (P5).

    Resuming an active tenant changes nothing. Raises ``NotFound``, ``Forbidden``, ``Conflict`` while being deleted, and
    while it leaves, unless ``leaving`` says that what it leaves by closes it still.
    """
    require_operator(actor)
    tenant = _locked(actor, name, Role.OWNER)
    if tenant.state == TenantState.TERMINATING:
        raise Conflict(f"The tenant {name} is being deleted.", kind="tenants", name=name)
    if tenant.state == TenantState.ACTIVE:
        return tenant
    if not leaving:
        require_retained(tenant)
    tenant.state, tenant.suspended_reason, tenant.suspended_at, tenant.suspended_by = TenantState.ACTIVE, "", None, ""
    tenant.suspended_until = None
    tenant.save()
    credentials_spend(tenant)
    lock_clear(space=tenant.cluster_path)
    # What was issued for the space before the suspension stays dead, as what was issued for its workspaces does.
    tenant.credentials.filter(workspace=None, revoked_at=None).update(
        revoked_at=timezone.now(), revoked_by=actor.name[:254]
    )
    credentials_changed()
    held = Workspace.objects.filter(tenant=tenant, status=Status.SUSPENDED, suspended_with_tenant=True)
    for workspace in held.select_for_update(no_key=True).order_by("id"):
        desiredstate.request_resumed(workspace, actor)
    actor.record(Action.TENANT_RESUMED, chain=name, target=f"tenants/{name}")
    note(NoticeKind.WORKSPACE_RESUMED, f"The tenant {name} is open again", actor=actor, tenant=tenant)
    spaces.tenant_mark_phase(tenant)
    transaction.on_commit(desiredstate.enqueue_sweep)
    return tenant


def _stop(workspaces: QuerySet[Workspace], actor: Actor) -> None:
    for workspace in (
        workspaces.filter(status=Status.SUSPENDED, stopped=False).select_for_update(no_key=True).order_by("id")
    ):
        desiredstate.request_stopped(workspace, actor)


def _locked(actor: Actor, name: str, role: Role) -> Tenant:
    """The tenant, its row locked, for an actor of at least ``role``."""
    found = tenant_locked(name)
    require_role(actor, name, role)
    return found
