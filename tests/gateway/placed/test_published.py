"""What operators publish comes into namespaces on clusters as well, where the tenant cannot touch it (AZ8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from kube.authorization.rbac import GROUP as RBAC
from tenants.models import Role, Workspace
from tenants.services import cluster_change, workspace_resume, workspace_suspend
from tenants.services.clusters import TENANT_ROLES
from tests.clusters import TestCluster
from tests.databases import OWNER, url_of
from tests.faultproxy import Fault
from tests.gateway.callers import PATIENCE, Caller, config_map, eventually
from tests.gateway.placed.conftest import Door, said
from tests.gateway.test_publications import ORIGIN, PUBLISHED, SECRET, report
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

UNREAD = "csistoragecapacities"
"""What no account of a workspace may read."""


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which keeps the cluster away."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


@pytest.fixture
def owner(door: Door) -> Caller:
    return door.person("olga", Role.OWNER)


@pytest.fixture
def namespace(door: Door, owner: Caller) -> str:
    """A placed namespace; the system space has one of its name, from which is published."""
    name = door.place(owner)
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert door.server.admin.post("/api/v1/namespaces", own).status == 201
    return name


def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def published(name: str, data: dict[str, str]) -> dict[str, Any]:
    return config_map(name, data, annotations={PUBLISHED: "true"}, labels={"of": "operators"})


def on_the_cluster(door: Door, namespace: str, kind: str, name: str) -> dict[str, Any]:
    """What its administrator sees there."""
    shown = door.cluster.kubectl("-n", namespace, "get", kind, name, "-o", "json", "--ignore-not-found")
    found: dict[str, Any] = json.loads(shown) if shown.strip() else {}
    return found


def missing(door: Door, path: str, **reasons: int) -> None:
    """The source comes to say who lacks it, and why."""

    def told(body: Any) -> bool:
        found = {reason: each["tenants"] for reason, each in body.get("reasons", {}).items()}
        return found == reasons and body.get("missing") == sum(reasons.values())

    report(door.server.admin, path, told)


def test_it_comes_to_a_cluster_follows_its_source_and_goes_with_it(door: Door, owner: Caller, namespace: str) -> None:
    admin, path = door.server.admin, f"{maps(namespace)}/mirrors"
    assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
    assert eventually(lambda: owner.get(path).status == 200)
    copy = owner.get(path).body
    source = admin.get(path).body
    assert (copy["data"], copy["metadata"]["labels"]) == (
        {"a": "1"},
        {"of": "operators", ORIGIN: source["metadata"]["uid"]},
    )
    missing(door, path)
    assert admin.put(path, {**admin.get(path).body, "data": {"b": "2"}}).status == 200
    assert eventually(lambda: owner.get(path).body["data"] == {"b": "2"})
    assert owner.get(path).body["metadata"]["uid"] == copy["metadata"]["uid"]
    assert admin.delete(path).status == 200
    assert eventually(lambda: owner.get(path).status == 404)
    assert admin.post(maps(namespace), published("mirrors", {"c": "3"})).status == 201
    assert eventually(lambda: owner.get(path).body.get("data") == {"c": "3"})
    assert admin.patch(path, {"metadata": {"annotations": {PUBLISHED: None}}}).status == 200
    assert eventually(lambda: on_the_cluster(door, namespace, "configmap", "mirrors") == {})


def test_nobody_of_the_tenant_changes_it_there_nor_forges_one(door: Door, owner: Caller, namespace: str) -> None:
    """Through Tenantry or at the cluster itself: the fence is the cluster's own."""
    path = f"{maps(namespace)}/mirrors"
    assert door.server.admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
    assert eventually(lambda: owner.get(path).status == 200)
    copy = on_the_cluster(door, namespace, "configmap", "mirrors")
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "y"}
    for answer in (
        owner.put(path, {**owner.get(path).body, "data": {"a": "9"}}),
        owner.patch(path, {"metadata": {"labels": {ORIGIN: None}}}),
        owner.patch(path, {"metadata": {"finalizers": ["mine.test/held"], "ownerReferences": [reference]}}),
        owner.patch(path, {**config_map("mirrors"), "data": {"a": "9"}}, "apply", fieldManager="me", force="true"),
        owner.delete(path),
        owner.delete(maps(namespace), labelSelector="of=operators"),
        owner.post(maps(namespace), config_map("forged", labels={ORIGIN: copy["metadata"]["labels"][ORIGIN]})),
    ):
        assert answer.status in (403, 422), answer.body
        assert "published by the operators" in said(answer)
    account = f"--as=system:serviceaccount:{namespace}:sa-tenant-admin"
    refused = door.cluster.real.kubectl("-n", namespace, "delete", "configmap", "mirrors", account)
    assert "published by the operators" in refused.stderr
    assert on_the_cluster(door, namespace, "configmap", "mirrors") == copy


