"""Ends workspaces and tenants on their clusters; done is what a read shows to be gone (TS1)."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants import blueprints, spaces
from tenants.clusters import Outcome
from tenants.locks import lock_clear
from tenants.models import Lock, Phase, Status, Tenant, TenantState, Workspace
from tenants.operations import Refused, Retry, Turn, checked


def perform(turn: Turn) -> None:
    """Everything that ``Desired.DELETED`` means."""
    turn.step("namespace-deleted", _delete_namespace)
    turn.step("namespace-gone", _namespace_gone)
    turn.finish(_gone)


def _delete_namespace(turn: Turn) -> None:
    path = blueprints.namespace_path(turn.workspace)
    answer = checked(turn.client.get(path), absent_is_fine=True)
    if answer.outcome is Outcome.ABSENT:
        return
    if not blueprints.is_ours(turn.workspace, answer.metadata):
        if not turn.workspace.namespace_uid:
            # It was there before us, so nothing of this workspace was ever made.
            return
        raise Refused(f"The namespace {turn.workspace.k8s_namespace} is no longer marked as this workspace's.")
    uid = str(answer.metadata.get("uid", ""))
    checked(turn.client.delete(path, uid=uid), absent_is_fine=True)


def _namespace_gone(turn: Turn) -> None:
    answer = checked(turn.client.get(blueprints.namespace_path(turn.workspace)), absent_is_fine=True)
    if answer.outcome is not Outcome.ABSENT and blueprints.is_ours(turn.workspace, answer.metadata):
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


def tenants_end() -> int:
    """End the terminating tenants whose workspaces are all gone: space, objects, rows; how many were ended.

    Resumable at any point: the row goes last.
    """
    ended = 0
    names = Tenant.objects.filter(state=TenantState.TERMINATING).values_list("name", flat=True)
    for name in list(names):
        left = Workspace.objects.filter(tenant_id=name).exclude(status=Status.DELETED, phase=Phase.DELETED)
        if not left.exists():
            spaces.space_empty(name)
            _tenant_end(name)
            ended += 1
    return ended


@transaction.atomic
def _tenant_end(name: str) -> None:
    tenant = Tenant.objects.select_for_update().filter(name=name, state=TenantState.TERMINATING).first()
    if tenant is None:
        return
    # Audit entries name what they tell of by value and stay.
    Workspace.objects.filter(tenant=tenant).delete()
    for lock in Lock.objects.filter(space=tenant.cluster_path):
        lock_clear(space=lock.space, namespace=lock.namespace)
    tenant.delete()
    WORKER.record(Action.TENANT_ENDED, chain=name, target=f"tenants/{name}")
    # What a system user wrote since is little; the store is locked by it until this transaction ends.
    spaces.space_empty(name)
    spaces.tenant_object_delete(name)
