"""Rights of people in placed namespaces: membership, the space's bindings, and the namespace's own (GW19)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.server import explanation
from kube.authentication.identity import Principal
from tenants.models import Role
from tests.gateway.callers import Caller, config_map
from tests.gateway.placed.conftest import Door

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "rbac.authorization.k8s.io"


def binding(name: str, user: str, kind: str, role: str) -> dict[str, Any]:
    """A RoleBinding to somebody by name."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": f"tenantry:{user}"}],
    }


def may(caller: Caller, namespace: str, verb: str, resource: str, group: str = "") -> bool:
    """What a review answers."""
    attributes = {"namespace": namespace, "verb": verb, "resource": resource, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).body["status"]["allowed"]


def test_a_rolebinding_of_the_namespace_counts_while_it_is_there(door: Door, kubectl: Callable[..., str]) -> None:
    """Requests, reviews, lists of rules and explain say the same, from its creation to its end."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    user = f"vera@{door.name}.test"
    path, bindings = f"/api/v1/namespaces/{name}/configmaps", f"/apis/{RBAC}/v1/namespaces/{name}/rolebindings"
    assert (may(viewer, name, "create", "configmaps"), viewer.post(path, config_map("a")).status) == (False, 403)
    assert owner.post(bindings, binding("writes", user, "ClusterRole", "tenantry-tenant-edit")).status == 201
    door.until(lambda: may(viewer, name, "create", "configmaps"))
    assert viewer.post(path, config_map("a")).status == 201
    assert not may(viewer, "default", "create", "configmaps")
    assert "configmaps" in kubectl(viewer, "-n", name, "auth", "can-i", "--list")
    principal = Principal(name=user, groups=("tenantry:viewer",), tenant=door.name, authenticator="portal")
    _, _, said = explanation.explain(principal, "POST", path, f"root:{door.name}")
    assert (said.allowed, "writes" in said.reason) == (True, True)
    assert owner.delete(f"{bindings}/writes").status == 200
    door.until(lambda: not may(viewer, name, "create", "configmaps"))
    assert viewer.post(path, config_map("b")).status == 403


def test_a_role_of_the_namespace_gives_what_it_says(door: Door) -> None:
    """GW4: with the least account, so that the viewer's reading of secrets is an editor's token for that alone."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    prefix = f"/apis/{RBAC}/v1/namespaces/{name}"
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["open"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "reads"}, "rules": rules}
    assert owner.post(f"{prefix}/roles", role).status == 201
    assert owner.post(f"{prefix}/rolebindings", binding("r", f"vera@{door.name}.test", "Role", "reads")).status == 201
    for secret in ("open", "shut"):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {"a": "b"}}
        assert owner.post(f"/api/v1/namespaces/{name}/secrets", body).status == 201
    door.until(lambda: viewer.get(f"/api/v1/namespaces/{name}/secrets/open").status == 200)
    assert viewer.get(f"/api/v1/namespaces/{name}/secrets/shut").status == 403
    assert viewer.get(f"/api/v1/namespaces/{name}/secrets").status == 403


