"""The bootstrap policy: what every Kubernetes cluster is born with, and the roles that Tenantry adds (KC7).

It is the RBAC of the logical cluster ``system:admin``, the fallback for every space, and its roles can be bound in any.
The rules of ``admin``, ``edit`` and ``view`` are those of Kubernetes and those of the workspace tree, aggregation done;
own ClusterRoles of a space with the usual labels still add to them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kube.authentication.identity import AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS, UNAUTHENTICATED
from kube.authorization.bootstrap.components import COMPONENT_ROLES, CONTROLLER_MANAGER, SCHEDULER
from kube.authorization.bootstrap.controllers import CONTROLLER_ROLES
from kube.authorization.policyobjects import ALL, READ, WRITE, binding, role, rule, urls
from kube.authorization.rbac import GROUP, Role, binding_from, role_from
from kube.authorization.rbacindex import PolicyIndex

WORKSPACE_ACCESS: Final = "system:kcp:workspace:access"
"""The ClusterRole that lets a user into a workspace (KC2)."""

TENANT_ADMIN: Final = "tenantry-tenant-admin"
TENANT_EDIT: Final = "tenantry-tenant-edit"
TENANT_VIEW: Final = "tenantry-tenant-view"


def _everywhere(*rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Rules that an operator holds in every space when the role is bound in the system space (AZ9)."""
    return [{**rule, "scopeType": "Cluster"} for rule in rules]


