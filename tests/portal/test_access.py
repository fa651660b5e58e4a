"""Explained decisions, who can, what if, and whom a tenant has let in: pages and REST API (AZ7, AZ11)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.test import Client, override_settings

from kube.authorization import abac
from kube.authorization.tenantreferences import TENANT_DIGESTS
from store import synchronous
from store.types import Create, Key
from tenants.models import Role, Tenant, User
from tenants.services.tenants import tenant_create
from tenants.spaces import tenant_key
from tests import factories
from tests.portal.conftest import signed_in
from tests.tenants.conftest import OPERATOR

RBAC = "rbac.authorization.k8s.io"


def put(cluster: str, group: str, plural: str, manifest: dict[str, Any]) -> None:
    metadata = manifest["metadata"]
    key = Key(cluster, group, plural, metadata.get("namespace", ""), metadata["name"])
    version = f"{group}/v1" if group else "v1"
    synchronous.commit([Create(key, {"apiVersion": version, **manifest})])


def uid_of(tenant: Tenant) -> str:
    stored = synchronous.get(tenant_key(tenant.name))
    assert stored is not None
    return str(json.loads(stored.data)["metadata"]["uid"])


@pytest.fixture
def acme(globex: Tenant) -> Tenant:
    made = tenant_create(actor=OPERATOR, name="acme")
    role = {"kind": "ClusterRole", "metadata": {"name": "pods"}}
    role["rules"] = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]
    put("root:acme", RBAC, "clusterroles", role)
    binding = {"kind": "RoleBinding", "metadata": {"name": "pods", "namespace": "team"}}
    binding["roleRef"] = {"kind": "ClusterRole", "name": "pods"}
    binding["subjects"] = [{"kind": "User", "name": "jane"}]
    put("root:acme", RBAC, "rolebindings", binding)
    policy = {"apiVersion": abac.API_VERSION, "kind": "Policy", "metadata": {"name": "partners", "uid": "p"}}
    policy["metadata"]["annotations"] = {
        TENANT_DIGESTS: json.dumps({"globex": abac.tenant_digest("p", uid_of(globex))})
    }
    policy["spec"] = {"tenant": "globex", "user": "pat", "namespace": "team", "resource": "pods", "readonly": True}
    put("root:acme", abac.GROUP, "policies", policy)
    return made


@pytest.fixture
def globex() -> Tenant:
    return tenant_create(actor=OPERATOR, name="globex")


@pytest.fixture
def admin(acme: Tenant) -> User:
    return factories.member(acme, Role.ADMIN)


def post(user: User, path: str, body: Any) -> tuple[int, Any]:
    answer = signed_in(user).post(path, json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


def explain(
    user: User,
    name: str,
    path: str,
    *,
    tenant: str = "acme",
    groups: Sequence[str] = (),
    method: str = "GET",
    **more: Any,
) -> tuple[int, Any]:
    body = {"user": {"name": name, "groups": groups, "tenant": tenant}, "method": method, "path": path, **more}
    return post(user, "/api/v1/access/explain", body)


STEPS = [
    "suspension",
    "credential-scope",
    "system-workspaces",
    "server-owned",
    "tenant-isolation",
    "placed-namespaces",
    "system-masters",
    "top-level-organization",
    "workspace-content",
    "required-groups",
    "initializing-workspaces",
    "maximal-permission-policy",
    "Node",
    "RBAC",
]


def test_a_colleague_is_asked_about_with_the_groups_that_he_has(acme: Tenant, admin: User, operator: User) -> None:
    """AZ11: where no groups are named, those of the membership count, as they would at the API server."""
    colleague = factories.member(acme, Role.VIEWER)
    for asking in (admin, operator):
        path = "/api/v1/namespaces/team/pods"
        assert explain(asking, colleague.email, path)[1]["decision"] == "allow"
        assert explain(asking, colleague.email, path, method="POST")[1]["decision"] == "deny"
        assert explain(asking, colleague.email, path, groups=["nobodies"])[1]["decision"] == "deny"


def test_an_admin_sees_which_rule_lets_a_user_in_and_every_step(admin: User) -> None:
    """AZ11: verdict, step, reason and trace."""
    status, found = explain(admin, "jane", "/api/v1/namespaces/team/pods/p")
    assert status == 200
    assert found["resolved"] == {
        "tenant": "acme", "cluster": "root:acme", "verb": "get", "apiGroup": "", "apiVersion": "v1", "namespace": "team",
        "resource": "pods", "subresource": "", "name": "p", "path": "/api/v1/tenants/acme/namespaces/team/pods/p",
    }  # fmt: skip
    assert (found["decision"], found["decidedBy"]) == ("allow", "RBAC")
    steps = [step["step"] for step in found["trace"]]
    assert steps == STEPS
    assert found["trace"][-1]["rule"] == 'RoleBinding "pods/team" of ClusterRole "pods" to User "jane"'
    assert set(found) == {"resolved", "decision", "decidedBy", "reason", "trace"}


def test_a_refusal_names_the_step(admin: User, globex: Tenant, operator: User) -> None:
    """AZ11."""
    assert explain(admin, "jane", "/api/v1/namespaces/team/pods/p", method="DELETE")[1]["decision"] == "deny"
    found = explain(operator, "jane", "/api/v1/namespaces/team/pods", tenant="globex", cluster="root:acme")[1]
    assert (found["decision"], found["decidedBy"]) == ("deny", "tenant-isolation")
    found = explain(operator, "pat", "/api/v1/namespaces/team/pods", tenant="globex", cluster="root:acme")[1]
    assert (found["decision"], found["decidedBy"]) == ("allow", "cross-tenant")
    assert 'Policy "partners"' in found["reason"]


@pytest.mark.parametrize("cluster", ["", "root:acme"])
def test_strangers_are_refused_as_their_requests_are(admin: User, cluster: str) -> None:
    """AN11, AZ11: whoever has not signed in belongs to no tenant, whatever everybody there may do."""
    found = explain(admin, "system:anonymous", "/version", cluster=cluster)[1]
    assert (found["decision"], found["decidedBy"]) == ("deny", "tenant-isolation")
    assert explain(admin, "system:anonymous", "/livez", cluster=cluster)[1]["decision"] == "allow"
    assert explain(admin, "jane", "/version", cluster=cluster)[1]["decision"] == "allow"


@pytest.mark.parametrize(
    ("path", "cluster"),
    [("/api/v1/namespaces/team/pods", "root:globex"), ("/clusters/root:globex/api/v1/namespaces/team/pods", ""),
     ("/api/v1/tenants/globex/namespaces/team/pods", "")],
)  # fmt: skip
def test_a_tenants_admin_learns_nothing_of_another_tenant(admin: User, globex: Tenant, path: str, cluster: str) -> None:
    """AZ11."""
    assert explain(admin, "jane", path, cluster=cluster)[0] == 403
    assert explain(admin, "jane", "/api/v1/pods", tenant="globex")[0] == 403


def test_a_member_asks_about_itself_alone(acme: Tenant) -> None:
    """AZ11."""
    viewer = factories.member(acme, Role.VIEWER)
    assert explain(viewer, "jane", "/api/v1/pods")[0] == 403
    assert explain(viewer, viewer.email, "/api/v1/pods")[1]["decision"] == "allow"
    assert post(viewer, "/api/v1/access/who-can", {"cluster": "root:acme", "verb": "get", "resource": "pods"})[0] == 403


@pytest.mark.parametrize(
    "path", ["/api/v1/namespaces/../pods", "/api/v1/%2e%2e/pods", "//x", "/clusters/x/api", "/api/v1/pods?%zz"]
)
def test_what_is_no_request_is_refused_as_the_server_would(admin: User, path: str) -> None:
    status, _ = explain(admin, "jane", path)
    assert status in (400, 403, 404)


def test_what_would_allow_is_the_smallest_that_does(admin: User) -> None:
    """AZ11: the grants that are offered allow the request once they are made."""
    body = {"user": {"name": "joe", "tenant": "acme"}, "method": "GET", "path": "/api/v1/namespaces/team/pods/p"}
    status, found = post(admin, "/api/v1/access/would-allow", body)
    assert status == 200
    texts = [remedy["text"] for remedy in found["results"]]
    assert texts == [
        "Make a role for exactly this, and bind it in namespace team.",
        "Bind the ClusterRole “pods” in namespace team.",
    ]
    owner = factories.member(Tenant.objects.get(name="acme"), Role.OWNER)
    wider = post(owner, "/api/v1/access/would-allow", body)[1]["results"]
    assert [remedy["text"] for remedy in wider][:2] == texts
    assert len(wider) == 3, "a role of which the admin does not hold everything"
    whole = {**body, "path": "/apis/rbac.authorization.k8s.io/v1/clusterroles"}
    assert post(admin, "/api/v1/access/would-allow", whole)[1]["results"] == [], "admins bind in namespaces alone"
    assert post(owner, "/api/v1/access/would-allow", whole)[1]["results"]
    exact = found["results"][0]["objects"]
    assert exact[0]["rules"] == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}]
    put("root:acme", RBAC, "roles", exact[0])
    exact[1]["metadata"]["name"] = "made"
    put("root:acme", RBAC, "rolebindings", exact[1])
    assert explain(admin, "joe", "/api/v1/namespaces/team/pods/p")[1]["decision"] == "allow"
    assert explain(admin, "joe", "/api/v1/namespaces/team/pods/q")[1]["decision"] == "deny"
    assert post(admin, "/api/v1/access/would-allow", body)[1]["results"] == []


def test_who_can_names_everybody_with_the_path(admin: User) -> None:
    """AZ11."""
    body = {"cluster": "root:acme", "verb": "get", "resource": "pods", "namespace": "team"}
    status, found = post(admin, "/api/v1/access/who-can", body)
    assert status == 200
    rows = {(row["kind"], row["name"], row["tenant"]): row["path"] for row in found["results"]}
    assert rows["User", "jane", "acme"] == ["RoleBinding team/pods", "ClusterRole pods"]
    assert rows["User", "pat", "globex"] == ['Policy "partners"']
    assert rows["Group", "tenantry:viewer", "acme"] == ["ClusterRoleBinding tenantry:viewer", "ClusterRole view"]
    assert rows["Group", "system:masters", "system"] == ["system-masters"]
    body["namespace"] = "other"
    names = {row["name"] for row in post(admin, "/api/v1/access/who-can", body)[1]["results"]}
    assert not {"jane", "pat"} & names
    assert post(admin, "/api/v1/access/who-can", {**body, "cluster": "root"})[0] == 403
    assert post(admin, "/api/v1/access/who-can", {**body, "cluster": "root:none"})[0] == 403


def test_who_can_names_the_nodes_that_a_pod_gives_the_right(admin: User) -> None:
    """AZ4, AZ11: whoever runs a pod with the secret reads it."""
    volume = {"name": "v", "secret": {"secretName": "wanted"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}}
    put("root:acme", "", "pods", pod | {"spec": {"nodeName": "n1", "containers": [], "volumes": [volume]}})

    def nodes(**asked: str) -> set[str]:
        found = post(admin, "/api/v1/access/who-can", {"cluster": "root:acme", "namespace": "team", **asked})[1]
        return {row["name"] for row in found["results"] if row["path"] == ["Node"] and row["tenant"] == "system"}

    assert nodes(verb="get", resource="secrets", name="wanted") == {"system:node:n1"}
    assert nodes(verb="get", resource="secrets", name="unwanted") == set()
    assert nodes(verb="list", resource="secrets") == nodes(verb="update", resource="secrets", name="wanted") == set()
    assert nodes(verb="list", resource="services") == {"system:nodes"}
    assert nodes(verb="patch", resource="pods", subresource="status", name="p") == {"system:node:n1"}


def test_who_can_names_everybody_where_everything_is_allowed(admin: User) -> None:
    """AZ11."""
    mode = replace(settings.AUTHORIZATION, mode=("RBAC", "AlwaysAllow"))
    asked = {"cluster": "root:acme", "namespace": "team", "verb": "delete", "resource": "pods", "name": "p"}
    with override_settings(AUTHORIZATION=mode):
        found = post(admin, "/api/v1/access/who-can", asked)[1]["results"]
        assert (
            explain(admin, "jane", "/api/v1/namespaces/team/pods/p", method="DELETE")[1]["decidedBy"] == "AlwaysAllow"
        )
    everybody = [(row["kind"], row["name"], row["tenant"]) for row in found if row["path"] == ["AlwaysAllow"]]
    assert everybody == [("Group", "system:authenticated", tenant) for tenant in ("acme", "system")]


def test_what_if_lists_who_gains_and_loses_and_keeps_nothing(admin: User) -> None:
    """AZ11."""
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "pods"}}
    role["rules"] = [{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}]
    status, found = post(admin, "/api/v1/access/what-if", {"cluster": "root:acme", "manifest": role})
    assert status == 200
    rule = {"apiGroups": [""], "resources": ["pods"]}
    jane = {"kind": "User", "name": "jane", "tenant": "acme", "namespace": "team"}
    assert found["results"] == [
        {**jane, "gains": [{"verbs": ["delete"], **rule}], "losses": [{"verbs": ["list"], **rule}]}
    ]
    assert explain(admin, "jane", "/api/v1/namespaces/team/pods/p", method="DELETE")[1]["decision"] == "deny"
    policy = {"apiVersion": abac.API_VERSION, "kind": "Policy", "metadata": {"name": "partners"}, "spec": {}}
    policy["spec"] = {"tenant": "globex", "user": "pat", "namespace": "team", "resource": "pods", "readonly": True}
    gone = {"cluster": "root:acme", "manifest": policy, "delete": True}
    (effect,) = post(admin, "/api/v1/access/what-if", gone)[1]["results"]
    assert (effect["name"], effect["tenant"], effect["gains"]) == ("pat", "globex", [])
    assert effect["losses"]
    wrong = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    assert post(admin, "/api/v1/access/what-if", {"cluster": "root:acme", "manifest": wrong})[0] == 400


def test_a_tenant_sees_whom_it_has_let_in_and_ends_it(admin: User, acme: Tenant, globex: Tenant) -> None:
    """AZ7."""
    viewer, foreign = factories.member(acme, Role.VIEWER), factories.member(globex, Role.OWNER)
    path = "/api/v1/tenants/acme/access-policies/"
    (row,) = signed_in(viewer).get(path).json()["results"]
    assert (row["name"], row["spec"]["tenant"], row["opens"]) == ("partners", "globex", True)
    assert signed_in(foreign).get(path).status_code == 404
    page = signed_in(viewer).get("/tenants/acme/policies/").content.decode()
    assert "partners" in page
    assert "End" not in page.split('class="table')[1].split("</table>")[0].replace("Ends", "")
    assert signed_in(viewer).delete(f"{path}partners/").status_code == 403
    assert signed_in(foreign).delete(f"{path}partners/").status_code == 404
    assert signed_in(admin).post("/tenants/acme/policies/partners/end/").status_code == 302
    assert signed_in(admin).get(path).json()["results"] == []
    assert signed_in(admin).delete(f"{path}partners/").status_code == 404


def test_pages_show_the_answers(admin: User) -> None:
    """AZ11: to the raw request, and at the addresses that the questions had before."""
    browser: Client = signed_in(admin)
    asked = {"method": "GET", "path": "/api/v1/namespaces/team/secrets", "user": "jane", "tenant": "acme"}
    page = browser.get("/explain/", asked).content.decode()
    assert "403 Forbidden" in page
    assert "Make a role for exactly this" in page
    old = {"cluster": "root:acme", "verb": "get", "resource": "pods", "namespace": "team"}
    assert "RoleBinding team/pods" in browser.get("/who-can/", old, follow=True).content.decode()
    assert "What if" in browser.get("/what-if/", follow=True).content.decode()
    assert browser.get("/who-can/", {**old, "cluster": "root"}, follow=True).status_code == 422
    assert browser.post("/explain/", {"cluster": "root:acme", "manifest": "a: ["}).status_code == 422


@pytest.fixture
def workspace(admin: User) -> str:
    """A workspace below acme, in which jane reads config maps, and may enter."""
    cluster = "root:acme:ws"
    annotations = {"authorization.kcp.io/required-groups": "staff"}
    body = {"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "status": {"phase": "Ready"}}
    put(cluster, "core.kcp.io", "logicalclusters", body | {"metadata": {"name": "cluster", "annotations": annotations}})
    role = {"kind": "ClusterRole", "metadata": {"name": "maps"}}
    role["rules"] = [{"verbs": ["get"], "apiGroups": ["", "example.org"], "resources": ["configmaps", "widgets"]}]
    put(cluster, RBAC, "clusterroles", role)
    for name in ("maps", "system:kcp:workspace:access"):
        binding = {"kind": "ClusterRoleBinding", "metadata": {"name": name}}
        binding["roleRef"] = {"kind": "ClusterRole", "name": name}
        binding["subjects"] = [{"kind": "User", "name": "jane"}]
        put(cluster, RBAC, "clusterrolebindings", binding)
    return cluster


def deciding(admin: User, name: str, path: str, cluster: str, *groups: str) -> tuple[str, str, list[str]]:
    user = {"name": name, "groups": list(groups), "tenant": "acme"}
    body = {"user": user, "method": "GET", "path": path, "cluster": cluster}
    status, found = post(admin, "/api/v1/access/explain", body)
    assert status == 200, found
    return found["decision"], found["decidedBy"], [step["reason"] for step in found["trace"]]


def test_a_decision_in_a_workspace_is_that_of_its_gates_and_its_rules(admin: User, workspace: str) -> None:
    """KC2, KC3, KC8, AZ11."""
    maps, secrets = "/api/v1/namespaces/team/configmaps/m", "/api/v1/namespaces/team/secrets/s"
    assert deciding(admin, "jane", maps, workspace, "staff")[:2] == ("allow", "RBAC")
    assert deciding(admin, "jane", secrets, workspace, "staff")[:2] == ("deny", "default")
    assert deciding(admin, "jane", maps, workspace)[:2] == ("deny", "required-groups")
    decision, step, reasons = deciding(admin, "joe", maps, workspace, "staff")
    assert (decision, step) == ("deny", "workspace-content")
    assert reasons[-1] == 'the user has no verb "access" on "/" in the workspace'
    robot = {"kind": "RoleBinding", "metadata": {"name": "robot", "namespace": "team"}}
    robot |= {"roleRef": {"kind": "ClusterRole", "name": "maps"}, "subjects": [{"kind": "ServiceAccount", "name": "r"}]}
    put(workspace, RBAC, "rolebindings", robot)
    assert deciding(admin, "system:serviceaccount:team:r", maps, workspace, "staff")[:2] == ("allow", "RBAC")
    assert deciding(admin, "system:serviceaccount:other:r", maps, workspace, "staff")[:2] == ("deny", "default")
    assert deciding(admin, "jane", maps, "root:acme:none", "staff")[:2] == ("deny", "workspace-content")
    body = {"cluster": workspace, "verb": "get", "resource": "configmaps", "namespace": "team"}
    status, found = post(admin, "/api/v1/access/who-can", body)
    assert status == 200
    by_name = {row["name"]: row["path"] for row in found["results"]}
    assert by_name["jane"][-1] == "if required-groups opens"
    assert by_name["r"] == ["RoleBinding team/robot", "ClusterRole maps"]
    assert ["system-masters"] in [row["path"] for row in found["results"] if row["tenant"] == "system"]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "maps"}, "rules": []}
    status, found = post(admin, "/api/v1/access/what-if", {"cluster": workspace, "manifest": role})
    losing = {row["name"] for row in found["results"]}
    assert (status, losing) == (200, {"jane", "system:serviceaccount:team:r"})
    # Whoever reads there by a binding, and has no binding that lets in.
    stranger = {"kind": "ClusterRoleBinding", "metadata": {"name": "joe"}}
    stranger |= {"roleRef": {"kind": "ClusterRole", "name": "maps"}, "subjects": [{"kind": "User", "name": "joe"}]}
    put(workspace, RBAC, "clusterrolebindings", stranger)
    found = post(admin, "/api/v1/access/who-can", body)[1]
    assert {row["name"]: row["path"] for row in found["results"]}["joe"][-1] == "if workspace-content opens"


def test_a_decision_about_a_bound_resource_is_limited_by_its_provider(admin: User, workspace: str) -> None:
    """KC5, AZ11: what is of the space itself is not."""
    widget = "/apis/example.org/v1/namespaces/team/widgets/w"
    assert deciding(admin, "jane", widget, workspace, "staff")[:2] == ("allow", "RBAC")
    definition: dict[str, Any] = {"kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.org"}}
    definition["metadata"]["annotations"] = {
        "apis.kcp.io/export": "root:acme:provider:widgets",
        "apis.kcp.io/identity": "i",
    }
    put(workspace, "apiextensions.k8s.io", "customresourcedefinitions", definition)
    step = "maximal-permission-policy"
    decision, decided, reasons = deciding(admin, "jane", widget, workspace, "staff")
    assert (decision, decided, reasons[-1]) == ("deny", step, "the export of the resource is gone")
    export = {"kind": "APIExport", "metadata": {"name": "widgets"}, "spec": {"maximalPermissionPolicy": {"local": {}}}}
    export["status"] = {"identityHash": "i"}
    put("root:acme:provider", "apis.kcp.io", "apiexports", export)
    decision, decided, reasons = deciding(admin, "jane", widget, workspace, "staff")
    assert (decision, decided) == ("deny", step)
    assert reasons[-1] == "beyond the maximal permission policy of the export"
    role = {"kind": "ClusterRole", "metadata": {"name": "all"}}
    role["rules"] = [{"verbs": ["*"], "apiGroups": ["example.org"], "resources": ["widgets"]}]
    put("root:acme:provider", RBAC, "clusterroles", role)
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "all"}}
    binding["roleRef"] = {"kind": "ClusterRole", "name": "all"}
    binding["subjects"] = [{"kind": "User", "name": "apis.kcp.io:binding:jane"}]
    put("root:acme:provider", RBAC, "clusterrolebindings", binding)
    assert deciding(admin, "jane", widget, workspace, "staff")[:2] == ("allow", "RBAC")
