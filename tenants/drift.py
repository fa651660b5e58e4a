"""Compares a workspace with what is on its cluster: reads only, words as the answer (GW15)."""

from __future__ import annotations

from typing import Any

from tenants import blueprints
from tenants.clusters import Answer, ClusterClient, ClusterUnusable, Outcome, client_for
from tenants.models import Status, Workspace
from tenants.operations import keep_off


class _CannotTell(Exception):
    """The cluster did not answer; the operations know how to wait, a comparison does not."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.reached = answer.reached


def drift_of(workspace: Workspace) -> list[str]:
    """What is not as it should be; nothing when all is well or when the cluster does not say."""
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
        if workspace.status == Status.ACTIVE:
            return _active(client, workspace)
        if workspace.status == Status.SUSPENDED:
            return _suspended(client, workspace)
    except _CannotTell as error:
        if not error.reached:
            keep_off(workspace.cluster, str(error))
        return []
    except ClusterUnusable:
        return []
    return []


def _active(client: ClusterClient, workspace: Workspace) -> list[str]:
    found = []
    namespace = _read(client, blueprints.namespace_path(workspace))
    if namespace is None:
        return ["the namespace is gone"]
    if not blueprints.is_ours(workspace, namespace.get("metadata") or {}):
        return ["the namespace has lost its labels"]
    quota = _read(client, blueprints.path(workspace, "resourcequotas", blueprints.QUOTA))
    if quota is None or _spec(quota) != blueprints.resource_quota(workspace)["spec"]:
        found.append("the quota differs from the tier's")
    limits = _read(client, blueprints.path(workspace, "limitranges", blueprints.LIMITS))
    if limits is None or _spec(limits) != blueprints.limit_range(workspace)["spec"]:
        found.append("the limits differ from the tier's")
    for account in blueprints.ACCOUNTS.values():
        body = _read(client, blueprints.path(workspace, "serviceaccounts", account))
        uid = str((body or {}).get("metadata", {}).get("uid", ""))
        if body is None or uid != workspace.service_accounts.get(account):
            found.append(f"the ServiceAccount {account} is not the one that was made")
    for name, wanted in blueprints.role_bindings(workspace).items():
        body = _read(client, blueprints.path(workspace, "rolebindings", name))
        if body is None or body.get("roleRef") != wanted["roleRef"] or len(body.get("subjects") or []) != 1:
            found.append(f"the RoleBinding {name} differs")
    return found


def _suspended(client: ClusterClient, workspace: Workspace) -> list[str]:
    """What would let somebody in again: a cluster restored from a backup, or a hand with rights."""
    if _read(client, blueprints.namespace_path(workspace)) is None:
        return []
    bindings = _read(client, blueprints.path(workspace, "rolebindings"))
    found = [f"the RoleBinding {item['metadata']['name']} is back" for item in (bindings or {}).get("items", [])]
    return found + [
        f"the ServiceAccount {account} is back"
        for account in blueprints.ACCOUNTS.values()
        if _read(client, blueprints.path(workspace, "serviceaccounts", account)) is not None
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
