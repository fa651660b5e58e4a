"""What ends by itself: workspaces that nobody renews are suspended and kept, suspensions with an end are over (GW25)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from audit.actions import Action
from audit.recorder import WORKER, Actor
from kube.requests.status import Cause, Conflict, Forbidden, Invalid
from tenants.models import Membership, NoticeKind, Role, Status, Tenant, TenantState, Workspace
from tenants.notices import note
from tenants.rights import require_thawed, require_unlocked, role_at_least, role_of, tenant_locked
from tenants.services import desiredstate
from tenants.services.desiredstate import EXPIRY
from tenants.services.sweeping import apart
from tenants.services.tenants import tenant_resume
from tenants.services.workspaces import require_own, workspace_locked, workspace_resume
from tenants.suspensions import installation_closed

RENEWED_DAYS_MAX: Final = 90
"""How far ahead a workspace's own user, who is no admin of the tenant, may renew it."""
WARNED_DAYS: Final = (7, 1)
_DAYS_MAX: Final = 1000
_BATCH: Final = 200


@transaction.atomic
def workspace_end_at(*, actor: Actor, workspace_id: UUID, expires_at: datetime | None, now: datetime) -> Workspace:
    """Let a workspace end by itself, later than it would, or not at all; one that has ended so goes on again.

    Its own user may renew it for some months, admins of the tenant and operators as they like. At its end it is
    suspended and kept. Raises ``NotFound``, ``Forbidden`` (also where it was closed by somebody), ``Invalid``, ``Conflict``
    for one that is deleted.
    """
    workspace = workspace_locked(actor, workspace_id)
    require_own(actor, workspace)
    ended = workspace.status == Status.SUSPENDED and workspace.suspended_by == EXPIRY.name
    require_unlocked(actor, workspace.tenant, None if ended else workspace)
    require_thawed(actor, workspace.tenant, workspace)
    if workspace.status == Status.DELETED:
        raise Conflict("The workspace is deleted.", kind="workspaces", name=str(workspace_id))
    _check_end(actor, workspace, expires_at, now)
    before, workspace.expires_at, workspace.warned_days = workspace.expires_at, expires_at, None
    workspace.save(update_fields=["expires_at", "warned_days"])
    actor.record(
        Action.WORKSPACE_RENEWED,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={"before": before and before.isoformat(), "after": expires_at and expires_at.isoformat()},
    )
    if ended and workspace.tenant.state == TenantState.ACTIVE:
        workspace_resume(actor=EXPIRY, workspace_id=workspace.pk)
        workspace.refresh_from_db()
    return workspace


def workspaces_expire(*, now: datetime) -> int:
    """Suspend those whose time is over; how many (a worker's sweep)."""
    over = Workspace.objects.filter(status=Status.ACTIVE, expires_at__lte=now, tenant__state=TenantState.ACTIVE)
    ended = 0
    for pk in list(over.order_by("expires_at").values_list("pk", flat=True)[:_BATCH]):
        with apart(f"the end of workspace {pk}"):
            ended += _expire(pk, now)
    return ended


def suspensions_end(*, now: datetime) -> int:
    """Resume what was suspended until now; how many. Nothing while the platform is closed after a restore."""
    if installation_closed():
        return 0
    tenants = Tenant.objects.filter(state=TenantState.SUSPENDED, suspended_until__lte=now, offboarding=None)
    workspaces = Workspace.objects.filter(
        status=Status.SUSPENDED, suspended_until__lte=now, tenant__state=TenantState.ACTIVE
    )
    ended = 0
    for name in list(tenants.values_list("pk", flat=True)[:_BATCH]):
        with apart(f"the end of the suspension of tenant {name}"), transaction.atomic():
            # Somebody may have said otherwise since: the newest word counts.
            found = tenant_locked(name)
            if found.state == TenantState.SUSPENDED and found.suspended_until and found.suspended_until <= now:
                tenant_resume(actor=WORKER, name=name)
                ended += 1
    for pk in list(workspaces.values_list("pk", flat=True)[:_BATCH]):
        with apart(f"the end of the suspension of workspace {pk}"), transaction.atomic():
            row = workspace_locked(WORKER, pk)
            until = row.suspended_until
            if row.status == Status.SUSPENDED and until and until <= now and row.tenant.state == TenantState.ACTIVE:
                workspace_resume(actor=WORKER, workspace_id=pk)
                ended += 1
    return ended


