"""What workers do when they are woken: due operations, drift, tenants at their end."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants.models import Cluster, Desired, Operation, OperationState, Phase, Status, Workspace
from tenants.operationqueue import OperationLease, operation_requeue, operations_due, run_one
from tenants.reconciler import deletion, provisioning, suspension
from tenants.reconciler.drift import drift_of
from tenants.services.clusters import cluster_check
from tenants.services.sweeping import apart

_PERFORM: Final = {
    Desired.READY: provisioning.perform,
    Desired.SUSPENDED: suspension.perform,
    Desired.DELETED: deletion.perform,
}
_RECONCILE_BATCH: Final = 200
_RECHECK_BATCH: Final = 10
_LANES_MOST: Final = 16
_LANES: Final = threading.BoundedSemaphore(_LANES_MOST)
"""The threads of this process that work beside the sweeps: more than one tenant may keep busy."""


def operations_run(*, limit: int = 100, workspace_id: UUID | None = None) -> int:
    """Run due operations until there is none, or ``limit``; how many turns were taken."""
    turns = 0
    while turns < limit and run_one(_perform, workspace_id):
        turns += 1
    return turns


def operations_sweep() -> None:
    """Run due operations side by side until there is none."""
    due = operations_due(_LANES_MOST)
    threads: list[threading.Thread] = []
    while len(threads) < due - 1 and _LANES.acquire(blocking=False):
        threads.append(threading.Thread(target=_lane, name="operations"))
        threads[-1].start()
    operations_run()
    for thread in threads:
        thread.join()


def _lane() -> None:
    try:
        operations_run()
    finally:
        _LANES.release()
        connections.close_all()


def workspace_reconcile(workspace_id: UUID) -> list[str]:
    """Compare one workspace with its cluster and wake its operation if they differ; what differs, in words (GW15)."""
    workspace = Workspace.objects.select_related("tenant", "tier", "cluster").filter(pk=workspace_id).first()
    if workspace is None or workspace.observed_generation != workspace.generation:
        # Its operation is on its way and will see for itself.
        return []
    if workspace.cluster.away_until is not None and workspace.cluster.away_until > timezone.now():
        return []
    found = drift_of(workspace)
    if not found:
        return []
    with transaction.atomic():
        current = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_id)
        if current.generation != workspace.generation or not operation_requeue(current):
            return []
        if current.phase == Phase.SUSPENDED:
            # Shown as suspended only while reads prove it.
            current.phase = Phase.SUSPENDING
            current.save(update_fields=["phase"])
        WORKER.record(
            Action.WORKSPACE_DRIFTED,
            chain=current.tenant_id,
            target=f"workspaces/{current}",
            workspace_id=current.id,
            detail={"found": found},
        )
    return found


def workspaces_reconcile(*, limit: int = _RECONCILE_BATCH, every: timedelta = timedelta(seconds=40)) -> int:
    """Reconcile the workspaces that were not looked at for the longest time; how many differed.

    Asked for every 10 s, it finds what changed within 50 s; its repair begins with the next sweep.

    Every workspace gets its turn; a failed operation is tried again by the sweep itself.
    """
    due = timezone.now() - every
    missing = ~Exists(
        Operation.objects.filter(
            workspace_id=OuterRef("pk"),
            generation=OuterRef("generation"),
        ).exclude(state=OperationState.SUPERSEDED)
    )
    rows = Workspace.objects.filter(Q(checked_at=None) | Q(checked_at__lt=due)).exclude(
        status=Status.DELETED, phase=Phase.DELETED
    )
    differed = 0
    for identifier in list(rows.order_by("checked_at").values_list("pk", flat=True)[:limit]):
        # Marked first: a workspace that kills its worker must not be the next worker's first one too.
        Workspace.objects.filter(pk=identifier).update(checked_at=timezone.now())
        with apart(f"looking at workspace {identifier}"):
            differed += bool(workspace_reconcile(identifier))
    # A workspace without an operation of its generation can only come from a restore: it gets one.
    for workspace in Workspace.objects.filter(missing).exclude(phase=Phase.DELETED)[:limit]:
        with apart(f"giving workspace {workspace.pk} its operation"):
            _give_operation(workspace)
    return differed


def clusters_recheck(*, every: timedelta = timedelta(hours=1)) -> int:
    """Check the clusters whose last check is old, and those that were never checked; how many were asked.

    Credentials near their end, fences taken away and new StorageClasses are found without anybody pressing a button.
    """
    now = timezone.now()
    rows = Cluster.objects.filter(Q(checked_at=None) | Q(checked_at__lt=now - every), sealed_credential__isnull=False)
    names = list(
        rows.exclude(away_until__gt=now).order_by("checked_at").values_list("name", flat=True)[:_RECHECK_BATCH]
    )
    for name in names:
        Cluster.objects.filter(name=name).update(checked_at=now)
        with apart(f"the check of cluster {name}"):
            cluster_check(actor=WORKER, name=name)
    return len(names)


def _give_operation(workspace: Workspace) -> None:
    desired = {
        Status.ACTIVE: Desired.READY,
        Status.SUSPENDED: Desired.SUSPENDED,
        Status.DELETED: Desired.DELETED,
    }[Status(workspace.status)]
    Operation.objects.get_or_create(
        workspace=workspace,
        generation=workspace.generation,
        defaults={"desired": desired, "requested_by": WORKER.name},
    )


def _perform(lease: OperationLease) -> None:
    _PERFORM[Desired(lease.operation.desired)](lease)