def test_the_gateway_writes_there_nothing_but_what_is_published(door: Door, owner: Caller, namespace: str) -> None:
    """Its rights are those of the role; what they are for is fenced: neither a tenant's object nor a limit of the tier."""
    assert owner.post(maps(namespace), config_map("own")).status == 201
    gateway = ("-n", namespace, "--as=tenantry-gateway")
    for arguments in (
        ("create", "configmap", "other"),
        ("delete", "configmap", "own"),
        ("delete", "resourcequota", "tenantry-quota"),
    ):
        refused = door.cluster.real.kubectl(*gateway, *arguments)
        assert "tenantry-gateway-fence" in refused.stderr, arguments
    marked = config_map("own", labels={ORIGIN: "x"}, resourceVersion="1")
    taken = door.cluster.real.kubectl(*gateway, "replace", "-f", "-", stdin=json.dumps(marked))
    assert taken.returncode != 0
    assert on_the_cluster(door, namespace, "configmap", "own")["data"] == {"a": "1"}


def test_a_name_that_is_taken_is_not_overwritten_and_is_reported(door: Door, owner: Caller, namespace: str) -> None:
    admin, path = door.server.admin, f"{maps(namespace)}/mirrors"
    assert owner.post(maps(namespace), config_map("mirrors", {"own": "1"})).status == 201
    assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
    missing(door, path, NameTaken=1)
    assert owner.get(path).body["data"] == {"own": "1"}
    assert owner.delete(path).status == 200
    assert admin.patch(path, {"data": {"a": "2"}}).status == 200
    assert eventually(lambda: owner.get(path).body.get("data") == {"a": "2"})
    missing(door, path)


def test_an_immutable_secret_follows_too_and_a_kind_that_the_gateway_may_not_write_is_reported(
    door: Door, owner: Caller, namespace: str
) -> None:
    admin, secrets = door.server.admin, f"/api/v1/namespaces/{namespace}/secrets"
    metadata = {"name": "pull", "annotations": {PUBLISHED: "true", SECRET: "true"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "1"}, "immutable": True}
    assert admin.post(secrets, secret).status == 201
    assert eventually(lambda: owner.get(f"{secrets}/pull").body.get("data") == {"a": "MQ=="})
    assert admin.delete(f"{secrets}/pull").status == 200
    assert admin.post(secrets, {**secret, "stringData": {"a": "2"}}).status == 201
    assert eventually(lambda: owner.get(f"{secrets}/pull").body.get("data") == {"a": "Mg=="})
    services = f"/api/v1/namespaces/{namespace}/services"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {**metadata, "name": "dns"}}
    assert admin.post(services, {**service, "spec": {"ports": [{"port": 53}]}}).status == 201
    missing(door, f"{services}/dns", ClusterRefuses=1)
    assert on_the_cluster(door, namespace, "service", "dns") == {}


def test_a_kind_that_nobody_there_may_see_is_reported_until_somebody_may(
    door: Door, owner: Caller, namespace: str
) -> None:
    """The gateway may write it; it is made where the workspaces' accounts could read it, and goes where they no longer can."""
    admin, capacities = door.server.admin, f"/apis/storage.k8s.io/v1/namespaces/{namespace}/{UNREAD}"
    path, labels = f"{capacities}/base", {"tenantry.io/aggregate-to-view": "true"}
    writing = rule_of("create", "update", "delete")
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": "tenantry-gateway"}]
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "unread-writer"}
    writer = {**in_rbac("ClusterRoleBinding", "unread-writer"), "roleRef": reference, "subjects": subjects}
    reader = {**in_rbac("ClusterRole", "unread-reader", labels=labels), "rules": [rule_of("get", "list", "watch")]}
    applied(door, {**in_rbac("ClusterRole", "unread-writer"), "rules": [writing]}, writer)
    try:
        assert admin.post(capacities, capacity("1Gi")).status == 201
        missing(door, path, KindNotServed=1)
        digest, _ = the_record()
        assert admin.patch(path, {"metadata": {"labels": {"looked": "at"}}}).status == 200
        assert eventually(lambda: the_record()[0] != digest and the_record()[1] == "KindNotServed")
        assert not [call for call in door.cluster.proxy.calls if f"/{UNREAD}" in call[1]], "nobody asks in vain"
        assert on_the_cluster(door, namespace, UNREAD, "base") == {}

        applied(door, reader)
        roles_are_read_anew(door, owner, namespace, lambda rules: UNREAD in rules)
        assert admin.put(path, {**admin.get(path).body, "capacity": "2Gi"}).status == 200
        assert eventually(lambda: owner.get(path).status == 200)
        assert ORIGIN in on_the_cluster(door, namespace, UNREAD, "base")["metadata"]["labels"]
        missing(door, path)

        door.cluster.kubectl("delete", "clusterrole", "unread-reader")
        roles_are_read_anew(door, owner, namespace, lambda rules: UNREAD not in rules)
        assert admin.patch(path, {"metadata": {"annotations": {PUBLISHED: None}}}).status == 200
        assert eventually(lambda: on_the_cluster(door, namespace, UNREAD, "base") == {})
    finally:
        door.cluster.kubectl("delete", "clusterrole", "unread-writer", "unread-reader", "--ignore-not-found")
        door.cluster.kubectl("delete", "clusterrolebinding", "unread-writer")