def ends_announce(*, now: datetime) -> int:
    """Warn of ends that are ahead, a week and a day before, each once; how many were warned of."""
    told = 0
    for days in WARNED_DAYS:
        soon = Q(expires_at__gt=now, expires_at__lte=now + timedelta(days=days))
        fresh = Q(warned_days=None) | Q(warned_days__gt=days)
        workspaces = Workspace.objects.filter(soon, fresh, status=Status.ACTIVE)
        for workspace in list(workspaces.select_related("tenant")[:_BATCH]):
            with apart(f"the warning of workspace {workspace.pk}"):
                told += _warn_workspace(workspace, days)
        memberships = Membership.objects.filter(soon, fresh, break_glass=False)
        for membership in list(memberships.select_related("user")[:_BATCH]):
            with apart(f"the warning of membership {membership.pk}"):
                told += _warn_member(membership, days)
    return told


@transaction.atomic
def _expire(pk: UUID, now: datetime) -> int:
    workspace = workspace_locked(EXPIRY, pk)
    if workspace.status != Status.ACTIVE or workspace.expires_at is None or workspace.expires_at > now:
        return 0
    reason = f"Its time was over on {workspace.expires_at:%d %b %Y}; it is kept, and goes on when it is renewed."
    desiredstate.request_suspended(workspace, EXPIRY, reason)
    EXPIRY.record(
        Action.WORKSPACE_SUSPENDED,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={"reason": reason, "generation": workspace.generation},
    )
    note(
        NoticeKind.WORKSPACE_SUSPENDED,
        f"The workspace {workspace} is suspended: {reason}",
        actor=EXPIRY,
        workspace=workspace,
    )
    desiredstate.retry_now(Workspace.objects.filter(pk=workspace.pk))
    return 1


@transaction.atomic
def _warn_workspace(workspace: Workspace, days: int) -> int:
    rows = Workspace.objects.filter(pk=workspace.pk, expires_at=workspace.expires_at)
    if not rows.filter(Q(warned_days=None) | Q(warned_days__gt=days)).update(warned_days=days):
        return 0  # renewed meanwhile, or another worker has said it
    words = f"The workspace {workspace} is suspended on {workspace.expires_at:%d %b %Y %H:%M} UTC unless it is renewed"
    note(NoticeKind.EXPIRY_AHEAD, words, actor=WORKER, workspace=workspace)
    return 1


@transaction.atomic
def _warn_member(membership: Membership, days: int) -> int:
    rows = Membership.objects.filter(pk=membership.pk, expires_at=membership.expires_at)
    if not rows.filter(Q(warned_days=None) | Q(warned_days__gt=days)).update(warned_days=days):
        return 0
    name = membership.tenant_id
    words = f"Your membership in {name} ends on {membership.expires_at:%d %b %Y %H:%M} UTC; an owner can renew it"
    note(NoticeKind.EXPIRY_AHEAD, words, actor=WORKER, tenant=name, user=membership.user)
    return 1


def _check_end(actor: Actor, workspace: Workspace, expires_at: datetime | None, now: datetime) -> None:
    role = role_of(actor, workspace.tenant_id)
    manages = role is not None and role_at_least(role, Role.ADMIN)
    if not manages:
        if workspace.expires_at is None:
            raise Forbidden("It has no end; an admin of the tenant may give it one.", kind="workspaces")
        if expires_at is None or expires_at > now + timedelta(days=RENEWED_DAYS_MAX):
            raise Forbidden(f"You may renew it for {RENEWED_DAYS_MAX} days; admins for longer.", kind="workspaces")
    if expires_at is not None and not timedelta(0) < expires_at - now <= timedelta(days=_DAYS_MAX):
        causes = [Cause("FieldValueInvalid", f"Between now and {_DAYS_MAX} days ahead.", "expires_at")]
        raise Invalid(f"Workspace is invalid: {causes[0].message}", kind="Workspace", causes=causes)