def test_what_creates_by_another_verb_needs_the_right_to_create(door: Door) -> None:
    """AZ1: the cluster asks the account, which may; whoever may only change things is asked here."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    prefix = f"/apis/{RBAC}/v1/namespaces/{name}"
    verbs = ["get", "update", "patch"]
    rules = [{"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": verbs}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "changes"}, "rules": rules}
    assert owner.post(f"{prefix}/roles", role).status == 201
    assert owner.post(f"{prefix}/rolebindings", binding("c", f"vera@{door.name}.test", "Role", "changes")).status == 201
    maps, services = (f"/api/v1/namespaces/{name}/{plural}" for plural in ("configmaps", "services"))
    served = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    assert owner.post(maps, config_map("old")).status == 201
    assert owner.post(services, {**served, "metadata": {"name": "old"}}).status == 201
    applied = {"fieldManager": "vera", "force": "true"}
    door.until(lambda: viewer.patch(f"{maps}/old", config_map("old"), "apply", **applied).status == 200)
    assert viewer.put(f"{services}/old", viewer.get(f"{services}/old").body).status == 200
    assert viewer.patch(f"{maps}/new", config_map("new"), "apply", **applied).status == 403
    refused = viewer.put(f"{services}/new", {**served, "metadata": {"name": "new"}})
    assert (refused.status, 'cannot create resource "services"' in refused.body["message"]) == (403, True)
    # What creates nothing is told that there is nothing.
    assert viewer.patch(f"{maps}/new", {"data": {"a": "b"}}).status == 404
    assert viewer.put(f"{maps}/new", config_map("new")).status == 404
    assert owner.get(f"{maps}/new").status == owner.get(f"{services}/new").status == 404
    assert owner.patch(f"{maps}/new", config_map("new"), "apply", **applied).status == 201


def test_members_may_what_their_account_on_the_cluster_may(door: Door) -> None:
    """Leases are no business of Kubernetes' own ``edit``; on this cluster they are of workspaces' editors."""
    owner, editor, viewer = (door.person(role.value, role) for role in (Role.OWNER, Role.EDITOR, Role.VIEWER))
    name = door.place(owner)
    group = "coordination.k8s.io"
    path = f"/apis/{group}/v1/namespaces/{name}/leases"
    door.until(lambda: may(editor, name, "create", "leases", group))
    lease = {"apiVersion": f"{group}/v1", "kind": "Lease", "metadata": {"name": "l"}}
    assert editor.post(path, lease).status == 201
    assert not may(viewer, name, "create", "leases", group)


def test_an_open_watch_ends_with_the_binding_that_it_rests_on(door: Door) -> None:
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    bindings = f"/apis/{RBAC}/v1/namespaces/{name}/rolebindings"
    path = f"/api/v1/namespaces/{name}/secrets"
    body = binding("reads", f"vera@{door.name}.test", "ClusterRole", "tenantry-tenant-edit")
    assert owner.post(bindings, body).status == 201
    version = door.until(lambda: viewer.get(path).body["metadata"].get("resourceVersion"))
    with viewer.watch(path, resourceVersion=version) as watch:
        assert owner.delete(f"{bindings}/reads").status == 200
        last = watch.until_end()[-1]
    assert (last["type"], last["object"]["reason"]) == ("ERROR", "Forbidden")


def test_an_open_watch_of_all_namespaces_ends_with_the_binding_that_one_of_them_rests_on(door: Door) -> None:
    """CT-07: whoever may list the kind everywhere goes on without that namespace."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "secrets"}, "rules": rules}
    members = {"apiGroup": RBAC, "kind": "Group", "name": "tenantry:viewer"}
    everywhere = {
        **binding("secrets", "x", "ClusterRole", "secrets"),
        "kind": "ClusterRoleBinding",
        "subjects": [members],
    }
    assert owner.post(f"/apis/{RBAC}/v1/clusterroles", role).status == 201
    assert owner.post(f"/apis/{RBAC}/v1/clusterrolebindings", everywhere).status == 201
    bindings = f"/apis/{RBAC}/v1/namespaces/{name}/rolebindings"
    body = binding("reads", f"vera@{door.name}.test", "ClusterRole", "tenantry-tenant-edit")
    assert owner.post(bindings, body).status == 201
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    assert owner.post(f"/api/v1/namespaces/{name}/secrets", secret).status == 201

    def shown() -> list[str]:
        items = viewer.get("/api/v1/secrets").body.get("items", ())
        return [item["metadata"]["name"] for item in items if item["metadata"]["namespace"] == name]

    door.until(lambda: "s" in shown())
    with viewer.watch(
        "/api/v1/secrets", resourceVersion=viewer.get("/api/v1/secrets").body["metadata"]["resourceVersion"]
    ) as watch:
        assert owner.delete(f"{bindings}/reads").status == 200
        last = watch.until_end()[-1]
    assert (last["type"], last["object"]["reason"]) == ("ERROR", "Expired")
    assert shown() == []


def test_what_the_clusters_people_bind_by_name_counts_as_well(door: Door) -> None:
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    user = f"--user=vera@{door.name}.test"
    door.cluster.kubectl("create", "rolebinding", "b", "-n", name, "--clusterrole=tenantry-tenant-edit", user)
    door.until(lambda: may(viewer, name, "create", "configmaps"))


def test_bindings_of_strangers_give_nothing(door: Door) -> None:
    """Groups of the cluster, and its system users, are refused by the fences and nobody here."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/apis/{RBAC}/v1/namespaces/{name}/rolebindings"
    for subject in (
        {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"},
        {"apiGroup": RBAC, "kind": "Group", "name": "tenantry:viewer"},
        {"apiGroup": RBAC, "kind": "User", "name": "mallory"},
        {"apiGroup": RBAC, "kind": "User", "name": "system:serviceaccount:default:default"},
        {"kind": "ServiceAccount", "name": "default", "namespace": "default"},
    ):
        body = {**binding("odd", "x", "ClusterRole", "tenantry-tenant-view"), "subjects": [subject]}
        answer = owner.post(path, body)
        assert answer.status == 422, answer.body


def test_what_is_kept_of_the_clusters_rbac_is_nobodys_object(door: Door) -> None:
    """Across namespaces each Role and RoleBinding of the cluster is there once, and nothing that the product keeps of them."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    here = f"/apis/{RBAC}/v1/namespaces/{name}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "reads"}, "rules": [rule]}
    assert owner.post(f"{here}/roles", role).status == 201
    assert owner.post(f"{here}/rolebindings", binding("reads", f"vera@{door.name}.test", "Role", "reads")).status == 201
    door.until(lambda: may(viewer, name, "get", "secrets"))

    def names(path: str) -> list[tuple[str, str]]:
        items = owner.get(path).body["items"]
        return sorted((each["metadata"]["namespace"], each["metadata"]["name"]) for each in items)

    for plural in ("roles", "rolebindings"):
        everywhere = names(f"/apis/{RBAC}/v1/{plural}")
        assert [place for place in everywhere if place[0] == name] == names(f"{here}/{plural}")
