"""What a workspace owns on the embedded server is nobody's but the gateway's, whatever rights a tenant has (GW5)."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tenants.clusters import objects
from tenants.models import Cluster, Tenant, Tier, Workspace
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "secrets": ("/api/v1", "tenantry-anchor-1"),
    "serviceaccounts": ("/api/v1", "sa-tenant-admin"),
    "rolebindings": (RBAC, "tenantry-admin"),
    "resourcequotas": ("/api/v1", "tenantry-quota"),
    "limitranges": ("/api/v1", "tenantry-limits"),
    "networkpolicies": ("/apis/networking.k8s.io/v1", "tenantry-default"),
}
TOUCHES: dict[str, dict[str, Any]] = {
    "labels-off": {"metadata": {"labels": None}},
    "finalizer": {"metadata": {"finalizers": ["example.org/held"]}},
    "annotation": {"metadata": {"annotations": {"a": "b"}}},
    "owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]}},
}


@pytest.fixture(scope="module")
def workspace(server: Server, acme: str) -> Workspace:
    """A workspace of acme, made as the gateway makes it."""
    identifier = uuid.uuid4()
    made = Workspace(
        id=identifier,
        tenant=Tenant(name=acme),
        name="web",
        tier=Tier(name="t", quota={"pods": "5"}, limit_range=[{"type": "Container", "max": {"cpu": "1"}}]),
        cluster=Cluster(name="embedded", kind="embedded"),
        k8s_namespace=f"tenant-{identifier.hex[:8]}",
    )
    bodies = {
        "secrets": [objects.anchor(made, "tenantry-anchor-1", "sa-tenant-admin", "u")],
        "serviceaccounts": [objects.service_account(made, name) for name in objects.ACCOUNTS.values()],
        "rolebindings": [*objects.role_bindings(made).values()],
        "resourcequotas": [objects.resource_quota(made)],
        "limitranges": [objects.limit_range(made)],
        "networkpolicies": [objects.network_policy(made)],
    }
    bodies["secrets"][0]["metadata"].pop("ownerReferences")
    space = f"/clusters/root:{acme}"
    assert server.admin.post(f"{space}/api/v1/namespaces", objects.namespace(made)).status == 201
    for resource, each in bodies.items():
        for body in each:
            answer = server.admin.post(f"{space}{path(made, resource)}", copy.deepcopy(body))
            assert answer.status == 201, answer.body
    return made


def path(workspace: Workspace, resource: str, name: str = "") -> str:
    found = f"{PATHS[resource][0]}/namespaces/{workspace.k8s_namespace}/{resource}"
    return f"{found}/{name}" if name else found


@pytest.fixture
def account(server: Server, workspace: Workspace) -> Iterator[Caller]:
    """The workspace's own admin account, as a token of the gateway's lets it in."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    at = f"/clusters/root:{workspace.tenant_id}{path(workspace, 'serviceaccounts', 'sa-tenant-admin/token')}"
    answer = server.admin.post(at, body)
    assert answer.status == 201, answer.body
    yield server.bearer(answer.body["status"]["token"])


@pytest.mark.parametrize("resource", PATHS)
@pytest.mark.parametrize("touch", ["delete", "deletecollection", "put", *TOUCHES])
@pytest.mark.parametrize("who", ["owner", "account"])
def test_nobody_in_the_tenant_touches_what_the_workspace_owns(
    alice: Caller, account: Caller, workspace: Workspace, resource: str, touch: str, who: str
) -> None:
    """Generated: each kind, each way to touch it, by the tenant's owner and by the workspace's admin account."""
    caller = alice if who == "owner" else account
    at = path(workspace, resource, PATHS[resource][1])
    before = alice.get(at)
    assert before.status == 200, before.body
    if touch == "delete":
        answer = caller.delete(at)
    elif touch == "deletecollection":
        answer = caller.delete(path(workspace, resource) + f"?fieldSelector=metadata.name={PATHS[resource][1]}")
    elif touch == "put":
        answer = caller.put(at, {**before.body, "metadata": {**before.body["metadata"], "labels": {"x": "y"}}})
    else:
        answer = caller.patch(at, TOUCHES[touch])
    assert answer.status == 403, answer.body
    assert alice.get(at).body["metadata"]["resourceVersion"] == before.body["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        ("secrets", {"kind": "Secret", "metadata": {"name": "tenantry-anchor-9"}}),
        ("secrets", {"kind": "Secret", "metadata": {"name": "x"}, "type": "tenantry.io/token-anchor"}),
        ("secrets", {"kind": "Secret", "metadata": {"name": "x", "labels": {"tenantry.io/workspace": "x"}}}),
        ("secrets", {"kind": "Secret", "metadata": {"name": "x", "finalizers": ["example.org/x"]}}),
        ("serviceaccounts", {"kind": "ServiceAccount", "metadata": {"name": "x", "finalizers": ["example.org/x"]}}),
    ],
)
def test_nobody_makes_what_only_the_gateway_makes(
    alice: Caller, workspace: Workspace, resource: str, body: dict[str, Any]
) -> None:
    answer = alice.post(path(workspace, resource), {"apiVersion": "v1", **body})
    assert answer.status == 403, answer.body


