"""What a workspace shall be: the row, its lock and the operation that brings it about, in the caller's transaction.

Every wish is a new generation; workers of an older one can no longer commit (GW15). The caller holds the workspace's
row lock and records the event.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from django.utils import timezone

from audit.recorder import Actor
from tenants.locks import lock_clear, lock_set
from tenants.models import Desired, Operation, OperationState, Phase, Status, Workspace


def wish_ready(workspace: Workspace, actor: Actor) -> Operation:
    """Make it as its rows say: after creation, and after a change of its tier or of the tier itself."""
    workspace.phase = Phase.PROVISIONING if workspace.ready_at is None else workspace.phase
    return _next_generation(workspace, actor, Desired.READY)


def wish_suspended(workspace: Workspace, actor: Actor, reason: str, *, with_tenant: bool = False) -> Operation:
    """Close it: refused from the commit on, proved on the cluster by the worker (GW5)."""
    now = timezone.now()
    workspace.status, workspace.phase = Status.SUSPENDED, Phase.SUSPENDING
    workspace.suspended_reason, workspace.suspended_at, workspace.suspended_by = reason, now, actor.name
    workspace.suspended_with_tenant = with_tenant
    workspace.receipt = [_layer("lock", now)]
    lock_set(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace, reason=reason)
    return _next_generation(workspace, actor, Desired.SUSPENDED)


def wish_resumed(workspace: Workspace, actor: Actor) -> Operation:
    """Bring it back; the door opens when the worker has made the new ServiceAccounts."""
    workspace.status, workspace.phase = Status.ACTIVE, Phase.RESUMING
    workspace.suspended_reason, workspace.suspended_at, workspace.suspended_by = "", None, ""
    workspace.suspended_with_tenant = False
    return _next_generation(workspace, actor, Desired.READY)


def wish_deleted(workspace: Workspace, actor: Actor) -> Operation:
    """End it: refused from the commit on, the row stays as deleted."""
    workspace.status, workspace.phase = Status.DELETED, Phase.DELETING
    workspace.suspended_at, workspace.suspended_with_tenant = None, False
    # The key may serve again once its workspace is gone.
    workspace.idempotency_key = ""
    lock_set(
        space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace, reason="The workspace is being deleted."
    )
    return _next_generation(workspace, actor, Desired.DELETED)


def open_door(workspace: Workspace) -> None:
    """Remove the lock of a workspace that is ready."""
    lock_clear(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace)


def wake() -> None:
    """Tell workers to look; nothing depends on it, the sweep finds every due operation (GW15)."""
    from tenants.tasks import operations_sweep

    # Redis may be away: the operation is in PostgreSQL all the same.
    with contextlib.suppress(Exception):
        operations_sweep.apply_async(retry=False, expires=30)


def _next_generation(workspace: Workspace, actor: Actor, desired: Desired) -> Operation:
    workspace.generation += 1
    workspace.save()
    live = [OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED]
    workspace.operations.filter(state__in=live).update(state=OperationState.SUPERSEDED, finished_at=timezone.now())
    return Operation.objects.create(
        workspace=workspace, desired=desired, generation=workspace.generation, requested_by=actor.name[:254]
    )


def _layer(name: str, at: datetime) -> dict[str, object]:
    return {"layer": name, "at": at.isoformat(), "milliseconds": 0, "verified": True}
