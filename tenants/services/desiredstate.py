"""What a workspace shall be: its desired state in the row, its lock and the operation that brings it about, in the caller's transaction.

Every request is a new generation; workers of an older one can no longer commit (GW15). The caller holds the workspace's
row lock and records the event.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Final

from celery import current_app
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from audit.recorder import Actor
from tenants.models import Cluster, Desired, Operation, OperationState, Phase, Status, Workspace
from tenants.openstreams import streams_into
from tenants.operationqueue import operations_retry_now
from tenants.suspensions import freeze_clear, lock_set

EXPIRY: Final = Actor(name="system:expiry", operator=True)
"""Whoever suspends what nobody has renewed; by this name a renewal knows what it may open again."""


def request_ready(workspace: Workspace, actor: Actor) -> Operation:
    """Make it as its rows say: after creation, and after a change of its tier or of the tier itself."""
    workspace.phase = Phase.PROVISIONING if workspace.ready_at is None else workspace.phase
    return _next_generation(workspace, actor, Desired.READY)


def request_suspended(
    workspace: Workspace,
    actor: Actor,
    reason: str,
    *,
    with_tenant: bool = False,
    stop: bool = False,
    until: datetime | None = None,
) -> Operation:
    """Close it: refused from the commit on, proved on the cluster by the worker (GW5); with ``stop`` its pods end too.

    One that is being deleted is closed once more, layer by layer, and goes on ending.
    """
    _close(workspace)
    workspace.suspended_reason, workspace.suspended_by = reason, actor.name
    workspace.suspended_at, workspace.suspended_until = timezone.now(), until
    lock_set(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace, reason=reason)
    if workspace.status == Status.DELETED:
        return _next_generation(workspace, actor, Desired.DELETED)
    workspace.status, workspace.phase = Status.SUSPENDED, Phase.SUSPENDING
    workspace.suspended_with_tenant, workspace.stopped = with_tenant, stop
    return _next_generation(workspace, actor, Desired.SUSPENDED)


def request_stopped(workspace: Workspace, actor: Actor) -> Operation:
    """End the pods of a suspended one as well."""
    workspace.stopped = True
    return _next_generation(workspace, actor, Desired.SUSPENDED)


def request_resumed(workspace: Workspace, actor: Actor) -> Operation:
    """Bring it back with new accounts, whatever the suspension had reached; then the door opens."""
    workspace.status, workspace.phase = Status.ACTIVE, Phase.RESUMING
    workspace.suspended_reason, workspace.suspended_at, workspace.suspended_by = "", None, ""
    workspace.suspended_until = None
    workspace.suspended_with_tenant, workspace.stopped = False, False
    return _next_generation(workspace, actor, Desired.READY)


def request_deleted(workspace: Workspace, actor: Actor) -> Operation:
    """End it: refused from the commit on, closed on the cluster as by a suspension, the row stays as deleted."""
    _close(workspace)
    workspace.status, workspace.phase = Status.DELETED, Phase.DELETING
    workspace.suspended_at, workspace.suspended_with_tenant = None, False
    # The namespace's name may serve another.
    freeze_clear(workspace.tenant, workspace)
    # The key may serve again once its workspace is gone.
    workspace.idempotency_key = ""
    lock_set(
        space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace, reason="The workspace is being deleted."
    )
    return _next_generation(workspace, actor, Desired.DELETED)


def retry_now(workspaces: QuerySet[Workspace]) -> None:
    """Try again now what waits; the cluster is taken for reachable."""
    Cluster.objects.filter(workspaces__in=workspaces).exclude(away_until=None).update(away_until=None)
    operations_retry_now(workspaces=workspaces)
    transaction.on_commit(enqueue_sweep)


def enqueue_sweep() -> None:
    """Tell workers to look; nothing depends on it, the sweep finds every due operation (GW15)."""
    # Redis may be away: the operation is in PostgreSQL all the same.
    # A worker whose clock is ahead takes it for late, and waits for beat.
    with contextlib.suppress(Exception):
        current_app.send_task("tenants.operations_sweep", retry=False, expires=30)


def _next_generation(workspace: Workspace, actor: Actor, desired: Desired) -> Operation:
    workspace.generation += 1
    workspace.save()
    live = [OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED]
    workspace.operations.filter(state__in=live).update(state=OperationState.SUPERSEDED, finished_at=timezone.now())
    return Operation.objects.create(
        workspace=workspace, desired=desired, generation=workspace.generation, requested_by=actor.name[:254]
    )


def _close(workspace: Workspace) -> None:
    """A new receipt, which begins with how many streams it cuts; and whatever was issued so far must never work again."""
    workspace.receipt = [{**_layer("lock", timezone.now()), "streams": streams_into(workspace)}]
    workspace.accounts_spent, workspace.renewed_accounts = True, []


def _layer(name: str, at: datetime) -> dict[str, object]:
    return {"layer": name, "at": at.isoformat(), "milliseconds": 0, "verified": True}
