"""Ends workspaces and tenants on their clusters; done is what a read shows to be gone (TS1)."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants import spaces
from tenants.clusters import objects
from tenants.clusters.client import Outcome
from tenants.models import Lock, Phase, Status, Tenant, TenantState, Workspace
from tenants.operationqueue import OperationLease, Refused, Retry, raise_for_outcome
from tenants.placednamespaces import placed_namespace_show
from tenants.reconciler import closing
from tenants.reconciler.provisioning import show
from tenants.reconciler.suspension import GRACE_SECONDS
from tenants.services.sweeping import apart
from tenants.suspensions import lock_clear
from tenants.usagesampling import usage_conclude


def perform(lease: OperationLease) -> None:
    """Everything that ``Desired.DELETED`` means.

    It begins as a suspension does: a pod with a year of grace or a finalizer may hold the namespace, but no right in
    it. A right that is held does not keep the namespace from being deleted.
    """
    held = ""
    try:
        closing.run_layers(lease, closing.LAYERS)
        lease.step("held", _held)
    except Retry as error:
        if not error.reached:
            raise
        held = f"{error} "
    except Refused as error:
        held = f"{error} "
    lease.step("shown", show)
    lease.step("namespace-deleted", _delete_namespace)
    try:
        lease.step("namespace-gone", _namespace_gone)
    except Retry as error:
        raise Retry(f"{held}{error}", error.after, reached=error.reached) from None
    lease.finish(_gone)


def _held(lease: OperationLease) -> None:
    closing.credentials_conclude(lease.workspace, by=lease.operation.requested_by)


def _delete_namespace(lease: OperationLease) -> None:
    workspace = lease.workspace
    path = objects.namespace_path(workspace)
    answer = raise_for_outcome(lease.client.get(path), absent_is_fine=True)
    if answer.outcome is Outcome.ABSENT:
        return
    uid = str(answer.metadata.get("uid", ""))
    if uid != workspace.namespace_uid and not objects.is_ours(workspace, answer.metadata):
        # Somebody else's: it was there before us, or came after.
        return
    raise_for_outcome(lease.client.delete(path, uid=uid), absent_is_fine=True)


def _namespace_gone(lease: OperationLease) -> None:
    if not closing.namespace_exists(lease):
        return
    # Nothing new can be made in it by now. A pod gets no more time than it needs, whatever it asks for; a role of the
    # gateway from before that refuses it only makes the end later.
    lease.client.delete_all(objects.path(lease.workspace, "pods"), grace_seconds=GRACE_SECONDS)
    raise Retry("The cluster is still deleting what is in the namespace.", 1.0)


def _gone(workspace: Workspace) -> None:
    now = timezone.now()
    workspace.phase, workspace.deleted_at = Phase.DELETED, now
    workspace.service_accounts, workspace.saved_bindings = {}, []
    credentials = workspace.credentials
    credentials.filter(revoked_at=None, failed_at=None).update(revoked_at=now, revoked_by="system:worker")
    credentials.filter(revocation_confirmed_at=None).update(revocation_confirmed_at=now)
    lock_clear(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace)
    WORKER.record(
        Action.WORKSPACE_GONE,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={"namespace": workspace.k8s_namespace},
    )
    placed_namespace_show(workspace)


def tenants_end() -> int:
    """End the terminating tenants whose workspaces are all gone: space, objects, rows; how many were ended.

    Resumable at any point: the row goes last. One whose object has finalizers is emptied, and waits for those who have
    set them. What goes wrong with one keeps no other.
    """
    ended = 0
    names = Tenant.objects.filter(state=TenantState.TERMINATING).values_list("name", flat=True)
    for name in list(names):
        left = Workspace.objects.filter(tenant_id=name).exclude(status=Status.DELETED, phase=Phase.DELETED)
        with apart(f"the end of tenant {name}"):
            if not left.exists() and _space_end(name):
                ended += _tenant_end(name)
    return ended


def _space_end(name: str) -> bool:
    """Empty the tenant's space, some objects in a transaction; whether it is empty, and not another worker's to do."""
    while True:
        with transaction.atomic():
            if _taken(name, no_key=True) is None:
                return False
            if not spaces.space_empty(name):
                return True


def _taken(name: str, *, no_key: bool) -> Tenant | None:
    """The terminating tenant, locked, against references too unless with ``no_key``; ``None`` where another worker is at it."""
    rows = Tenant.objects.select_for_update(skip_locked=True, no_key=no_key)
    return rows.filter(name=name, state=TenantState.TERMINATING).first()


@transaction.atomic
def _tenant_end(name: str) -> bool:
    tenant = _taken(name, no_key=False)
    if tenant is None or spaces.tenant_is_held(name):
        return False
    usage_conclude(name, now=timezone.now())
    # Audit entries name what they tell of by value and stay.
    Workspace.objects.filter(tenant=tenant).delete()
    for lock in Lock.objects.filter(space=tenant.cluster_path):
        lock_clear(space=lock.space, namespace=lock.namespace)
    tenant.delete()
    WORKER.record(Action.TENANT_ENDED, chain=name, target=f"tenants/{name}")
    # What a system user wrote since is little; the store is locked by it until this transaction ends.
    while spaces.space_empty(name):
        pass
    spaces.tenant_object_delete(name)
    return True
