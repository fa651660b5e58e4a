"""What a tenant's objects may be, by its tier's rules and its own, in both kinds of namespaces (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import orjson
import pytest

from access.policytrials import tenant_policies_try, tier_policies_try
from audit.models import AuditEntry
from kube.requests.status import Invalid
from tenants.models import Cluster, Role, Tenant
from tenants.services import tenant_create, tenant_policies_change, tier_change
from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server
from tests.gateway.placed.conftest import Door, owner_of
from tests.gateway.placed.conftest import said as said_of
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

OURS = "by the policy of the tenant: "
CONTAINERS = [{"name": "c", "image": "nginx"}]
BACKEND = {
    "http": {
        "paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]
    }
}


def is_refused_at(answer: Answer, field: str) -> bool:
    causes = answer.body.get("details", {}).get("causes", [])
    return answer.status == 403 and OURS in answer.body["message"] and field in [cause["field"] for cause in causes]


@pytest.fixture
def shop(door: Door) -> tuple[Caller, str]:
    """An owner, and a namespace on the cluster."""
    owner = door.person("olga", Role.OWNER)
    return owner, door.place(owner)


def deployment(name: str, *images: str) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    metadata = {"name": name}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def test_what_was_there_may_stay_and_no_write_makes_it_worse(door: Door, shop: tuple[Caller, str]) -> None:
    """By every kind of write, in both kinds of namespaces."""
    owner, placed = shop
    for namespace in (placed, "default"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        tenant_policies_change(actor=OPERATOR, name=door.name, policies={})
        assert owner.post(path, deployment("old", "nginx")).status == 201
        tenant_policies_change(actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io"]})
        one = f"{path}/old"
        assert owner.patch(one, {"metadata": {"labels": {"still": "changes"}}}).status == 200
        assert owner.patch(f"{one}/scale", {"spec": {"replicas": 2}}).status == 200
        body = owner.get(one).body
        assert owner.put(one, body).status == 200
        body = owner.get(one).body
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "quay.io/x"
        assert is_refused_at(owner.put(one, body), "spec.template.spec.containers[0].image")
        image = {"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": "quay.io/x"}]}}}}
        operation = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "quay.io/x"}]
        copied = [
            {"op": "copy", "from": "/spec/template/spec/containers/0", "path": "/spec/template/spec/containers/-"}
        ]
        for kind, patch, field in (
            ("merge", image, "spec.template.spec.containers[0].image"),
            ("strategic-merge", image, "spec.template.spec.containers[0].image"),
            ("json", operation, "spec.template.spec.containers[0].image"),
        ):
            assert is_refused_at(owner.patch(one, patch, kind), field), (namespace, kind)
        assert owner.patch(one, copied, "json").status in (403, 422)
        applied = deployment("new", "nginx")
        answer = owner.patch(f"{path}/new", applied, "apply", fieldManager="me")
        assert is_refused_at(answer, "spec.template.spec.containers[0].image"), answer.body
        applied = deployment("new", "ghcr.io/a/b")
        answer = owner.patch(f"{path}/new", applied, "apply", fieldManager="me")
        assert answer.status == 201
        good = {"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": "ghcr.io/x/y"}]}}}}
        assert owner.patch(one, good, "strategic-merge").status == 200


def test_what_a_body_says_twice_hides_nothing_from_the_rules(door: Door, shop: tuple[Caller, str]) -> None:
    """The cluster merges what is there twice: by no kind of write and in no encoding does an image come in with it."""
    owner, placed = shop
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io"]})
    path = f"/apis/apps/v1/namespaces/{placed}/deployments"
    kept = deployment("kept", "ghcr.io/a/b")
    assert owner.post(path, kept).status == 201
    evil, good = (orjson.dumps(deployment("kept", image)["spec"]) for image in ("nginx", "ghcr.io/a/b"))
    head = b'{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%b"},'
    new, same = head % b"new", head % b"kept"
    twice = (
        b'"spec":%b,"spec":{"replicas":2}}' % evil,
        b'"spec":%b,"\\u0073pec":{"replicas":2}}' % evil,
        b'"spec":%b,"spec":%b}' % (evil, good),
        b'"spec":%b,"spec":%b}' % (good, evil),
        b'"spec":%b}' % evil.replace(b'"image":"nginx"', b'"image":"nginx","image":"ghcr.io/a/b"'),
    )
    for body in twice:
        for method, target, sent in (("POST", path, new + body), ("PUT", f"{path}/kept", same + body)):
            answer = owner.call(method, target, sent)
            assert (answer.status, "duplicate field" in said_of(answer)) == (400, True), (sent, answer.body)
        for media in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
            target = f"{path}/kept?fieldManager=me&force=true" if media.startswith("apply") else f"{path}/kept"
            owner.call("PATCH", target, same + body, {"Content-Type": f"application/{media}"})
        owner.post(path, new + body, {"Content-Type": "application/yaml"})
    operation = b'[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"%b","value":"%b"}]'
    for values in ((b"nginx", b"ghcr.io/a/b"), (b"ghcr.io/a/b", b"nginx")):
        owner.call("PATCH", f"{path}/kept", operation % values, {"Content-Type": "application/json-patch+json"})
    images = "{.items[*].spec.template.spec.containers[*].image}"
    there = door.cluster.kubectl("get", "deployment", "-n", placed, "-o", f"jsonpath={images}")
    assert set(there.split()) == {"ghcr.io/a/b"}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"tolerations": [{"key": f"k{number}"} for number in range(49_000)]}, 422),
        ({"containers": [{"name": f"c{number}", "image": "x"} for number in range(45_000)]}, 413),
        ({"tolerations": [{}] * 120_000}, 413),
        ({"tolerations": [{"key": f"k{number}"} for number in range(5_000)]}, 403),
    ],
)
def test_what_is_judged_is_bounded_at_the_door_as_in_the_store(
    shop: tuple[Caller, str], spec: dict[str, Any], status: int
) -> None:
    """DOS-03."""
    owner, placed = shop
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": {"containers": CONTAINERS, **spec}}
    answer = owner.post(f"/api/v1/namespaces/{placed}/pods", body)
    assert answer.status == status, str(answer.body)[:1000]
    assert len(answer.body.get("details", {}).get("causes", ())) <= 100


def test_kubectl_says_what_to_change(door: Door, shop: tuple[Caller, str], kubectl: Callable[..., str]) -> None:
    owner, placed = shop
    tenant_policies_change(
        actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io/acme"], "service_types": []}
    )
    for namespace in (placed, "default"):
        said = kubectl(owner, "-n", namespace, "create", "deployment", "web", "--image=nginx", check=False)
        assert 'deployments.apps "web" is forbidden: by the policy of the tenant: ' in said
        assert "docker.io/library/nginx, which is not allowed; allowed: ghcr.io/acme (rule registries)" in said
        said = kubectl(owner, "-n", namespace, "create", "service", "clusterip", "s", "--tcp=80", check=False)
        assert "none is allowed" in said
        assert "created" in kubectl(owner, "-n", namespace, "create", "deployment", "web", "--image=ghcr.io/acme/web")
        said = kubectl(owner, "-n", namespace, "set", "image", "deployment/web", "web=nginx", check=False)
        assert "by the policy of the tenant" in said


def test_a_tiers_rules_hold_in_its_workspaces_and_a_tenants_own_stand_in_their_place(
    door: Door, shop: tuple[Caller, str]
) -> None:
    owner, placed = shop
    chosen = {"spec": {"nodeSelector": {"zone": "a"}, "containers": CONTAINERS}, "metadata": {"generateName": "p-"}}
    path = f"/api/v1/namespaces/{placed}/pods"
    assert is_refused_at(owner.post(path, chosen), "spec.nodeSelector[zone]")
    tier = door.tenant.workspaces.get().tier_id
    tier_change(actor=OPERATOR, name=tier, policies={"node_labels": ["zone"]})
    assert OURS not in str(owner.post(path, chosen).body.get("message"))
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={"node_labels": []})
    assert is_refused_at(owner.post(path, chosen), "spec.nodeSelector[zone]")
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={})
    tier_change(actor=OPERATOR, name=tier, policies={})
    assert is_refused_at(owner.post(path, chosen), "spec.nodeSelector[zone]")
    entry = AuditEntry.objects.filter(action="tenant.policies", chain=door.name).latest("created_at")
    assert entry.detail["before"] == {"node_labels": []}


def test_a_person_who_binds_a_pod_chooses_its_node(tenant: Tenant, door_server: tuple[Server, str]) -> None:
    owner = owner_of(door_server[0], tenant)
    path = "/api/v1/namespaces/default/pods"
    assert owner.post(path, {"metadata": {"name": "p"}, "spec": {"containers": CONTAINERS}}).status == 201
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert is_refused_at(owner.post(f"{path}/p/binding", binding), "spec.nodeName")
    system = door_server[0].admin
    assert system.post(f"/clusters/root:{tenant.name}{path}/p/binding", binding).status == 201


def test_what_would_break_a_policy_is_listed_before_it_is_saved(door: Door, shop: tuple[Caller, str]) -> None:
    owner, placed = shop
    for namespace in (placed, "default"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        assert owner.post(path, deployment("web", "nginx", "ghcr.io/a/b")).status == 201
    found = tenant_policies_try(actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io"]})
    assert [(each.namespace, each.kind, each.name, each.violation.field) for each in found.offenders] == [
        ("default", "Deployment", "web", "spec.template.spec.containers[0].image"),
        (placed, "Deployment", "web", "spec.template.spec.containers[0].image"),
    ]
    assert (found.unseen, found.is_cut) == ([], False)
    refused = ["Secret", "CSIStorageCapacity.storage.k8s.io", "Widget.example.com"]
    assert owner.post(f"/api/v1/namespaces/{placed}/secrets", {"metadata": {"name": "s"}}).status == 201
    found = tenant_policies_try(actor=OPERATOR, name=door.name, policies={"refused_kinds": refused})
    assert [(each.namespace, each.kind, each.name) for each in found.offenders] == [(placed, "Secret", "s")]
    (closed,) = found.unseen
    assert closed.what == f"{refused[1]} in {placed}", "served, and open to nobody; widgets are not served"
    tier = door.tenant.workspaces.get().tier_id
    found = tier_policies_try(actor=OPERATOR, name=tier, policies={"registries": []})
    assert {each.namespace for each in found.offenders} == {placed}
    assert owner.post(f"/apis/apps/v1/namespaces/{placed}/deployments", deployment("other", "nginx")).status == 201
    with pytest.raises(Invalid, match="registries"):
        tenant_policies_try(actor=OPERATOR, name=door.name, policies={"registries": ["nginx"]})


def ingress(name: str, *hosts: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"rules": [{"host": host, **BACKEND} for host in hosts]}}


INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{}/ingresses"


@pytest.fixture
def two(tenant: Tenant, door_server: tuple[Server, str]) -> tuple[Caller, Caller]:
    """Owners of two tenants."""
    server, _ = door_server
    other = tenant_create(actor=OPERATOR, name=f"t{uuid4().hex[:8]}")
    assert eventually(lambda: owner_of(server, other).get("/api/v1/namespaces").status == 200)
    return owner_of(server, tenant), owner_of(server, other)


def test_a_host_name_is_one_tenants_until_none_of_its_ingresses_has_it(two: tuple[Caller, Caller]) -> None:
    one, other = two
    path = INGRESSES.format("default")
    assert one.post(path, ingress("a", "shop.example", "*.wide.example")).status == 201
    assert one.post(path, ingress("b", "shop.example")).status == 201
    for host in ("shop.example", "SHOP.example".lower(), "a.wide.example", "*.wide.example"):
        refused = other.post(path, ingress("a", "own.example", host))
        assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (403, "spec.rules[1].host"), host
    assert "another tenant's" in refused.body["message"]
    assert other.post(path, ingress("a", "own.example", "a.b.wide.example")).status == 201
    assert one.post(path, ingress("c", "*.example")).status == 403
    assert other.patch(f"{path}/a", ingress("a", "shop.example")).status == 403
    for name in "ab":
        assert other.post(path, ingress("later", "shop.example")).status == 403
        assert one.delete(f"{path}/{name}").status == 200
    assert other.post(path, ingress("later", "shop.example")).status == 201
    assert one.post(path, ingress("again", "shop.example")).status == 403


def test_of_two_that_take_a_name_at_once_one_gets_it(two: tuple[Caller, Caller]) -> None:
    path = INGRESSES.format("default")
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(10):
            hosts = [f"x{round_}.example", f"*.y{round_}.example", f"a.y{round_}.example"]
            asked = [(who, host) for who in two for host in hosts for _ in range(2)]
            answers = list(pool.map(lambda each: each[0].post(path, with_name(each[1])).status, asked))
            assert set(answers) <= {201, 403}
            for meeting in ({hosts[0]}, set(hosts[1:])):
                having = {
                    who for (who, host), status in zip(asked, answers, strict=True) if host in meeting and status == 201
                }
                assert len(having) == 1, (meeting, answers)


def with_name(host: str) -> dict[str, Any]:
    body = ingress("", host)
    body["metadata"] = {"generateName": "i-"}
    return body


def test_host_names_on_clusters_and_in_the_store_are_taken_from_one_pool(new_door: Callable[[], Door]) -> None:
    door = new_door()
    Cluster.objects.update(ingress_domain="example.org")
    owner = door.person("olga", Role.OWNER)
    placed = INGRESSES.format(door.place(owner))
    host = f"web.{door.name}.example.org"
    assert owner.post(placed, ingress("a", host)).status == 201
    neighbour = tenant_create(actor=OPERATOR, name=f"t{uuid4().hex[:8]}")
    other = owner_of(door.server, neighbour)
    assert eventually(lambda: other.get("/api/v1/namespaces").status == 200)
    stored = INGRESSES.format("default")
    assert other.post(stored, ingress("thief", host)).status == 403
    assert other.post(stored, ingress("first", f"b.{door.name}.example.org")).status == 201
    applied = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", **ingress("b", f"b.{door.name}.example.org")}
    refused = owner.patch(f"{placed}/b", applied, "apply", fieldManager="me")
    assert (refused.status, "another tenant's" in refused.body["message"]) == (403, True)
    assert owner.post(placed, ingress("b", f"b.{door.name}.example.org")).status == 403
    # Nothing is taken by what its cluster does not make.
    assert owner.post(placed, ingress("a", f"c.{door.name}.example.org")).status == 409
    assert other.post(stored, ingress("second", f"c.{door.name}.example.org")).status == 201
    assert other.delete(f"{stored}/first").status == 200
    assert owner.post(placed, ingress("b", f"b.{door.name}.example.org")).status == 201


def test_no_part_of_an_object_is_a_way_around_a_policy(tenant: Tenant, door_server: tuple[Server, str]) -> None:
    """Labels that are required are not taken off through the status, and of pods only what a part is for changes."""
    owner = owner_of(door_server[0], tenant)
    rules = {"required_labels": ["team"], "registries": ["ghcr.io"]}
    tenant_policies_change(actor=OPERATOR, name=tenant.name, policies=rules)
    core, metadata = "/api/v1/namespaces/default", {"name": "p", "labels": {"team": "a"}}
    rules_of_ingress = {"rules": [{"host": f"p.{tenant.name}.example", **BACKEND}]}
    for path, spec in (
        (f"{core}/pods", {"containers": [{"name": "c", "image": "ghcr.io/a/b"}]}),
        (f"{core}/services", {"ports": [{"port": 80}]}),
        (
            f"{core}/persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        (INGRESSES.format("default"), rules_of_ingress),
    ):
        made = owner.post(path, {"metadata": metadata, "spec": spec})
        assert made.status == 201, made.body
        status = f"{path}/p/status"
        assert is_refused_at(owner.patch(status, {"metadata": {"labels": {"team": None}}}), "metadata.labels[team]")
        unset = {**made.body, "metadata": {"name": "p", "namespace": "default"}}
        assert is_refused_at(owner.put(status, unset), "metadata.labels[team]"), path
        assert owner.patch(status, {"metadata": {"labels": {"more": "x"}}}).status == 200
        assert owner.get(f"{path}/p").body["metadata"]["labels"] == {"team": "a", "more": "x"}
    pod, evil = f"{core}/pods/p", {"image": "quay.io/x", "securityContext": {"privileged": True}}
    added = {"spec": {"ephemeralContainers": [{"name": "e", **evil}]}}
    assert is_refused_at(owner.patch(f"{pod}/ephemeralcontainers", added), "spec.ephemeralContainers[0].image")
    before = owner.get(pod).body["spec"]
    for part in ("resize", "ephemeralcontainers", "status"):
        hostile = {"hostNetwork": True, "nodeName": "n1", "containers": [{"name": "c", **evil}]}
        assert owner.patch(f"{pod}/{part}", {"spec": hostile}).status == 200
        assert owner.get(pod).body["spec"] == before, part
