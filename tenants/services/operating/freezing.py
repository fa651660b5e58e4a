"""Holding a tenant or a workspace still: its people read on and write nothing, until an operator or a date says so (GW28)."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction

from audit.actions import Action
from audit.recorder import WORKER, Actor
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Conflict
from tenants.models import Freeze, NoticeKind, Status, Tenant, TenantState, Workspace
from tenants.naming import check_text, check_until
from tenants.notices import note
from tenants.rights import require_operator, require_retained, tenant_locked
from tenants.services.sweeping import apart
from tenants.services.workspaces import workspace_locked
from tenants.suspensions import freeze_clear, freeze_set, installation_closed

_BATCH: Final = 200


@transaction.atomic
def tenant_freeze(*, actor: Actor, name: str, reason: str, until: datetime | None = None) -> Freeze:
    """Refuse every write in a tenant's space and in all its workspaces, from the commit on. Operators only.

    Reads, watches and what is running go on, and so do credentials; what of them writes past the API server is said by
    ``portal.pages.freezing``. Again, with other words, the newest count. ``until`` is when a worker ends it. Raises
    ``NotFound``, ``Forbidden``, ``Invalid`` without a reason, ``Conflict`` for one that is being deleted, and for the
    operators' own.
    """
    require_operator(actor)
    tenant = tenant_locked(name)
    if tenant.state == TenantState.TERMINATING or name == SYSTEM_TENANT:
        raise Conflict(f"The tenant {name} cannot be frozen.", kind="tenants", name=name)
    # Credentials are made under their workspaces' locks: one that is being made is out before the answer, or never.
    there = tenant.workspaces.exclude(status=Status.DELETED).order_by("id")
    list(there.select_for_update(no_key=True).values_list("pk", flat=True))
    return _freeze(actor, tenant, None, reason, until)


@transaction.atomic
def workspace_freeze(*, actor: Actor, workspace_id: UUID, reason: str, until: datetime | None = None) -> Freeze:
    """The same for one workspace. Raises as ``tenant_freeze`` does."""
    require_operator(actor)
    workspace = workspace_locked(actor, workspace_id)
    if workspace.status == Status.DELETED:
        raise Conflict("The workspace is deleted.", kind="workspaces", name=str(workspace_id))
    return _freeze(actor, workspace.tenant, workspace, reason, until)


@transaction.atomic
def tenant_thaw(*, actor: Actor, name: str) -> bool:
    """Let its people write again; workspaces that were frozen by themselves stay so. Whether it was frozen.

    Operators only. Raises ``NotFound``, ``Forbidden``, ``Conflict`` while it leaves.
    """
    require_operator(actor)
    tenant = tenant_locked(name)
    require_retained(tenant)
    return _thaw(actor, tenant, None)


@transaction.atomic
def workspace_thaw(*, actor: Actor, workspace_id: UUID) -> bool:
    """The same for one workspace; while its tenant is frozen it stays still. Raises ``NotFound``, ``Forbidden``."""
    require_operator(actor)
    workspace = workspace_locked(actor, workspace_id)
    return _thaw(actor, workspace.tenant, workspace)


def freezes_end(*, now: datetime) -> int:
    """End those whose time is over; how many. Nothing while the platform is closed after a restore (a worker's sweep)."""
    if installation_closed():
        return 0
    ended = 0
    # What holds a leaving tenant still ends with its leaving.
    over = Freeze.objects.filter(until__lte=now).exclude(workspace=None, tenant__offboarding__isnull=False)
    for pk, tenant in list(over.values_list("pk", "tenant_id")[:_BATCH]):
        with apart(f"the end of freeze {pk}"), transaction.atomic():
            # Somebody may have said otherwise since: the newest word counts.
            locked = tenant_locked(tenant)
            found = over.select_related("workspace").filter(pk=pk).first()
            ended += found is not None and _thaw(WORKER, locked, found.workspace)
    return ended


def _freeze(actor: Actor, tenant: Tenant, workspace: Workspace | None, reason: str, until: datetime | None) -> Freeze:
    kind = "Workspace" if workspace else "Tenant"
    reason = check_text(reason, field="reason", kind=kind, limit=512, required=True)
    check_until(until, kind=kind)
    namespace = workspace.k8s_namespace if workspace else ""
    before = Freeze.objects.filter(space=tenant.cluster_path, namespace=namespace).first()
    if before is not None and (before.reason, before.until) == (reason, until):
        return before
    made = freeze_set(tenant=tenant, workspace=workspace, reason=reason, by=actor.name, until=until)
    detail: dict[str, object] = {"reason": reason, "until": until and until.isoformat()}
    _record(actor, frozen=True, tenant=tenant, workspace=workspace, detail=detail)
    if before is None:
        words = f"The {kind.lower()} {workspace or tenant} can only be read: {reason}"
        note(NoticeKind.WORKSPACE_SUSPENDED, words, actor=actor, tenant=tenant, workspace=workspace)
    return made


def _thaw(actor: Actor, tenant: Tenant, workspace: Workspace | None) -> bool:
    if not freeze_clear(tenant, workspace):
        return False
    _record(actor, frozen=False, tenant=tenant, workspace=workspace, detail={})
    words = f"The {'workspace' if workspace else 'tenant'} {workspace or tenant} can be written to again"
    note(NoticeKind.WORKSPACE_RESUMED, words, actor=actor, tenant=tenant, workspace=workspace)
    return True


def _record(
    actor: Actor, *, frozen: bool, tenant: Tenant, workspace: Workspace | None, detail: dict[str, object]
) -> None:
    if workspace is not None:
        actor.record(
            Action.WORKSPACE_FROZEN if frozen else Action.WORKSPACE_THAWED,
            chain=tenant.pk,
            target=f"workspaces/{workspace}",
            workspace_id=workspace.pk,
            detail=detail,
        )
    else:
        action = Action.TENANT_FROZEN if frozen else Action.TENANT_THAWED
        actor.record(action, chain=tenant.pk, target=f"tenants/{tenant.pk}", detail=detail)
