"""What people do about operations that do not end: hurry them, or give them up (GW15)."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Action
from audit.recorder import Actor
from kube.requests.status import Conflict, NotFound
from tenants.models import Desired, Operation, OperationState, Phase, Role, Status, Workspace
from tenants.naming import check_text
from tenants.operationqueue import operations_retry_now
from tenants.placednamespaces import placed_namespace_show
from tenants.rights import require_open, require_operator, require_role, tenant_locked
from tenants.services import desiredstate
from tenants.suspensions import lock_clear


@transaction.atomic
def operation_retry(*, actor: Actor, operation_id: UUID) -> Operation:
    """Try again now what waits for another attempt; when an operator asks, its cluster is taken for reachable.

    The workspace's own user, admins of the tenant, operators. What is being worked on is left alone. Raises
    ``NotFound``, ``Forbidden``, ``Conflict`` for an operation that has ended.
    """
    found = Operation.objects.select_related("workspace").filter(pk=operation_id).first()
    if found is None:
        raise _not_found(operation_id)
    workspace = found.workspace
    tenant = tenant_locked(workspace.tenant_id)
    workspace.refresh_from_db()
    found.refresh_from_db()
    require_role(actor, tenant.name, Role.VIEWER if workspace.user_id == actor.user_id else Role.ADMIN)
    if found.state in {OperationState.DONE, OperationState.SUPERSEDED}:
        raise Conflict("The operation has ended.", kind="operations", name=str(operation_id))
    if found.desired == Desired.READY:
        require_open(actor, tenant, workspace)
    mine = Workspace.objects.filter(pk=workspace.pk)
    if actor.operator:
        desiredstate.retry_now(mine)
    else:
        operations_retry_now(workspaces=mine)
        transaction.on_commit(desiredstate.enqueue_sweep)
    return Operation.objects.select_related("workspace__tenant", "workspace__cluster").get(pk=operation_id)


@transaction.atomic
def workspace_abandon(*, actor: Actor, workspace_id: UUID, reason: str) -> Workspace:
    """End a workspace that is being deleted without its cluster, which does not answer and will not come back.

    Nothing is done on the cluster: what is there stays, and tokens that it issued are good for it until they expire;
    the audit says so, and no credential is called confirmed. Operators only. Raises ``NotFound``, ``Forbidden``,
    ``Invalid`` without a reason, ``Conflict`` for one that is not being deleted, or whose cluster answers.
    """
    require_operator(actor)
    reason = check_text(reason, field="reason", kind="Workspace", limit=512, required=True)
    workspace = Workspace.objects.select_for_update(no_key=True, of=("self",)).filter(pk=workspace_id).first()
    if workspace is None:
        raise NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
    if workspace.status != Status.DELETED:
        words = "Only a workspace that is being deleted can be given up: delete it first."
        raise Conflict(words, kind="workspaces", name=str(workspace_id))
    if workspace.phase == Phase.DELETED:
        return workspace
    cluster = workspace.cluster
    if not cluster.last_error:
        words = f"The cluster {cluster.name} answers: a worker ends the workspace there."
        raise Conflict(words, kind="workspaces", name=str(workspace_id))
    now = timezone.now()
    # A new generation: a worker that still tries commits nothing from here on.
    workspace.generation += 1
    workspace.observed_generation = workspace.generation
    workspace.phase, workspace.deleted_at = Phase.DELETED, now
    workspace.service_accounts, workspace.saved_bindings = {}, []
    workspace.save()
    ended = [OperationState.DONE, OperationState.SUPERSEDED]
    workspace.operations.exclude(state__in=ended).update(state=OperationState.SUPERSEDED, finished_at=now)
    living = workspace.credentials.filter(failed_at=None, revocation_confirmed_at=None)
    until = living.order_by("-expires_at").values_list("expires_at", flat=True).exclude(expires_at=None).first()
    living.filter(revoked_at=None).update(revoked_at=now, revoked_by=actor.name[:254])
    lock_clear(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace)
    actor.record(
        Action.WORKSPACE_ABANDONED,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={
            "reason": reason,
            "cluster": cluster.name,
            "namespace": workspace.k8s_namespace,
            "tokens_until": until.isoformat() if until is not None and until > now else "",
        },
    )
    placed_namespace_show(workspace)
    return workspace


def _not_found(operation_id: UUID) -> NotFound:
    return NotFound(f'operations "{operation_id}" not found', kind="operations", name=str(operation_id))
