"""The bootstrap policy: what every Kubernetes cluster is born with, and the roles that Tenantry adds (KC7).

It is the RBAC of the logical cluster ``system:admin``, the fallback for every space, and its roles can be bound in any.
The rules of ``admin``, ``edit`` and ``view`` are those of Kubernetes and those of the workspace tree, aggregation done;
own ClusterRoles of a space with the usual labels still add to them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kube.authentication.identity import AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS, UNAUTHENTICATED
from kube.authorization.rbac import GROUP, Role, binding_from, role_from
from kube.authorization.rbacindex import PolicyIndex

READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
ALL: Final = READ + WRITE

WORKSPACE_ACCESS: Final = "system:kcp:workspace:access"
"""The ClusterRole that lets a user into a workspace (KC2)."""

TENANT_ADMIN: Final = "tenantry-tenant-admin"
TENANT_EDIT: Final = "tenantry-tenant-edit"
TENANT_VIEW: Final = "tenantry-tenant-view"

_LABEL: Final = f"{GROUP}/aggregate-to-"


def _rule(verbs: Sequence[str], group: str, *resources: str) -> dict[str, Any]:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


def _urls(verbs: Sequence[str], *urls: str) -> dict[str, Any]:
    return {"verbs": list(verbs), "nonResourceURLs": list(urls)}


def _everywhere(*rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Rules that an operator holds in every space when the role is bound in the system space (AZ9)."""
    return [{**rule, "scopeType": "Cluster"} for rule in rules]


