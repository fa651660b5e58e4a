"""The objects behind a workspace, as pure functions of its rows: fixed names, our labels, nothing random (GW1).

On a cluster they are ours only if they carry both labels; anything else is foreign and never adopted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kube.authorization import placedrights
from kube.policies.policy import Names
from kube.quota.quantities import parse_quantity
from tenants.clusters.client import object_path
from tenants.models import Cluster, Network, Workspace
from tenants.policies import policy_of_workspace

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PRODUCT: Final = "tenantry"
POD_SECURITY: Final = "pod-security.kubernetes.io/"
WORKSPACE_LABEL: Final = placedrights.WORKSPACE_LABEL
CLUSTER_LABEL: Final = placedrights.CLUSTER_LABEL
"""On a Namespace of a space: where its objects live (GW18)."""
EVERYTHING: Final = "*"
"""In an annotation that tells the fences what is open."""
NAME_ANNOTATION: Final = "tenantry.io/name"
TIER_ANNOTATION: Final = "tenantry.io/tier"
DEFAULT_TIER: Final = "tenantry.io/default-tier"
"""Annotation of Tenant objects, which operators write: the tier of its namespaces that say none."""
ANCHOR_TYPE: Final = "tenantry.io/token-anchor"
QUOTA: Final = "tenantry-quota"
LIMITS: Final = "tenantry-limits"
NETWORK_POLICY: Final = "tenantry-default"
TENANT_LABEL: Final = "tenantry.io/tenant"
INGRESS_LABEL: Final = "tenantry.io/ingress"
"""Operators mark the namespaces of ingress controllers and monitoring with it: they reach every workspace."""
RBAC: Final = "rbac.authorization.k8s.io"
NETWORKING: Final = "networking.k8s.io"
STORAGE: Final = "storage.k8s.io"

ACCOUNTS: Final = {"admin": "sa-tenant-admin", "editor": "sa-tenant-edit", "viewer": "sa-tenant-view"}
"""The ServiceAccount of each role that a credential may have. ``sa-tenant-admin`` is named in GW1's interface."""

ANCHOR_PREFIX: Final = "tenantry-anchor-"
NAMESPACE: Final[re.Pattern[str]] = re.compile(r"tenant-[0-9a-f]{8,32}")
"""What namespaces of workspaces are called where nobody has chosen a name, and nothing else is."""

_GROUPS: Final = {"rolebindings": RBAC, "networkpolicies": NETWORKING}
_OUTSIDE: Final = {
    "0.0.0.0/0": ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    "::/0": ("fc00::/7", "fe80::/10"),
}
_BINDINGS: Final = {"admin": "tenantry-admin", "editor": "tenantry-edit", "viewer": "tenantry-view"}
PROXY: Final = "tenantry-proxy"
PROXY_ROLE: Final = "tenantry-tenant-proxy"
"""The RoleBinding, and its ClusterRole, of workspaces whose tier opens the proxy: to the account that can bind nobody else."""

_ROLES: Final = {"editor": "tenantry-tenant-edit", "viewer": "tenantry-tenant-view"}

OWNED: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("", "serviceaccounts"): frozenset(ACCOUNTS.values()),
    ("", "resourcequotas"): frozenset({QUOTA}),
    ("", "limitranges"): frozenset({LIMITS}),
    (RBAC, "rolebindings"): frozenset({*_BINDINGS.values(), PROXY}),
    (NETWORKING, "networkpolicies"): frozenset({NETWORK_POLICY}),
}
"""What a workspace owns in its namespace, by name: the gateway's alone to make, change or delete (``fences.yaml``)."""


def is_own_account(namespace: str, name: str) -> bool:
    """Whether a service account is a workspace's own: what it holds is for whom the gateway gives it to, and nobody else."""
    return NAMESPACE.fullmatch(namespace) is not None and name in OWNED["", "serviceaccounts"]


