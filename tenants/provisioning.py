"""Makes a workspace true on its cluster, one step after the other, each as often as it takes (GW1).

Rights come last: nobody may do anything in the namespace before its quota is counted there. Every step reads first,
creates what is missing, repairs what is ours and differs, and never touches what is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants import blueprints
from tenants.clusters import Outcome, object_path
from tenants.models import Cluster, Phase, Status, Workspace
from tenants.operations import Refused, Retry, Turn, checked
from tenants.services import wishes

_QUOTA_WAIT_SECONDS = 0.3


def perform(turn: Turn) -> None:
    """Everything that ``Desired.READY`` means, from the first step that is not done."""
    turn.step("namespace", _namespace)
    turn.step("quota", _quota)
    turn.step("limits", _limits)
    turn.step("quota-counted", _quota_counted)
    turn.step("service-accounts", _service_accounts)
    turn.step("role-bindings", _role_bindings)
    turn.step("restored-bindings", _restored_bindings)
    turn.finish(_ready)


def ensure(turn: Turn, path: str, collection: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object at ``path``, made if it is missing.

    Raises ``Refused`` when somebody else's object is in the way, ``Retry`` when nobody can tell yet.
    """
    answer = turn.client.get(path)
    if answer.outcome is Outcome.ABSENT:
        answer = turn.client.create(collection, body)
        if answer.outcome in {Outcome.EXISTS, Outcome.UNKNOWN}:
            # Ours from an attempt whose answer got lost, or a stranger's: a read tells.
            answer = turn.client.get(path)
            if answer.outcome is Outcome.ABSENT:
                raise Retry("The cluster did not keep what was created.")
    found = checked(answer).body
    metadata = answer.metadata
    if not blueprints.is_ours(turn.workspace, metadata):
        name = metadata.get("name") or path.rsplit("/", 1)[-1]
        raise Refused(f"There is already a {body['kind']} {name} on the cluster that was not made for this workspace.")
    if metadata.get("deletionTimestamp"):
        raise Retry(f"The {body['kind']} {metadata.get('name')} is still being deleted on the cluster.", 1.0)
    return found


def remove(turn: Turn, path: str, *, uid: str = "") -> None:
    """Delete and read back; raises ``Retry`` while it is still there: a DELETE's 200 proves nothing."""
    checked(turn.client.delete(path, uid=uid), absent_is_fine=True)
    if checked(turn.client.get(path), absent_is_fine=True).outcome is not Outcome.ABSENT:
        raise Retry("The cluster has not let go of it yet.", 0.5)


def _namespace(turn: Turn) -> Mapping[str, Any]:
    workspace = turn.workspace
    collection = object_path("", "v1", "namespaces")
    found = ensure(turn, blueprints.namespace_path(workspace), collection, blueprints.namespace(workspace))
    return {"namespace_uid": str(found["metadata"].get("uid", ""))[:64]}


def _quota(turn: Turn) -> None:
    wanted = blueprints.resource_quota(turn.workspace)
    path = blueprints.path(turn.workspace, "resourcequotas", blueprints.QUOTA)
    found = ensure(turn, path, blueprints.path(turn.workspace, "resourcequotas"), wanted)
    hard = _hard(found, "spec")
    if hard != wanted["spec"]["hard"]:
        # A merge patch keeps what it does not name: limits that the tier no longer has are set to null.
        patch = {**dict.fromkeys(hard), **wanted["spec"]["hard"]}
        checked(turn.client.patch(path, {"spec": {"hard": patch}}))


def _limits(turn: Turn) -> None:
    wanted = blueprints.limit_range(turn.workspace)
    path = blueprints.path(turn.workspace, "limitranges", blueprints.LIMITS)
    found = ensure(turn, path, blueprints.path(turn.workspace, "limitranges"), wanted)
    if (found.get("spec") or {}).get("limits") != wanted["spec"]["limits"]:
        checked(turn.client.patch(path, {"spec": wanted["spec"]}))


def _quota_counted(turn: Turn) -> None:
    """Wait until the cluster enforces the quota: 20 pods slipped in before it in a trial without this."""
    path = blueprints.path(turn.workspace, "resourcequotas", blueprints.QUOTA)
    found = checked(turn.client.get(path)).body
    if turn.workspace.cluster.kind == Cluster.Kind.EMBEDDED:
        # Our own API server counts by the spec, in the transaction of the write.
        return
    if not _hard(found, "spec").keys() <= _hard(found, "status").keys():
        raise Retry("Waiting for the cluster to count the quota.", _QUOTA_WAIT_SECONDS)


def _service_accounts(turn: Turn) -> Mapping[str, Any]:
    accounts = {}
    collection = blueprints.path(turn.workspace, "serviceaccounts")
    for name in blueprints.ACCOUNTS.values():
        path = blueprints.path(turn.workspace, "serviceaccounts", name)
        found = ensure(turn, path, collection, blueprints.service_account(turn.workspace, name))
        accounts[name] = str(found["metadata"].get("uid", ""))[:64]
    return {"service_accounts": accounts}


def _role_bindings(turn: Turn) -> None:
    collection = blueprints.path(turn.workspace, "rolebindings")
    for name, wanted in blueprints.role_bindings(turn.workspace).items():
        path = blueprints.path(turn.workspace, "rolebindings", name)
        found = ensure(turn, path, collection, wanted)
        if found.get("roleRef") != wanted["roleRef"] or not _same_subjects(found, wanted):
            # A roleRef cannot be changed, and a subject that was added must not stay a moment longer.
            remove(turn, path, uid=str(found["metadata"].get("uid", "")))
            checked(turn.client.create(collection, wanted))


def _restored_bindings(turn: Turn) -> Mapping[str, Any] | None:
    """Bring back what a suspension took away; what the cluster does not let us bind stays in the row, to be seen."""
    workspace = turn.workspace
    if not workspace.saved_bindings:
        return None
    left = []
    own = blueprints.role_bindings(workspace)
    for saved in workspace.saved_bindings:
        name = saved["metadata"]["name"]
        if name in own:
            continue
        answer = turn.client.create(blueprints.path(workspace, "rolebindings"), saved)
        if answer.outcome is Outcome.DENIED:
            left.append({**saved, "refused": answer.message})
        elif answer.outcome is not Outcome.EXISTS:
            checked(answer)
    return {"saved_bindings": left}


def _ready(workspace: Workspace) -> None:
    resumed = workspace.phase == Phase.RESUMING
    first = workspace.ready_at is None
    workspace.phase = Phase.READY
    workspace.ready_at = workspace.ready_at or timezone.now()
    if workspace.status == Status.ACTIVE:
        wishes.open_door(workspace)
    if first or resumed:
        WORKER.record(
            Action.WORKSPACE_READY,
            chain=workspace.tenant_id,
            target=f"workspaces/{workspace}",
            workspace_id=workspace.id,
            detail={"resumed": resumed, "serviceAccounts": workspace.service_accounts},
        )


def _hard(quota: Mapping[str, Any], part: str) -> dict[str, Any]:
    section = quota.get(part)
    hard = section.get("hard") if isinstance(section, dict) else None
    return hard if isinstance(hard, dict) else {}


def _same_subjects(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    subjects = found.get("subjects")
    if not isinstance(subjects, list):
        return False
    plain = [{key: value for key, value in item.items() if value != ""} for item in subjects if isinstance(item, dict)]
    return bool(plain == wanted["subjects"])
