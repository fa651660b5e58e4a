"""The objects behind a workspace, as pure functions of its rows: fixed names, our labels, nothing random (GW1).

On a cluster they are ours only if they carry both labels; anything else is foreign and never adopted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.quantities import parse_quantity
from tenants.clusters import object_path
from tenants.models import Workspace

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PRODUCT: Final = "tenantry"
WORKSPACE_LABEL: Final = "tenantry.io/workspace"
ANCHOR_TYPE: Final = "tenantry.io/token-anchor"
QUOTA: Final = "tenantry-quota"
LIMITS: Final = "tenantry-limits"
RBAC: Final = "rbac.authorization.k8s.io"

ACCOUNTS: Final = {"admin": "sa-tenant-admin", "editor": "sa-tenant-edit", "viewer": "sa-tenant-view"}
"""The ServiceAccount of each role that a credential may have. ``sa-tenant-admin`` is the seed's."""

_BINDINGS: Final = {"admin": "tenantry-admin", "editor": "tenantry-edit", "viewer": "tenantry-view"}
_ROLES: Final = {"editor": "tenantry-tenant-edit", "viewer": "tenantry-tenant-view"}


def labels_of(workspace: Workspace) -> dict[str, str]:
    """What marks an object as this workspace's."""
    return {MANAGED_BY: PRODUCT, WORKSPACE_LABEL: str(workspace.id)}


def is_ours(workspace: Workspace, metadata: dict[str, Any]) -> bool:
    """Whether an object with this metadata was made for this workspace."""
    labels = metadata.get("labels")
    return isinstance(labels, dict) and labels_of(workspace).items() <= labels.items()


def namespace(workspace: Workspace) -> dict[str, Any]:
    """The namespace, with Pod Security on: a privileged pod would leave every other fence behind."""
    labels = {
        **labels_of(workspace),
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "restricted",
    }
    annotations = {"tenantry.io/tenant": workspace.tenant_id, "tenantry.io/name": workspace.name}
    metadata = {"name": workspace.k8s_namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def resource_quota(workspace: Workspace) -> dict[str, Any]:
    """The tier's quota, as a cluster writes it."""
    return _object(workspace, "v1", "ResourceQuota", QUOTA, spec={"hard": _canonical(workspace.tier.quota)})


def limit_range(workspace: Workspace) -> dict[str, Any]:
    """The tier's limits: without defaults every plain pod would be refused under the quota."""
    limits = [
        {name: _canonical(value) if isinstance(value, dict) else value for name, value in limit.items()}
        for limit in workspace.tier.limit_range
    ]
    return _object(workspace, "v1", "LimitRange", LIMITS, spec={"limits": limits})


def service_account(workspace: Workspace, name: str) -> dict[str, Any]:
    """An account for issued tokens; pods that run as it get no token mounted."""
    return _object(workspace, "v1", "ServiceAccount", name, automountServiceAccountToken=False)


def role_bindings(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """The three bindings by name: each account to its role, in this namespace alone."""
    found = {}
    for role, account in ACCOUNTS.items():
        target = workspace.cluster.tenant_role if role == "admin" else _ROLES[role]
        found[_BINDINGS[role]] = _object(
            workspace,
            f"{RBAC}/v1",
            "RoleBinding",
            _BINDINGS[role],
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": target},
            subjects=[{"kind": "ServiceAccount", "name": account, "namespace": workspace.k8s_namespace}],
        )
    return found


def anchor(workspace: Workspace, name: str, account: str, account_uid: str) -> dict[str, Any]:
    """The Secret that one token is bound to; it goes with its ServiceAccount."""
    body = _object(workspace, "v1", "Secret", name, type=ANCHOR_TYPE, immutable=True)
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": account, "uid": account_uid}
    body["metadata"]["ownerReferences"] = [owner]
    return body


def path(workspace: Workspace, resource: str, name: str | None = None, *, sub: str = "") -> str:
    """The URL path of something in the workspace's namespace."""
    group, version = (RBAC, "v1") if resource == "rolebindings" else ("", "v1")
    return object_path(group, version, resource, namespace=workspace.k8s_namespace, name=name, sub=sub)


def namespace_path(workspace: Workspace) -> str:
    """The URL path of the namespace itself."""
    return object_path("", "v1", "namespaces", name=workspace.k8s_namespace)


def _canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    """Amounts as a cluster reads them back, 1000 as 1k: written otherwise they would look changed for ever."""
    return {resource: str(parse_quantity(amount)) for resource, amount in amounts.items()}


def _object(workspace: Workspace, api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": workspace.k8s_namespace, "labels": labels_of(workspace)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
