"""Compares a workspace with what is on its cluster: reads only, words as the answer (GW15)."""

from __future__ import annotations

from typing import Any

from tenants.clusters import objects
from tenants.clusters.client import Answer, ClusterClient, ClusterUnusable, Outcome, client_for
from tenants.models import Status, Workspace
from tenants.operationqueue import mark_unreachable
from tenants.placednamespaces import placed_namespace_differs
from tenants.reconciler.closing import is_revoked_by_closing


class _CannotTell(Exception):
    """The cluster did not answer; the operations know how to wait, a comparison does not."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.reached = answer.reached


def drift_of(workspace: Workspace) -> list[str]:
    """What is not as it should be; nothing when all is well or when the cluster does not say."""
    if placed_namespace_differs(workspace):
        return ["the tenant's space shows the namespace otherwise"]
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
        if workspace.status == Status.ACTIVE:
            return _active(client, workspace)
        if workspace.status == Status.SUSPENDED:
            return _suspended(client, workspace)
    except _CannotTell as error:
        if not error.reached:
            mark_unreachable(workspace.cluster, str(error))
        return []
    except ClusterUnusable:
        return []
    return []


def _active(client: ClusterClient, workspace: Workspace) -> list[str]:
    found = []
    namespace = _read(client, objects.namespace_path(workspace))
    if namespace is None:
        return ["the namespace is gone"]
    if namespace.get("metadata", {}).get("uid") != workspace.namespace_uid:
        return ["the namespace is not the one that was made"]
    if not objects.is_ours(workspace, namespace.get("metadata") or {}):
        # No fence holds where the label is missing: it comes back before anything else is looked at.
        return ["the namespace has lost its labels"]
    if not objects.is_marked(namespace, objects.namespace(workspace)):
        found.append("the namespace's pod security or other marks differ")
    policy = _read(client, objects.path(workspace, "networkpolicies", objects.NETWORK_POLICY))
    if policy is None or _spec(policy) != objects.network_policy(workspace)["spec"]:
        found.append("the NetworkPolicy differs from the tier's")
    quota = _read(client, objects.path(workspace, "resourcequotas", objects.QUOTA))
    if quota is None or _spec(quota) != objects.resource_quota(workspace)["spec"]:
        found.append("the quota differs from the tier's")
    limits = _read(client, objects.path(workspace, "limitranges", objects.LIMITS))
    if limits is None or _spec(limits) != objects.limit_range(workspace)["spec"]:
        found.append("the limits differ from the tier's")
    for account in objects.ACCOUNTS.values():
        body = _read(client, objects.path(workspace, "serviceaccounts", account))
        uid = str((body or {}).get("metadata", {}).get("uid", ""))
        if body is None or uid != workspace.service_accounts.get(account):
            found.append(f"the ServiceAccount {account} is not the one that was made")
    for name, wanted in objects.role_bindings(workspace).items():
        body = _read(client, objects.path(workspace, "rolebindings", name))
        if body is None or not objects.is_binding(body, wanted):
            found.append(f"the RoleBinding {name} differs")
    found += [
        f"the RoleBinding {name} is not the tier's"
        for name in sorted(objects.unwanted_bindings(workspace))
        if _read(client, objects.path(workspace, "rolebindings", name)) is not None
    ]
    return found


def _suspended(client: ClusterClient, workspace: Workspace) -> list[str]:
    """What would let somebody in again: a cluster restored from a backup, or a hand with rights."""
    if _read(client, objects.namespace_path(workspace)) is None:
        return []
    bindings = (_read(client, objects.path(workspace, "rolebindings")) or {}).get("items") or []
    found = [
        f"the RoleBinding {item['metadata']['name']} is back"
        for item in bindings
        if is_revoked_by_closing(workspace, item)
    ]
    if workspace.stopped:
        quota = _read(client, objects.path(workspace, "resourcequotas", objects.QUOTA))
        if quota is None or _spec(quota) != objects.resource_quota(workspace)["spec"]:
            found.append("pods may run again")
    return found + [
        f"the ServiceAccount {account} is back"
        for account in objects.ACCOUNTS.values()
        if _read(client, objects.path(workspace, "serviceaccounts", account)) is not None
    ]


def _read(client: ClusterClient, path: str) -> dict[str, Any] | None:
    answer: Answer = client.get(path)
    if answer.outcome is Outcome.ABSENT:
        return None
    if answer.outcome is not Outcome.DONE:
        raise _CannotTell(answer)
    return answer.body


def _spec(body: dict[str, Any]) -> dict[str, Any]:
    spec = body.get("spec")
    return spec if isinstance(spec, dict) else {}
