"""Makes a suspension true on the cluster, layer by layer, each proved by a read and measured (GW5, P4).

The lock in the database refuses from the first moment; what follows closes the direct way to the cluster. Open
watches at a real API server survive all of it until their own end: only streams through the gateway can be cut.
A workspace is SUSPENDED only after the canary, a token of its own, was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from audit.actions import Action
from audit.recorder import WORKER
from tenants import blueprints
from tenants.clusters import Answer, Outcome
from tenants.models import Phase, Status, Workspace
from tenants.operations import Retry, Turn, checked
from tenants.provisioning import remove

_CANARY_SECONDS = 600
_REFUSED_CODES = frozenset({401, 403})


def perform(turn: Turn) -> None:
    """Everything that ``Desired.SUSPENDED`` means."""
    turn.step("bindings", _bindings)
    turn.step("canary", _canary)
    turn.step("anchors", _anchors)
    turn.step("service-accounts", _service_accounts)
    turn.finish(_suspended)


def _bindings(turn: Turn) -> Mapping[str, Any]:
    """Delete every RoleBinding of the namespace, not only ours: deleting only ours leaves back doors."""
    workspace = turn.workspace
    if _namespace_is_gone(turn):
        return _receipt(workspace, "bindings", note="there is no namespace")
    collection = blueprints.path(workspace, "rolebindings")
    items = _items(checked(turn.client.get(collection)))
    # The copy is kept before the first deletion, and one of an earlier attempt is added to, never replaced.
    saved = {binding["metadata"]["name"]: binding for binding in workspace.saved_bindings}
    saved |= {item["metadata"]["name"]: _copy(item) for item in items}
    turn.keep(saved_bindings=list(saved.values())[:500])
    for item in items:
        path = blueprints.path(workspace, "rolebindings", item["metadata"]["name"])
        checked(turn.client.delete(path, uid=str(item["metadata"].get("uid", ""))), absent_is_fine=True)
    held = [item["metadata"]["name"] for item in _items(checked(turn.client.get(collection)))]
    if held:
        # A finalizer set by the tenant keeps a "deleted" binding alive: 200 was no proof.
        raise Retry(f"RoleBindings are still on the cluster: {', '.join(held)[:200]}", 0.5)
    return _receipt(workspace, "bindings", note=f"{len(saved)} deleted")


def _canary(turn: Turn) -> Mapping[str, Any]:
    """Ask the cluster, as the workspace's own account, whether it may still do anything."""
    workspace = turn.workspace
    if _namespace_is_gone(turn):
        return _receipt(workspace, "canary", note="there is no namespace")
    for account in blueprints.ACCOUNTS.values():
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _CANARY_SECONDS},
        }
        answer = turn.client.create(blueprints.path(workspace, "serviceaccounts", account, sub="token"), body)
        if answer.outcome is Outcome.ABSENT:
            continue
        token = str((checked(answer).body.get("status") or {}).get("token") or "")
        for verb, resource in (("list", "pods"), ("get", "secrets"), ("create", "configmaps")):
            attributes = {"namespace": workspace.k8s_namespace, "verb": verb, "resource": resource}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            said = turn.client.ask_as(token, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            if said.code in _REFUSED_CODES:
                continue
            status = checked(said).body.get("status")
            if not isinstance(status, dict) or status.get("allowed") is not False:
                raise Retry(f"{account} may still {verb} {resource} on the cluster.", 0.5)
    return _receipt(workspace, "canary", note="refused")


def _anchors(turn: Turn) -> Mapping[str, Any]:
    """Delete the anchors of every issued credential.

    Credentials are kept by the floor above; their rows point here, so the names are read without knowing that floor.
    """
    workspace = turn.workspace
    names = list(workspace.credentials.filter(revocation_confirmed_at=None).values_list("anchor", flat=True))
    for name in names:
        path = blueprints.path(workspace, "secrets", name)
        # The gateway may not read secrets; that a second deletion finds nothing is the proof.
        checked(turn.client.delete(path), absent_is_fine=True)
        if checked(turn.client.delete(path), absent_is_fine=True).outcome is not Outcome.ABSENT:
            raise Retry("A token's anchor is still on the cluster.", 0.5)
    return _receipt(workspace, "anchors", note=f"{len(names)} deleted")


def _service_accounts(turn: Turn) -> Mapping[str, Any]:
    """Delete the accounts: every token of theirs is dead within the API server's cache of 10 s, and stays dead (P5)."""
    for account in blueprints.ACCOUNTS.values():
        remove(turn, blueprints.path(turn.workspace, "serviceaccounts", account))
    return {**_receipt(turn.workspace, "service-accounts", note="deleted"), "service_accounts": {}}


def _suspended(workspace: Workspace) -> None:
    if workspace.status != Status.SUSPENDED:
        return
    workspace.phase = Phase.SUSPENDED
    now = timezone.now()
    credentials = workspace.credentials
    credentials.filter(revoked_at=None, failed_at=None, expires_at__gt=now).update(
        revoked_at=now, revoked_by=workspace.suspended_by
    )
    credentials.filter(revocation_confirmed_at=None).update(revocation_confirmed_at=now)
    WORKER.record(
        Action.WORKSPACE_SUSPENSION_HELD,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail={"receipt": workspace.receipt},
    )


def _namespace_is_gone(turn: Turn) -> bool:
    answer = checked(turn.client.get(blueprints.namespace_path(turn.workspace)), absent_is_fine=True)
    return answer.outcome is Outcome.ABSENT


def _receipt(workspace: Workspace, layer: str, *, note: str) -> dict[str, Any]:
    """The receipt with one more layer: when it was proved, and how long after the switch was pulled."""
    now = datetime.now(UTC)
    since = workspace.suspended_at or now
    entry = {
        "layer": layer,
        "at": now.isoformat(),
        "milliseconds": int((now - since).total_seconds() * 1000),
        "verified": True,
        "note": note,
    }
    return {"receipt": [*(item for item in workspace.receipt if item["layer"] != layer), entry]}


def _items(answer: Answer) -> list[dict[str, Any]]:
    items = answer.body.get("items")
    if not isinstance(items, list):
        raise Retry("The cluster's list was not a list.")
    found = [item for item in items if isinstance(item, dict) and isinstance(item.get("metadata"), dict)]
    if len(found) != len(items) or not all(item["metadata"].get("name") for item in found):
        raise Retry("The cluster's list was not a list of objects.")
    if answer.metadata.get("continue"):
        raise Retry("The cluster's list was cut short.")
    return found


def _copy(binding: Mapping[str, Any]) -> dict[str, Any]:
    """What it takes to make the binding again."""
    metadata = binding["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    kept.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return {
        "apiVersion": f"{blueprints.RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": kept,
        "roleRef": binding.get("roleRef"),
        "subjects": binding.get("subjects") or [],
    }