def tier_of_namespace(namespace: Mapping[str, Any] | None, tenant: Mapping[str, Any] | None) -> str:
    """The tier of the workspace that a Namespace is; else the one that an operator has given to the tenant's others.

    Nobody else's word for it counts. Empty where there is none.
    """
    metadata = (namespace or {}).get("metadata") or {}
    annotation, of = TIER_ANNOTATION, metadata
    if WORKSPACE_LABEL not in (metadata.get("labels") or {}):
        annotation, of = DEFAULT_TIER, (tenant or {}).get("metadata") or {}
    return str((of.get("annotations") or {}).get(annotation, ""))


def labels_of(workspace: Workspace) -> dict[str, str]:
    """What marks an object as this workspace's."""
    return {MANAGED_BY: PRODUCT, WORKSPACE_LABEL: str(workspace.id)}


def is_ours(workspace: Workspace, metadata: dict[str, Any]) -> bool:
    """Whether an object with this metadata was made for this workspace."""
    labels = metadata.get("labels")
    return isinstance(labels, dict) and labels_of(workspace).items() <= labels.items()


def is_marked(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an object carries the labels and annotations that it was made with."""
    metadata = found.get("metadata") or {}
    return all(
        wanted["metadata"][key].items() <= (metadata.get(key) or {}).items() for key in ("labels", "annotations")
    )


def is_binding(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a RoleBinding gives the wanted role to the wanted subject, and to nobody else."""
    subjects = found.get("subjects")
    if found.get("roleRef") != wanted["roleRef"] or not isinstance(subjects, list):
        return False
    plain = [{key: value for key, value in item.items() if value != ""} for item in subjects if isinstance(item, dict)]
    return bool(plain == wanted["subjects"])


def namespace(workspace: Workspace) -> dict[str, Any]:
    """The namespace, with Pod Security on: a privileged pod would leave every other fence behind.

    Its annotations tell the fences what is open to this workspace (``manifests/fences.yaml``).
    """
    labels = {
        **labels_of(workspace),
        TENANT_LABEL: workspace.tenant_id,
        f"{POD_SECURITY}enforce": workspace.tier.pod_security,
        f"{POD_SECURITY}warn": "restricted",
    }
    domain = workspace.cluster.ingress_domain
    policy = policy_of_workspace(workspace)
    annotations = {
        TENANT_LABEL: workspace.tenant_id,
        NAME_ANNOTATION: workspace.name,
        TIER_ANNOTATION: workspace.tier_id,
        "tenantry.io/hosts": f"{workspace.tenant_id}.{domain}" if domain else "",
        "tenantry.io/network": workspace.tier.network,
        "tenantry.io/events": "limited" if workspace.cluster.limits_events else "",
        "tenantry.io/storage-classes": ",".join(workspace.cluster.storage_classes),
        "tenantry.io/priority-classes": opened(policy.priority_classes),
        "tenantry.io/node-names": opened(policy.node_names),
        "tenantry.io/node-labels": opened(policy.node_labels),
        "tenantry.io/affinity-namespaces": opened(policy.affinity_namespaces),
        "tenantry.io/tolerations": opened(policy.tolerations),
    }
    metadata = {"name": workspace.k8s_namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def opened(names: Names) -> str:
    """What a rule allows, as the fences read it."""
    return EVERYTHING if names is None else ",".join(names)


def resource_quota(workspace: Workspace) -> dict[str, Any]:
    """The tier's quota, as a cluster writes it; without pods where everything was stopped."""
    stopped = {"pods": "0"} if workspace.stopped else {}
    hard = _canonical({**workspace.tier.quota, **stopped})
    return _object(workspace, "v1", "ResourceQuota", QUOTA, spec={"hard": hard})


def limit_range(workspace: Workspace) -> dict[str, Any]:
    """The tier's limits: without defaults every plain pod would be refused under the quota."""
    limits = [
        {name: _canonical(value) if isinstance(value, dict) else value for name, value in limit.items()}
        for limit in workspace.tier.limit_range
    ]
    return _object(workspace, "v1", "LimitRange", LIMITS, spec={"limits": limits})


def network_policy(workspace: Workspace) -> dict[str, Any]:
    """Who reaches the workspace's pods, and what they reach: the tenant's own and DNS, unless the tier opens more."""
    own = {"namespaceSelector": {"matchLabels": {TENANT_LABEL: workspace.tenant_id}}}
    ingress: list[dict[str, Any]] = [{"from": [own, {"namespaceSelector": {"matchLabels": {INGRESS_LABEL: "true"}}}]}]
    dns = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    egress: list[dict[str, Any]] = [{"to": [own]}, {"to": [dns], "ports": ports}]
    if workspace.tier.network == Network.INTERNET:
        egress.append({"to": [{"ipBlock": {"cidr": cidr, "except": list(inner)}} for cidr, inner in _OUTSIDE.items()]})
    if workspace.tier.network == Network.OPEN:
        ingress, egress = [{}], [{}]
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress}
    return _object(workspace, f"{NETWORKING}/v1", "NetworkPolicy", NETWORK_POLICY, spec=spec)


def service_account(workspace: Workspace, name: str) -> dict[str, Any]:
    """An account for issued tokens; pods that run as it get no token mounted."""
    return _object(workspace, "v1", "ServiceAccount", name, automountServiceAccountToken=False)


def roles_on(cluster: Cluster) -> dict[str, str]:
    """The ClusterRole that each role of a workspace is on a cluster."""
    return {**_ROLES, "admin": cluster.tenant_role}


def role_bindings(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """The bindings by name: each account to its role, in this namespace alone, and one to the proxy where the tier opens it."""
    roles = roles_on(workspace.cluster)
    found = {
        _BINDINGS[role]: _role_binding(workspace, _BINDINGS[role], roles[role], account)
        for role, account in ACCOUNTS.items()
    }
    # Nothing listens in a workspace of the product's own API server.
    if workspace.tier.proxies and workspace.cluster.kind == Cluster.Kind.EXTERNAL:
        found[PROXY] = _role_binding(workspace, PROXY, PROXY_ROLE, ACCOUNTS["editor"])
    return found


def unwanted_bindings(workspace: Workspace) -> frozenset[str]:
    """Names of its own RoleBindings that it must not have."""
    if workspace.cluster.kind == Cluster.Kind.EMBEDDED:
        return frozenset()
    return OWNED[RBAC, "rolebindings"] - role_bindings(workspace).keys()


def _role_binding(workspace: Workspace, name: str, role: str, account: str) -> dict[str, Any]:
    return _object(
        workspace,
        f"{RBAC}/v1",
        "RoleBinding",
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": workspace.k8s_namespace}],
    )


def anchor(workspace: Workspace, name: str, account: str, account_uid: str) -> dict[str, Any]:
    """The Secret that one token is bound to; it goes with its ServiceAccount."""
    body = _object(workspace, "v1", "Secret", name, type=ANCHOR_TYPE, immutable=True)
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": account, "uid": account_uid}
    body["metadata"]["ownerReferences"] = [owner]
    return body


def path(workspace: Workspace, resource: str, name: str | None = None, *, sub: str = "") -> str:
    """The URL path of something in the workspace's namespace."""
    group = _GROUPS.get(resource, "")
    return object_path(group, "v1", resource, namespace=workspace.k8s_namespace, name=name, sub=sub)


def namespace_path(workspace: Workspace) -> str:
    """The URL path of the namespace itself."""
    return object_path("", "v1", "namespaces", name=workspace.k8s_namespace)


def _canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    """Amounts as a cluster reads them back, 1000 as 1k: written otherwise they would look changed for ever."""
    return {resource: str(parse_quantity(amount)) for resource, amount in amounts.items()}


def _object(workspace: Workspace, api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": workspace.k8s_namespace, "labels": labels_of(workspace)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