_VIEW: Final = [
    _rule(
        READ,
        "",
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    _rule(
        READ,
        "",
        "bindings",
        "events",
        "limitranges",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
    ),
    _rule(READ, "", "namespaces"),
    _rule(READ, "discovery.k8s.io", "endpointslices"),
    _rule(
        READ,
        "apps",
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ),
    _rule(READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    _rule(READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule(
        READ,
        "extensions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "ingresses",
        "ingresses/status",
        "networkpolicies",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "replicationcontrollers/scale",
    ),
    _rule(READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
    _rule(READ, "networking.k8s.io", "ingresses", "ingresses/status", "networkpolicies"),
    _rule(READ, "resource.k8s.io", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
]

_EDIT: Final = [
    _rule(READ, "", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"),
    _rule(("impersonate",), "", "serviceaccounts"),
    _rule(WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    _rule(("create",), "", "pods/eviction"),
    _rule(
        WRITE,
        "",
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(
        WRITE,
        "apps",
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ),
    _rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
    _rule(WRITE, "batch", "cronjobs", "jobs"),
    _rule(
        WRITE,
        "extensions",
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "ingresses",
        "networkpolicies",
        "replicasets",
        "replicasets/scale",
        "replicationcontrollers/scale",
    ),
    _rule(WRITE, "policy", "poddisruptionbudgets"),
    _rule(WRITE, "networking.k8s.io", "ingresses", "networkpolicies"),
    _rule(ALL, "coordination.k8s.io", "leases"),
    _rule(WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
]

_ADMIN: Final = [
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    _rule(ALL, GROUP, "rolebindings", "roles"),
]

# What members of an organisation do in its space (KC1): all see its workspaces, editors make some.
_TREE_VIEW: Final = [
    _rule(READ, "tenancy.kcp.io", "workspaces", "workspacetypes"),
    _rule(READ, "core.kcp.io", "logicalclusters"),
    _rule(READ, "apis.kcp.io", "apibindings", "apiexports", "apiresourceschemas"),
]
_TREE_EDIT: Final = [_rule(("create",), "tenancy.kcp.io", "workspaces")]
_TREE_ADMIN: Final = [
    _rule(WRITE, "tenancy.kcp.io", "workspaces", "workspacetypes"),
    _rule(("use",), "tenancy.kcp.io", "workspacetypes"),
    _rule(WRITE, "apis.kcp.io", "apibindings", "apiexports", "apiresourceschemas"),
    _rule(("bind",), "apis.kcp.io", "apiexports"),
]

_PUBLIC_URLS: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY_URLS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC_URLS)

# What a tenant's own ServiceAccount on a real cluster gets instead of ``admin``: its holder could otherwise mint a
# token of ten years, bind a second account or keep access through a finalizer when it is suspended.
_TENANT_READ: Final = [
    _rule(
        READ,
        "",
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    _rule(("get",), "", "namespaces"),
    *(rule for rule in _VIEW if rule["apiGroups"] not in ([""], ["extensions"])),
    _rule(READ, "events.k8s.io", "events"),
    _rule(READ, "metrics.k8s.io", "pods"),
]
_TENANT_WRITE: Final = [
    _rule(
        ALL,
        "",
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/eviction",
        "pods/exec",
        "pods/portforward",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "services",
    ),
    _rule(
        WRITE,
        "apps",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ),
    _rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
    _rule(WRITE, "batch", "cronjobs", "jobs"),
    _rule(WRITE, "networking.k8s.io", "ingresses"),
    _rule(WRITE, "policy", "poddisruptionbudgets"),
    _rule(ALL, "coordination.k8s.io", "leases"),
    _rule(("create", "patch", "update"), "events.k8s.io", "events"),
    _rule(("get", "patch", "update"), "", "pods/ephemeralcontainers"),
]
# Charts bring accounts and roles of their own. Nobody gives more than they hold, and what the workspace itself owns is
# the gateway's alone (``access/admission/tenancy/workspaceobjectprotection.py``; on real clusters ``fences.yaml``).
_TENANT_CARE: Final = [
    _rule(WRITE, "networking.k8s.io", "networkpolicies"),
    _rule(WRITE, "", "serviceaccounts"),
    _rule(ALL, GROUP, "rolebindings", "roles"),
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
]


def _role(name: str, rules: list[dict[str, Any]], *, joins: str = "", aggregates: str = "") -> dict[str, Any]:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if joins:
        labels[_LABEL + joins] = "true"
    manifest: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "rules": rules,
    }
    if aggregates:
        manifest["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {_LABEL + aggregates: "true"}}]}
    return manifest


def _binding(name: str, role: str, *groups: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


CLUSTER_ROLES: Final[tuple[dict[str, Any], ...]] = (
    _role("cluster-admin", _everywhere(_rule("*", "*", "*"), _urls("*", "*"))),
    _role("admin", _ADMIN + _EDIT + _VIEW + _TREE_ADMIN + _TREE_EDIT + _TREE_VIEW, aggregates="admin"),
    _role("edit", _EDIT + _VIEW + _TREE_EDIT + _TREE_VIEW, joins="admin", aggregates="edit"),
    _role("view", _VIEW + _TREE_VIEW, joins="edit", aggregates="view"),
    _role("system:aggregate-to-admin", _ADMIN, joins="admin"),
    _role("system:aggregate-to-edit", _EDIT, joins="edit"),
    _role("system:aggregate-to-view", _VIEW, joins="view"),
    _role("system:discovery", _everywhere(_urls(("get",), *_DISCOVERY_URLS))),
    _role("system:public-info-viewer", _everywhere(_urls(("get",), *_PUBLIC_URLS))),
    _role(
        "system:basic-user",
        _everywhere(
            _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    _role(
        "system:auth-delegator",
        [
            _rule(("create",), "authentication.k8s.io", "tokenreviews"),
            _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    _role(
        "system:monitoring",
        [
            _urls(
                ("get",),
                "/healthz",
                "/healthz/*",
                "/livez",
                "/livez/*",
                "/metrics",
                "/metrics/slis",
                "/readyz",
                "/readyz/*",
            )
        ],
    ),
    _role(
        "system:service-account-issuer-discovery",
        [
            _urls(
                ("get",),
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            )
        ],
    ),
    _role(WORKSPACE_ACCESS, [_urls(("access",), "/")]),
    _role("system:kcp:aggregate-to-admin", _TREE_ADMIN, joins="admin"),
    _role("system:kcp:aggregate-to-edit", _TREE_EDIT, joins="edit"),
    _role("system:kcp:aggregate-to-view", _TREE_VIEW, joins="view"),
    _role(TENANT_ADMIN, _TENANT_CARE + _TENANT_WRITE + _TENANT_READ),
    _role(TENANT_EDIT, _TENANT_WRITE + _TENANT_READ),
    _role(TENANT_VIEW, _TENANT_READ),
)
"""The ClusterRoles as objects."""

CLUSTER_ROLE_BINDINGS: Final[tuple[dict[str, Any], ...]] = (
    _binding("cluster-admin", "cluster-admin", MASTERS),
    _binding("system:discovery", "system:discovery", AUTHENTICATED),
    _binding("system:basic-user", "system:basic-user", AUTHENTICATED),
    _binding("system:public-info-viewer", "system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    _binding("system:monitoring", "system:monitoring", "system:monitoring"),
    _binding("system:service-account-issuer-discovery", "system:service-account-issuer-discovery", SERVICE_ACCOUNTS),
)
"""The ClusterRoleBindings as objects."""

ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {role.name: role for role in (role_from(manifest, scoped=True) for manifest in CLUSTER_ROLES)}
)
"""The ClusterRoles by name."""

INDEX: Final = PolicyIndex.build(ROLES.values(), map(binding_from, CLUSTER_ROLE_BINDINGS))
"""The compiled policy of ``system:admin``: the ``bootstrap`` of every other."""