_VIEW: Final = [
    rule(
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
    rule(
        READ,
        "",
        "bindings",
        "limitranges",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
    ),
    rule(READ, "", "namespaces"),
    rule(READ, ("", "events.k8s.io"), "events"),
    rule(READ, "discovery.k8s.io", "endpointslices"),
    rule(
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
    rule(READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    rule(READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    rule(
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
    rule(READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
    rule(READ, "networking.k8s.io", "ingresses", "ingresses/status", "networkpolicies"),
    rule(READ, "resource.k8s.io", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
]

_EDIT: Final = [
    rule(READ, "", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"),
    rule("impersonate", "", "serviceaccounts"),
    rule(WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    rule("create", "", "pods/eviction"),
    rule(
        WRITE,
        "",
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    rule("create", "", "serviceaccounts/token"),
    rule(WRITE, ("", "events.k8s.io"), "events"),
    rule(
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
    rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
    rule(WRITE, "batch", "cronjobs", "jobs"),
    rule(
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
    rule(WRITE, "policy", "poddisruptionbudgets"),
    rule(WRITE, "networking.k8s.io", "ingresses", "networkpolicies"),
    rule(ALL, "coordination.k8s.io", "leases"),
    rule(WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
]

_ADMIN: Final = [
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    rule(ALL, GROUP, "rolebindings", "roles"),
]

# What members of an organisation do in its space (KC1): all see its workspaces, editors make some.
_TREE_VIEW: Final = [
    rule(READ, "tenancy.kcp.io", "workspaces", "workspacetypes"),
    rule(READ, "core.kcp.io", "logicalclusters"),
    rule(READ, "apis.kcp.io", "apibindings", "apiexports", "apiresourceschemas"),
]
_TREE_EDIT: Final = [rule("create", "tenancy.kcp.io", "workspaces")]
_TREE_ADMIN: Final = [
    rule(WRITE, "tenancy.kcp.io", "workspaces", "workspacetypes"),
    rule("use", "tenancy.kcp.io", "workspacetypes"),
    rule(WRITE, "apis.kcp.io", "apibindings", "apiexports", "apiresourceschemas"),
    rule("bind", "apis.kcp.io", "apiexports"),
]

_PUBLIC_URLS: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_MONITORING_URLS: Final = (
    *("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"),
    *("/metrics", "/metrics/slis", "/flagz", "/statusz"),
)
_ISSUER_URLS: Final = (
    *("/.well-known/openid-configuration", "/.well-known/openid-configuration/"),
    *("/openid/v1/jwks", "/openid/v1/jwks/"),
)
_DISCOVERY_URLS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC_URLS)

# What a tenant's own ServiceAccount on a real cluster gets instead of ``admin``: its holder could otherwise mint a
# token of ten years, bind a second account or keep access through a finalizer when it is suspended.
_TENANT_READ: Final = [
    rule(
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
        "podtemplates",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    rule("get", "", "namespaces"),
    *(seen for seen in _VIEW if seen["apiGroups"][0] not in ("", "extensions")),
    rule(READ, "events.k8s.io", "events"),
    rule(READ, "metrics.k8s.io", "pods"),
]
_TENANT_WRITE: Final = [
    rule(
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
    rule(
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
    rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
    rule(WRITE, "batch", "cronjobs", "jobs"),
    rule(WRITE, "networking.k8s.io", "ingresses"),
    rule(WRITE, "policy", "poddisruptionbudgets"),
    rule(ALL, "coordination.k8s.io", "leases"),
    rule("create patch update", "events.k8s.io", "events"),
    rule("get patch update", "", "pods/ephemeralcontainers"),
]
# Charts bring accounts and roles of their own. Nobody gives more than they hold, and what the workspace itself owns is
# the gateway's alone (``access/admission/tenancy/workspaceobjectprotection.py``; on real clusters ``fences.yaml``).
_TENANT_CARE: Final = [
    rule(WRITE, "networking.k8s.io", "networkpolicies"),
    rule(WRITE, "", "serviceaccounts"),
    rule(ALL, GROUP, "rolebindings", "roles"),
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
]

_VIEWER: Final = (*_VIEW, *_TREE_VIEW)
_EDITOR: Final = (*_EDIT, *_TREE_EDIT, *_VIEWER)

CLUSTER_ROLES: Final[tuple[dict[str, Any], ...]] = (
    role("cluster-admin", *_everywhere(rule("*", "*", "*"), urls("*", "*"))),
    role("admin", *_EDITOR, *_ADMIN, *_TREE_ADMIN, aggregates="admin"),
    role("edit", *_EDITOR, joins="admin", aggregates="edit"),
    role("view", *_VIEWER, joins="edit", aggregates="view"),
    role("system:aggregate-to-admin", *_ADMIN, joins="admin"),
    role("system:aggregate-to-edit", *_EDIT, joins="edit"),
    role("system:aggregate-to-view", *_VIEW, joins="view"),
    role("system:discovery", *_everywhere(urls("get", *_DISCOVERY_URLS))),
    role("system:public-info-viewer", *_everywhere(urls("get", *_PUBLIC_URLS))),
    role(
        "system:basic-user",
        *_everywhere(
            rule("create", "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            rule("create", "authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    role(
        "system:auth-delegator",
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    role("system:monitoring", urls("get", *_MONITORING_URLS), rule("get", "", "nodes/metrics")),
    role("system:service-account-issuer-discovery", urls("get", *_ISSUER_URLS)),
    *COMPONENT_ROLES,
    *CONTROLLER_ROLES,
    role(WORKSPACE_ACCESS, urls("access", "/")),
    role("system:kcp:aggregate-to-admin", *_TREE_ADMIN, joins="admin"),
    role("system:kcp:aggregate-to-edit", *_TREE_EDIT, joins="edit"),
    role("system:kcp:aggregate-to-view", *_TREE_VIEW, joins="view"),
    role(TENANT_ADMIN, *_TENANT_CARE, *_TENANT_WRITE, *_TENANT_READ),
    role(TENANT_EDIT, *_TENANT_WRITE, *_TENANT_READ),
    role(TENANT_VIEW, *_TENANT_READ),
)
"""The ClusterRoles as objects."""

CLUSTER_ROLE_BINDINGS: Final[tuple[dict[str, Any], ...]] = (
    binding("cluster-admin", "cluster-admin", MASTERS),
    binding("system:discovery", "system:discovery", AUTHENTICATED),
    binding("system:basic-user", "system:basic-user", AUTHENTICATED),
    binding("system:public-info-viewer", "system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    binding("system:monitoring", "system:monitoring", "system:monitoring"),
    binding("system:service-account-issuer-discovery", "system:service-account-issuer-discovery", SERVICE_ACCOUNTS),
)
"""The ClusterRoleBindings as objects."""

COMPONENT_BINDINGS: Final[tuple[dict[str, Any], ...]] = (
    binding(CONTROLLER_MANAGER, CONTROLLER_MANAGER, CONTROLLER_MANAGER, kind="User"),
    binding(SCHEDULER, SCHEDULER, SCHEDULER, kind="User"),
    binding("system:volume-scheduler", "system:volume-scheduler", SCHEDULER, kind="User"),
    binding("system:node-proxier", "system:node-proxier", "system:kube-proxy", kind="User"),
)
"""What the programs of a control plane hold in the system space, which begins with these.

A tenant chooses the names of its users, so no name means a program in its space. No service account is bound: this
server does the work of the usual controllers itself, and who may ask for tokens in ``kube-system`` would hold all.
"""

ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {made.name: made for made in (role_from(manifest, scoped=True) for manifest in CLUSTER_ROLES)}
)
"""The ClusterRoles by name."""

INDEX: Final = PolicyIndex.build(ROLES.values(), map(binding_from, CLUSTER_ROLE_BINDINGS))
"""The compiled policy of ``system:admin``: the ``bootstrap`` of every other."""
