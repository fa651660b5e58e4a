"""Makes a workspace true on its cluster, one step after the other, each as often as it takes (GW1).

Rights come last: nobody may do anything in the namespace before its quota is counted there. Every step reads first,
creates what is missing, repairs what is ours and differs, and never touches what is not ours.

The order of the steps is what makes them safe:

0. ``shown``: the tenant's space shows the namespace, on its way; the end shows it as active.
1. ``old-accounts``: what tokens from before a suspension rest on goes before anything is given back, and the tenant's own
   accounts are made anew where the suspension had not come to it.
2. ``namespace``, ``network-policy``, ``quota``, ``limits``: the fences, while nobody may do anything behind them.
3. ``quota-counted``: a quota is enforced only once the cluster has counted it; until then any number of pods fits.
4. ``service-accounts``: new ones, with new uids, to which no old token is bound.
5. ``old-tokens``: a cluster remembers for some seconds what it has accepted. No right is given before that is over, or
   an old token would have it.
6. ``role-bindings``, ``restored-bindings``: the rights.
7. The end opens the lock, in the transaction that shows the workspace as ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants.clusters import objects
from tenants.clusters.client import Outcome, object_path
from tenants.models import Cluster, Phase, Status, Workspace
from tenants.operationqueue import OperationLease, Refused, Retry, database_now, raise_for_outcome
from tenants.placednamespaces import NameTaken, placed_namespace_show
from tenants.reconciler import closing, ownaccounts
from tenants.suspensions import workspace_unlock

_QUOTA_WAIT_SECONDS = 0.3


def perform(lease: OperationLease) -> None:
    """Everything that ``Desired.READY`` means, from the first step that is not done."""
    lease.step("shown", show)
    lease.step("old-accounts", _old_accounts)
    lease.step("namespace", _namespace)
    lease.step("network-policy", _network_policy)
    lease.step("quota", quota_set)
    lease.step("limits", _limits)
    lease.step("quota-counted", quota_counted)
    lease.step("service-accounts", _service_accounts)
    lease.step("old-tokens", _old_tokens)
    lease.step("role-bindings", _role_bindings)
    lease.step("restored-bindings", _restored_bindings)
    lease.finish(_ready)


def show(lease: OperationLease) -> None:
    """Show the workspace as a Namespace of its tenant's space, as far as it is now (GW18). Raises ``Refused``."""
    try:
        placed_namespace_show(lease.workspace)
    except NameTaken as error:
        raise Refused(str(error)) from None