def test_the_namespace_keeps_its_marks(alice: Caller, workspace: Workspace) -> None:
    at = f"/api/v1/namespaces/{workspace.k8s_namespace}"
    for labels in (
        {objects.MANAGED_BY: "me"},
        {objects.WORKSPACE_LABEL: None},
        {objects.TENANT_LABEL: "x"},
        {f"{objects.POD_SECURITY}enforce": None},
    ):
        assert alice.patch(at, {"metadata": {"labels": labels}}).status == 403
    refused = alice.patch(at, TOUCHES["owner"])
    assert refused.status == 403
    assert "has no owners" in refused.body["message"]
    assert alice.delete(at).status == 403
    assert alice.patch(at, {"metadata": {"labels": {"team": "web"}}}).status == 200
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fake", "labels": {}}}
    made["metadata"]["labels"] = {objects.MANAGED_BY: objects.PRODUCT}
    assert alice.post("/api/v1/namespaces", made).status == 403


def test_only_the_gateway_issues_tokens_of_the_workspaces_accounts(alice: Caller, workspace: Workspace) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = alice.post(path(workspace, "serviceaccounts", "sa-tenant-admin/token"), body)
    assert (answer.status, answer.reason) == (403, "Forbidden")


@pytest.mark.parametrize("name", sorted(objects.OWNED["", "serviceaccounts"]))
def test_nobody_in_the_tenant_acts_as_the_workspaces_accounts(
    server: Server, alice: Caller, workspace: Workspace, name: str
) -> None:
    """HDR-01: what they hold is for whom the gateway gives it to; whoever may impersonate others of the namespace may not these."""
    for asked, status in ((name, 403), ("default", 200)):
        headers = {"Impersonate-User": f"system:serviceaccount:{workspace.k8s_namespace}:{asked}"}
        answer = alice.get("/apis/authorization.k8s.io/v1", headers=headers)
        assert answer.status == status, answer.body
    headers = {"Impersonate-User": f"system:serviceaccount:{workspace.k8s_namespace}:{name}"}
    answer = server.admin.get(f"/clusters/root:{workspace.tenant_id}/apis/authorization.k8s.io/v1", headers=headers)
    assert answer.status == 200, "operators see what each of them may"


def binding(subject: dict[str, str], role: str = "tenantry-tenant-view") -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"b-{uuid.uuid4().hex[:8]}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def test_a_workspaces_admin_gives_rights_to_its_own_accounts_alone(account: Caller, workspace: Workspace) -> None:
    """What charts bring works, and reaches nobody else."""
    own = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "chart"}}
    assert account.post(path(workspace, "serviceaccounts"), own).status == 201
    at = path(workspace, "rolebindings")
    mine = {"kind": "ServiceAccount", "name": "chart", "namespace": workspace.k8s_namespace}
    assert account.post(at, binding(mine)).status == 201
    assert account.post(at, binding(mine, "cluster-admin")).status == 403
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
    for subject in (
        {**mine, "namespace": "default"},
        {**mine, "name": "sa-tenant-view"},
        group,
        {**group, "kind": "User", "name": "mallory"},
    ):
        answer = account.post(at, binding(subject))
        assert answer.status == 403, json.dumps(answer.body)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create"]}
    tokens = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}
    assert account.post(f"{RBAC}/namespaces/{workspace.k8s_namespace}/roles", {**role, "rules": [leases]}).status == 201
    role["metadata"] = {"name": "s"}
    assert account.post(f"{RBAC}/namespaces/{workspace.k8s_namespace}/roles", {**role, "rules": [tokens]}).status == 403


def test_quota_counts_objects_of_every_kind(account: Caller, workspace: Workspace, server: Server) -> None:
    """``count/`` of what fills a store: events, leases, jobs."""
    hard = {"count/leases.coordination.k8s.io": "1", "count/events": "1", "count/jobs.batch": "1"}
    at = f"/clusters/root:{workspace.tenant_id}{path(workspace, 'resourcequotas', 'tenantry-quota')}"
    assert server.admin.patch(at, {"spec": {"hard": hard}}).status == 200
    ns = workspace.k8s_namespace
    event = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": ns}}
    job = {
        "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }
    }
    for api, resource, kind, more in (
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", {}),
        ("/api/v1", "events", "Event", event),
        ("/apis/batch/v1", "jobs", "Job", job),
    ):
        statuses = []
        for number in range(3):
            version = api.removeprefix("/apis/").removeprefix("/api/")
            body = {"apiVersion": version, "kind": kind, "metadata": {"name": f"x{number}"}, **more}
            statuses.append(account.post(f"{api}/namespaces/{ns}/{resource}", body))
        assert [answer.status for answer in statuses] == [201, 403, 403], [answer.body for answer in statuses]
        assert "exceeded quota" in statuses[1].body["message"]