def rule_of(*verbs: str) -> dict[str, Any]:
    return {"apiGroups": ["storage.k8s.io"], "resources": [UNREAD], "verbs": verbs}


def in_rbac(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **metadata}}


def capacity(value: str) -> dict[str, Any]:
    metadata = {"name": "base", "annotations": {PUBLISHED: "true"}}
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata}
    return {**body, "storageClassName": "fast", "capacity": value}


def applied(door: Door, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        assert "serverside-applied" in door.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))


def roles_are_read_anew(door: Door, owner: Caller, namespace: str, holds: Callable[[str], bool]) -> None:
    """Once the cluster has aggregated its roles: which of them are the workspaces' is changed, and changed back."""
    assert eventually(lambda: holds(door.cluster.kubectl("get", "clusterrole", "tenantry-tenant-view", "-o", "json")))
    bindings = f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"
    for role, status in ((TENANT_ROLES[1], 403), (TENANT_ROLES[0], 200)):
        cluster_change(actor=OPERATOR, name="kube-apiserver", tenant_role=role)
        assert eventually(lambda status=status: owner.get(bindings).status == status)  # type: ignore[misc]


def the_record() -> tuple[str, str]:
    """What is to be on the cluster, and why it is not."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT data FROM store_object WHERE resource = 'placedcopies'")
        ((data,),) = cursor.fetchall()
    record = json.loads(bytes(data))
    return record["spec"]["digest"], record.get("status", {}).get("reason", "")


@pytest.mark.parametrize("fault", ["away", "frozen"])
def test_while_the_cluster_is_away_it_is_said_and_made_up_for(
    door: Door, owner: Caller, namespace: str, fault: str
) -> None:
    """Away: it refuses whoever writes. Frozen: the worker's leader ends while its write is on its way."""
    admin, path = door.server.admin, f"{maps(namespace)}/mirrors"
    if fault == "away":
        door.cluster.proxy.faults.append(Fault("503", method="POST", path="/configmaps$", times=1000))
        assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
        missing(door, path, ClusterUnavailable=1)
    else:
        held = Fault("hold", method="POST", path="/configmaps$")
        door.cluster.proxy.faults.append(held)
        assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
        assert held.met.wait(PATIENCE)
        leader_ends("tenantry-copies")
        assert admin.delete(path).status == 200
        held.go.set()
        made = ("POST", f"{maps(namespace)}", 201)
        assert eventually(lambda: any((m, p.partition("?")[0], c) == made for m, p, c in door.cluster.proxy.calls))
        assert eventually(lambda: on_the_cluster(door, namespace, "configmap", "mirrors") == {})
        assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
    door.cluster.proxy.heal()
    assert eventually(lambda: owner.get(path).status == 200, 3 * PATIENCE)
    missing(door, path)


def test_a_suspended_workspace_gets_it_when_it_is_resumed_and_one_that_ends_leaves_nothing(
    door: Door, owner: Caller, namespace: str, records: Callable[[], list[str]]
) -> None:
    admin, path = door.server.admin, f"{maps(namespace)}/mirrors"
    workspace = Workspace.objects.get(k8s_namespace=namespace)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="unpaid")
    seen = f"/clusters/root:{door.name}/api/v1/namespaces/{namespace}"
    door.until(lambda: admin.get(seen).body["status"]["phase"] == "Suspended")
    assert admin.post(maps(namespace), published("mirrors", {"a": "1"})).status == 201
    missing(door, path, NamespaceNotReady=1)
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    door.until(lambda: owner.get(path).status == 200)
    assert records() == ["|configmaps|mirrors"]
    assert owner.delete(f"/api/v1/namespaces/{namespace}").status in (200, 202)
    door.until(lambda: admin.get(seen).status == 404)
    assert eventually(lambda: records() == [])
    missing(door, path, NamespaceNotFound=1)


@pytest.fixture
def records(door: Door) -> Callable[[], list[str]]:
    """The names under which it is kept what is to be on clusters."""

    def kept() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM store_object WHERE resource = 'placedcopies' ORDER BY name")
            return [name for (name,) in cursor.fetchall()]

    return kept


def leader_ends(application: str) -> None:
    """The session by which a worker leads is cut off."""
    with psycopg.connect(url_of(str(connection.settings_dict["NAME"]), OWNER), autocommit=True) as session:
        ended = session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = %s",
            [application],
        ).fetchall()
    assert ended
