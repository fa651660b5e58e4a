"""Makes a suspension true on the cluster, layer by layer, each proved by a read and measured (GW5, P4).

The lock in the database refuses from the first moment; ``tenants.reconciler.closing`` takes the direct way to the cluster. What
was opened there before is not cut by that: the receipt says so, and ``Workspace.stopped`` ends the pods as well.

1. The service that suspends has committed the lock, so every API server of the product refuses already. All that is
   done here is for the direct way to the cluster.
2. The layers end rights (``closing``). Until all of them are proved the workspace is shown as being suspended, never as
   suspended.
3. ``held`` is the promise: the phase, the credentials' revocation and the audit entry with the receipt are committed in
   one transaction.
4. The tenant's own ServiceAccounts are made anew (``ownaccounts``). They have no right in the namespace by now, and so
   hold up nothing; but their tokens would have it again after a resume.
5. Pods come last, for they carry no rights of people: first the quota allows none and is seen to be counted, so that
   nothing brings them back; then they are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from audit.actions import Action
from audit.recorder import WORKER
from tenants.clusters import objects
from tenants.models import Cluster, Phase, Status, Workspace
from tenants.openstreams import streams_into
from tenants.operationqueue import OperationLease, Retry, database_now, raise_for_outcome
from tenants.reconciler import closing, ownaccounts
from tenants.reconciler.provisioning import quota_counted, quota_set, show

_REPORTED: Final = timedelta(seconds=10)
"""Within which the API servers have reported what they ended."""

GRACE_SECONDS: Final = 30
"""What a pod gets to end by itself, whatever it asks for."""

_EMBEDDED: Final = "There is no other way in."
_DIRECT: Final = (
    "Pods run on. What was opened straight at the cluster goes on: shells, logs -f and port-forwards until their pod "
    'or connection ends, watches for an hour at most. "And stop everything" ends the pods, and these with them.'
)
_STOPPED: Final = "Watches that were opened straight at the cluster go on, for an hour at most; they show what is left."


def perform(lease: OperationLease) -> None:
    """Everything that ``Desired.SUSPENDED`` means."""
    closing.run_layers(lease, closing.LAYERS)
    lease.step(*closing.ANCHORS)
    lease.step("held", _goes_on, _held)
    lease.step("shown", show)
    lease.step("own-accounts", ownaccounts.renew)
    if lease.workspace.stopped:
        lease.step("pods-ended", pods_end)
    lease.finish(_concluded)


def pods_end(lease: OperationLease) -> Mapping[str, Any]:
    """End the pods and let none begin: the quota allows none, so that what owns them brings them back on resume.

    Raises ``Retry`` until the cluster lists none, or none but those whose time is over: an object that a finalizer
    keeps runs nothing.
    """
    workspace = lease.workspace
    if not closing.namespace_exists(lease):
        return closing.receipt(workspace, "pods-ended", note="there is no namespace")
    quota_set(lease)
    quota_counted(lease)
    answer = raise_for_outcome(lease.client.delete_all(objects.path(workspace, "pods"), grace_seconds=GRACE_SECONDS))
    # Who may not list is not told what was deleted on the product's own API server; nothing runs there.
    found = answer.body.get("items") or []
    ends_at = [str((item.get("metadata") or {}).get("deletionTimestamp") or "~") for item in found]
    if ends_at and max(ends_at) > f"{database_now():%Y-%m-%dT%H:%M:%SZ}":
        raise Retry(f"Waiting for {len(found)} pods to end.", 1.0)
    left = f"; the objects of {len(found)} are kept by finalizers" if found else ""
    return closing.receipt(workspace, "pods-ended", note=f"none runs, and none can begin{left}")


def _goes_on(lease: OperationLease) -> Mapping[str, Any]:
    """How many streams through Tenantry ended, and what the layers do not end, said as it is.

    The API servers end them by themselves. Raises ``Retry`` until they have reported so, or had ``_REPORTED`` to do it:
    what an operator has open goes on.
    """
    workspace = lease.workspace
    embedded = workspace.cluster.kind == Cluster.Kind.EMBEDDED
    left, lock = streams_into(workspace), workspace.receipt[0]
    if left and database_now() - datetime.fromisoformat(lock["at"]) < _REPORTED:
        raise Retry(f"Waiting for {left} streams to end.", 0.2)
    ended = max(0, lock.get("streams", 0) - left)
    cut = f"Streams through Tenantry: {ended} ended{f', {left} go on' if left else ''}."
    note = _EMBEDDED if embedded else _STOPPED if workspace.stopped else _DIRECT
    return closing.receipt(workspace, "streams", note=f"{cut} {note}", verified=embedded and not left)


def _held(workspace: Workspace) -> None:
    """Nobody has a right any more: from here on it is shown as suspended."""
    workspace.phase = Phase.SUSPENDED
    closing.credentials_conclude(workspace, by=workspace.suspended_by)
    WORKER.record(
        Action.WORKSPACE_SUSPENSION_HELD,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={"receipt": workspace.receipt},
    )


def _concluded(workspace: Workspace) -> None:
    if workspace.status == Status.SUSPENDED:
        workspace.phase = Phase.SUSPENDED
