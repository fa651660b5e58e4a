"""The organisation of the workspace tests: its people, workspaces and what they are granted."""

from __future__ import annotations

from typing import Any

from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server, tenant_named

TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
ORG = "/clusters/root:umbrella"


def inside(path: str) -> str:
    """The prefix of a workspace of the organisation."""
    return f"{ORG}:{path}" if path else ORG


def workspace(name: str, kind: str = "") -> dict[str, Any]:
    path, _, short = kind.rpartition(":")
    spec = {"type": {"path": path, "name": short} if path else {"name": short}} if kind else {}
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}


def workspace_type(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "WorkspaceType",
        "metadata": {"name": name},
        "spec": spec,
    }


def made(answer: Answer) -> dict[str, Any]:
    assert answer.status == 201, answer.body
    return dict(answer.body)


def phase(caller: Caller, prefix: str, name: str) -> str:
    body = caller.get(f"{prefix}{TENANCY}/workspaces/{name}").body
    return str(body.get("status", {}).get("phase", ""))


def ready(caller: Caller, prefix: str, name: str, kind: str = "", until: str = "Ready") -> None:
    """Make a workspace and wait for it."""
    made(caller.post(f"{prefix}{TENANCY}/workspaces", workspace(name, kind)))
    assert eventually(lambda: phase(caller, prefix, name) == until), phase(caller, prefix, name)


def role(caller: Caller, prefix: str, name: str, *rules: dict[str, Any]) -> None:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}
    made(caller.post(f"{prefix}{RBAC}/clusterroles", body))


def bound(caller: Caller, prefix: str, role: str, kind: str, name: str, namespace: str = "") -> None:
    """Bind a ClusterRole to somebody."""
    subject = {"kind": kind, "name": name}
    subject |= {"namespace": "default"} if kind == "ServiceAccount" else {"apiGroup": GROUP}
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{name}-{role}".replace(":", "-")},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    where = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    made(caller.post(f"{prefix}{RBAC}{where}", body))


def account(server: Server, caller: Caller, prefix: str) -> Caller:
    """A token of the service account ``default`` of namespace ``default``."""
    answer = caller.post(f"{prefix}/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
    return server.bearer(made(answer)["status"]["token"])


def rule(verbs: str, group: str, resources: str, *names: str) -> dict[str, Any]:
    body: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**body, "resourceNames": list(names)} if names else body


_MADE: dict[str, dict[str, Caller]] = {}
"""The people of the organisation, by the servers that have one."""


def organization(server: Server, gina: Caller) -> dict[str, Caller]:
    """Make the organisation, once on a server; its people, and those who are none of it, by name."""
    if server.url in _MADE:
        return _MADE[server.url]
    tenant_named(server, "umbrella")

    def member(name: str, *groups: str, tenant: str = "umbrella") -> Caller:
        return server.user(tenant, name, *groups)

    olga = member("olga", "tenantry:owner")
    for name, spec in {
        "private": {},
        "slow": {"initializer": True},
        "toponly": {"limitAllowedParents": {"types": [{"path": "root", "name": "organization"}]}},
    }.items():
        made(olga.post(f"{ORG}{TENANCY}/workspacetypes", workspace_type(name, **spec)))
    for name in ("theirs", "lent"):
        made(gina.post(f"/clusters/root:globex{TENANCY}/workspacetypes", workspace_type(name)))
    role(gina, "/clusters/root:globex", "lend", rule("use", "tenancy.kcp.io", "workspacetypes", "lent"))
    bound(gina, "/clusters/root:globex", "lend", "Group", "system:cluster:root:umbrella")
    # The same name in another tenant is somebody else.
    role(gina, "/clusters/root:globex", "theirs", rule("use", "tenancy.kcp.io", "workspacetypes", "theirs"))
    bound(gina, "/clusters/root:globex", "theirs", "User", "olga")

    ready(olga, ORG, "team")
    ready(olga, inside("team"), "deep")
    ready(olga, ORG, "guarded")
    ready(olga, ORG, "slow", "slow", until="Initializing")

    access = "system:kcp:workspace:access"
    team = inside("team")
    bound(olga, team, access, "User", "mia")
    bound(olga, team, access, "User", "vic")
    bound(olga, team, "view", "User", "vic")
    bound(olga, team, "cluster-admin", "User", "carl")
    bound(olga, team, "edit", "User", "paul")
    bound(olga, team, "view", "ServiceAccount", "default")
    role(olga, team, "readers", rule("get list", "", "configmaps"))
    bound(olga, team, "readers", "Group", access, namespace="default")
    bound(olga, inside("team:deep"), access, "User", "dora")
    bound(olga, ORG, "cluster-admin", "ServiceAccount", "default")

    bound(olga, inside("slow"), access, "User", "mia")
    bound(olga, inside("slow"), "cluster-admin", "ServiceAccount", "default")
    role(olga, ORG, "content-admin", rule("admin", "tenancy.kcp.io", "workspaces/content", "slow"))
    bound(olga, ORG, "content-admin", "User", "ina")

    guarded = inside("guarded")
    accounts = {
        name: account(server, olga, inside(path))
        for name, path in (("umbrella", ""), ("team", "team"), ("slow", "slow"), ("guarded", "guarded"))
    }
    bound(olga, guarded, "cluster-admin", "User", "greta")
    cluster = f"{guarded}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    required = {"metadata": {"annotations": {"authorization.kcp.io/required-groups": "g1;g2,g3"}}}
    assert olga.patch(cluster, required).status == 200
    greta = {name: member("greta", *name.split()) for name in ("g1", "g1 g2", "g3", "g2 g4")}
    ready(greta["g3"], guarded, "below")

    role(
        server.admin,
        "",
        "kcp-readers",
        {**rule("get list", "", "configmaps"), "scopeType": "Cluster"},
        {"verbs": ["access", "get"], "nonResourceURLs": ["/", "/api"], "scopeType": "Cluster"},
    )
    bound(server.admin, "", "kcp-readers", "User", "roy")
    _MADE[server.url] = {
        "olga": olga,
        "emil": member("emil", "tenantry:editor"),
        "vera": member("vera", "tenantry:viewer"),
        **{name: member(name) for name in ("mia", "carl", "dora", "ina", "vic")},
        "bound without access": member("paul"),
        "claims the group": member("clara", access),
        "olga of globex": member("olga", "tenantry:owner", tenant="globex"),
        "mia of globex": member("mia", tenant="globex"),
        "operator": member("otto", tenant="system"),
        "reading operator": member("roy", tenant="system"),
        "masters": server.admin,
        "nobody": server.nobody,
        **{f"greta with {name}": caller for name, caller in greta.items()},
        **{f"account of {name}": caller for name, caller in accounts.items()},
    }  # fmt: skip
    return _MADE[server.url]
