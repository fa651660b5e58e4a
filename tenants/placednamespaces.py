"""Placed namespaces: a workspace on a registered cluster is a Namespace of its tenant's space (GW18).

The object is a function of the workspace's row and of what its tenant has written on it; whoever changes the row
calls ``placed_namespace_show`` last, in the same transaction. Its labels say where the namespace is and whose, its
phase how far the cluster is with it. Its uid is the workspace's: one that is made again is another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from django.utils import timezone

from store import synchronous
from store.types import Create, Delete, Key, Operation, PreconditionFailed, Stored, Update
from tenants.clusters.objects import CLUSTER_LABEL, NAME_ANNOTATION, TIER_ANNOTATION, WORKSPACE_LABEL
from tenants.models import Cluster, Phase, Status, Workspace

FINALIZER: Final = "tenantry.io/workspace"
"""Keeps the object until the cluster's namespace is gone."""

_PHASES: Final[Mapping[Phase, str]] = {
    Phase.PROVISIONING: "Pending",
    Phase.READY: "Active",
    Phase.SUSPENDING: "Suspended",
    Phase.SUSPENDED: "Suspended",
    Phase.RESUMING: "Pending",
    Phase.DELETING: "Terminating",
}


class NameTaken(Exception):
    """Something else in the space has the name; the text says so, for people."""


def is_placed(workspace: Workspace) -> bool:
    """Whether the workspace's objects live outside the store."""
    return workspace.cluster.kind == Cluster.Kind.EXTERNAL


def placed_namespace_key(workspace: Workspace) -> Key:
    """Where the Namespace object is kept."""
    return Key(workspace.tenant.cluster_path, "", "namespaces", "", workspace.k8s_namespace)


def placed_namespace_create(workspace: Workspace, body: Mapping[str, Any], held: Sequence[Operation]) -> Stored:
    """Write the Namespace of a new workspace as its tenant asked for it, together with what must hold.

    In the caller's transaction, and last. Raises ``PreconditionFailed``.
    """
    made = _shown(workspace, copy.deepcopy(dict(body)), timezone.now())
    return synchronous.commit([Create(placed_namespace_key(workspace), made), *held])[0]


def placed_namespace_show(workspace: Workspace) -> Stored | None:
    """Make the Namespace object what the workspace's row says; nothing when it is so, or where none belongs.

    In the caller's transaction, and last. The object, or ``None`` once it is gone. Raises ``NameTaken`` for one that is
    not closed or ending: these are held up by nothing.
    """
    if not is_placed(workspace):
        return None
    key = placed_namespace_key(workspace)
    while True:
        stored = synchronous.get(key)
        operation = _operation(workspace, stored)
        if operation is None:
            return stored
        try:
            kept = synchronous.commit([operation])
        except PreconditionFailed:
            continue
        return kept[0] if not isinstance(operation, Delete) else None


def placed_namespace_differs(workspace: Workspace) -> bool:
    """Whether the space shows something else than the row says."""
    if not is_placed(workspace):
        return False
    try:
        return _operation(workspace, synchronous.get(placed_namespace_key(workspace))) is not None
    except NameTaken:
        return True


def _operation(workspace: Workspace, stored: Stored | None) -> Operation | None:
    """What has to be written."""
    key, ended = placed_namespace_key(workspace), workspace.phase == Phase.DELETED
    if stored is None:
        return (
            None
            if workspace.status == Status.DELETED
            else Create(key, _shown(workspace, _empty(workspace), timezone.now()))
        )
    body = orjson.loads(stored.data)
    if (body["metadata"].get("labels") or {}).get(WORKSPACE_LABEL) != str(workspace.id):
        if workspace.status != Status.ACTIVE:
            return None
        raise NameTaken(f"There is already a Namespace {key.name} in the tenant's space.")
    if ended:
        return Delete(key, stored.revision, body)
    shown = _shown(workspace, copy.deepcopy(body), timezone.now())
    return Update(key, stored.revision, shown) if shown != body else None


def _empty(workspace: Workspace) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": workspace.k8s_namespace,
            "tenant": workspace.tenant_id,
            "selfLink": f"/api/v1/tenants/{workspace.tenant_id}/namespaces/{workspace.k8s_namespace}",
        },
    }


def _shown(workspace: Workspace, body: dict[str, Any], now: datetime) -> dict[str, Any]:
    """``body`` with what is ours in it; what the tenant has written besides stays."""
    metadata = body["metadata"]
    metadata["uid"] = str(workspace.id)
    metadata.setdefault("creationTimestamp", _stamp(now))
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "kubernetes.io/metadata.name": workspace.k8s_namespace,
        CLUSTER_LABEL: workspace.cluster.name,
        WORKSPACE_LABEL: str(workspace.id),
    }
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        NAME_ANNOTATION: workspace.name,
        TIER_ANNOTATION: workspace.tier_id,
    }
    phase = _PHASES[Phase(workspace.phase)]
    if phase == "Terminating":
        metadata.setdefault("deletionTimestamp", _stamp(now))
    body["spec"] = {**(body.get("spec") or {}), "finalizers": [FINALIZER]}
    body["status"] = {**(body.get("status") or {}), "phase": phase}
    return body


def _stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