def ensure(lease: OperationLease, path: str, collection: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object at ``path``, made if it is missing.

    Raises ``Refused`` when somebody else's object is in the way, ``Retry`` when nobody can tell yet.
    """
    answer = lease.client.get(path)
    if answer.outcome is Outcome.ABSENT:
        answer = lease.client.create(collection, body)
        if answer.outcome in {Outcome.EXISTS, Outcome.UNKNOWN}:
            # Ours from an attempt whose answer got lost, or a stranger's: a read tells.
            answer = lease.client.get(path)
            if answer.outcome is Outcome.ABSENT:
                raise Retry("The cluster did not keep what was created.")
    found = raise_for_outcome(answer).body
    metadata = answer.metadata
    name = path.rpartition("/")[2]
    if not objects.is_ours(lease.workspace, metadata):
        raise Refused(f"There is already a {body['kind']} {name} on the cluster that was not made for this workspace.")
    if metadata.get("deletionTimestamp"):
        raise Retry(f"The {body['kind']} {name} is still being deleted on the cluster.", 1.0)
    return found


def _remove(lease: OperationLease, path: str, *, uid: str = "") -> None:
    """Delete and read back; raises ``Retry`` while it is still there: a DELETE's 200 proves nothing."""
    raise_for_outcome(lease.client.delete(path, uid=uid), absent_is_fine=True)
    if raise_for_outcome(lease.client.get(path), absent_is_fine=True).outcome is not Outcome.ABSENT:
        raise Retry("The cluster has not let go of it yet.", 0.5)


def _old_accounts(lease: OperationLease) -> Mapping[str, Any] | None:
    """Take away what tokens from before a suspension rest on, however far the suspension has come (P5).

    Accounts that are not the ones that were made are taken for old ones too: a restored backup brings such back.
    """
    workspace = lease.workspace
    spent = workspace.accounts_spent or _are_others(lease)
    if not spent:
        return None
    if closing.namespace_exists(lease):
        closing.remove_bindings(lease)
        if workspace.accounts_spent:
            ownaccounts.renew(lease)
        gone_at: datetime | None = closing.remove_accounts(lease)
    else:
        gone_at = database_now() if workspace.namespace_uid else None
    return {"accounts_spent": False, "service_accounts": {}, "accounts_gone_at": gone_at}


def _are_others(lease: OperationLease) -> bool:
    workspace = lease.workspace
    for account, uid in workspace.service_accounts.items():
        answer = raise_for_outcome(
            lease.client.get(objects.path(workspace, "serviceaccounts", account)), absent_is_fine=True
        )
        if answer.outcome is Outcome.DONE and answer.metadata.get("uid") != uid:
            return True
    return False


def _old_tokens(lease: OperationLease) -> None:
    """Give no right while the cluster may still accept a token of the accounts that were taken away."""
    if (left := closing.tokens_remembered(lease.workspace)) > 0:
        raise Retry("Waiting until the cluster accepts no token from before.", left)


def _namespace(lease: OperationLease) -> Mapping[str, Any]:
    workspace = lease.workspace
    collection = object_path("", "v1", "namespaces")
    path, wanted = objects.namespace_path(workspace), objects.namespace(workspace)
    current = raise_for_outcome(lease.client.get(path), absent_is_fine=True)
    if current.outcome is Outcome.DONE and workspace.namespace_uid == current.metadata.get("uid"):
        # By its identity it is ours: labels that somebody took off or changed come back.
        found = current.body
        if not objects.is_marked(found, wanted):
            marks = {key: wanted["metadata"][key] for key in ("labels", "annotations")}
            found = raise_for_outcome(lease.client.patch(path, {"metadata": marks})).body
    else:
        found = ensure(lease, path, collection, wanted)
    return {"namespace_uid": str(found["metadata"].get("uid", ""))[:64]}


def _network_policy(lease: OperationLease) -> None:
    wanted = objects.network_policy(lease.workspace)
    path = objects.path(lease.workspace, "networkpolicies", objects.NETWORK_POLICY)
    found = ensure(lease, path, objects.path(lease.workspace, "networkpolicies"), wanted)
    if found.get("spec") != wanted["spec"]:
        raise_for_outcome(lease.client.patch(path, {"spec": wanted["spec"]}))


def quota_set(lease: OperationLease) -> None:
    """Make the quota as the tier has it, or as a stopped workspace's must be."""
    wanted = objects.resource_quota(lease.workspace)
    path = objects.path(lease.workspace, "resourcequotas", objects.QUOTA)
    found = ensure(lease, path, objects.path(lease.workspace, "resourcequotas"), wanted)
    hard = _hard(found, "spec")
    if hard != wanted["spec"]["hard"]:
        # A merge patch keeps what it does not name: limits that the tier no longer has are set to null.
        patch = {**dict.fromkeys(hard), **wanted["spec"]["hard"]}
        raise_for_outcome(lease.client.patch(path, {"spec": {"hard": patch}}))


def _limits(lease: OperationLease) -> None:
    wanted = objects.limit_range(lease.workspace)
    path = objects.path(lease.workspace, "limitranges", objects.LIMITS)
    found = ensure(lease, path, objects.path(lease.workspace, "limitranges"), wanted)
    if (found.get("spec") or {}).get("limits") != wanted["spec"]["limits"]:
        raise_for_outcome(lease.client.patch(path, {"spec": wanted["spec"]}))


def quota_counted(lease: OperationLease) -> None:
    """Wait until the cluster enforces the quota: 20 pods slipped in before it in a trial without this."""
    path = objects.path(lease.workspace, "resourcequotas", objects.QUOTA)
    found = raise_for_outcome(lease.client.get(path)).body
    if lease.workspace.cluster.kind == Cluster.Kind.EMBEDDED:
        # Our own API server counts by the spec, in the transaction of the write.
        return
    if not _hard(found, "spec").keys() <= _hard(found, "status").keys():
        raise Retry("Waiting for the cluster to count the quota.", _QUOTA_WAIT_SECONDS)


def _service_accounts(lease: OperationLease) -> Mapping[str, Any]:
    accounts = {}
    collection = objects.path(lease.workspace, "serviceaccounts")
    for name in objects.ACCOUNTS.values():
        path = objects.path(lease.workspace, "serviceaccounts", name)
        found = ensure(lease, path, collection, objects.service_account(lease.workspace, name))
        accounts[name] = str(found["metadata"].get("uid", ""))[:64]
    return {"service_accounts": accounts}


def _role_bindings(lease: OperationLease) -> None:
    collection = objects.path(lease.workspace, "rolebindings")
    for name, wanted in objects.role_bindings(lease.workspace).items():
        path = objects.path(lease.workspace, "rolebindings", name)
        found = ensure(lease, path, collection, wanted)
        if not objects.is_binding(found, wanted):
            # What the cluster would refuse to make must not cost the binding that works.
            probe = lease.client.create(f"{collection}?dryRun=All", wanted)
            if probe.outcome is not Outcome.EXISTS:
                raise_for_outcome(probe)
            # A roleRef cannot be changed, and a subject that was added must not stay a moment longer.
            _remove(lease, path, uid=str(found["metadata"].get("uid", "")))
            raise_for_outcome(lease.client.create(collection, wanted))
    for name in sorted(objects.unwanted_bindings(lease.workspace)):
        path = objects.path(lease.workspace, "rolebindings", name)
        answer = raise_for_outcome(lease.client.get(path), absent_is_fine=True)
        if answer.outcome is not Outcome.ABSENT and objects.is_ours(lease.workspace, answer.metadata):
            _remove(lease, path, uid=str(answer.metadata.get("uid", "")))


def _restored_bindings(lease: OperationLease) -> Mapping[str, Any] | None:
    """Bring back what a suspension took away; what the cluster does not let us bind stays in the row, to be seen."""
    workspace = lease.workspace
    if not workspace.saved_bindings:
        return None
    left = []
    own = objects.OWNED[objects.RBAC, "rolebindings"]
    for saved in workspace.saved_bindings:
        name = saved["metadata"]["name"]
        if name in own:
            continue
        answer = lease.client.create(objects.path(workspace, "rolebindings"), saved)
        if answer.outcome is Outcome.DENIED:
            left.append({**saved, "refused": answer.message})
        elif answer.outcome is not Outcome.EXISTS:
            raise_for_outcome(answer)
    return {"saved_bindings": left}


def _ready(workspace: Workspace) -> None:
    resumed = workspace.phase == Phase.RESUMING
    first = workspace.ready_at is None
    workspace.phase = Phase.READY
    workspace.ready_at = workspace.ready_at or timezone.now()
    if workspace.status == Status.ACTIVE:
        workspace_unlock(workspace)
    if first or resumed:
        WORKER.record(
            Action.WORKSPACE_READY,
            chain=workspace.tenant_id,
            target=f"workspaces/{workspace}",
            workspace_id=workspace.id,
            detail={"resumed": resumed, "serviceAccounts": workspace.service_accounts},
        )
    placed_namespace_show(workspace)


def _hard(quota: Mapping[str, Any], part: str) -> dict[str, Any]:
    section = quota.get(part)
    hard = section.get("hard") if isinstance(section, dict) else None
    return hard if isinstance(hard, dict) else {}
