"""The quota of a tenant over stored and placed namespaces together (AD1 to AD3, P8)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from audit.models import ApiRequest
from tenants.models import Role
from tenants.quotas import tenant_quota
from tenants.services import tenant_quota_change
from tests.gateway.callers import Caller, answered, config_map, created, eventually
from tests.gateway.conftest import Server, another, replicas_rule
from tests.gateway.placed.conftest import STANDING_IN, Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

MAPS = "count/configmaps"
SPACE = ("default", "kube-system", "kube-public")
"""The namespaces of a tenant's own space; the product keeps an object in each."""
ROUNDS = int(os.environ.get("TENANT_QUOTA_ROUNDS", "3"))


def path_of(namespace: str, plural: str = "configmaps") -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}"


def bound(door: Door, **hard: str) -> None:
    tenant_quota_change(actor=OPERATOR, name=door.name, hard={MAPS: "1000", **hard})
    assert eventually(lambda: set(hard) <= set(tenant_quota(door.name).used))


def used(door: Door, name: str = MAPS) -> int:
    return int(tenant_quota(door.name).used.get(name, "-1"))


def there(owner: Caller, *namespaces: str) -> int:
    return sum(len(answered(lambda at=at: owner.get(path_of(at))).body["items"]) for at in namespaces)


def pod(name: str, cpu: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Mi"}, "limits": {"cpu": cpu, "memory": "1Mi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def placed(door: Door) -> tuple[Caller, str]:
    """An owner, and a namespace on the cluster that has been counted."""
    owner = door.person("olga", Role.OWNER)
    namespace = door.place(owner)
    bound(door)
    # The cluster puts one of its own into every namespace.
    assert eventually(lambda: used(door) == there(owner, namespace, *SPACE))
    return owner, namespace


def test_both_kinds_of_namespaces_count_and_a_refusal_names_the_amounts(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    before = there(owner, namespace, *SPACE)
    bound(door, **{MAPS: str(before + 3)})
    assert owner.post(path_of(namespace), config_map("a")).status == 201
    assert owner.post(path_of("default"), config_map("a")).status == 201
    assert used(door) == before + 2
    assert owner.post(path_of(namespace), config_map("b"), dryRun="All").status == 201
    assert owner.post(path_of(namespace), config_map("a")).status == 409
    assert used(door) == before + 2
    assert owner.post(path_of(namespace), config_map("b")).status == 201
    for at in (namespace, "default"):
        refused = owner.post(path_of(at), config_map("c"))
        assert refused.status == 403
        said = f"exceeded quota: tenant {door.name}, requested: {MAPS}=1, used: {MAPS}={before + 3}, limited: {MAPS}={before + 3}"
        assert said in refused.body["message"]
        (cause,) = refused.body["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("QuotaExceeded", MAPS)
        assert cause["message"].startswith("asked 1, ") and f"{before + 3} of {before + 3}" in cause["message"]
    assert owner.delete(f"{path_of(namespace)}/a").status == 200
    assert eventually(lambda: used(door) == before + 2)
    assert owner.post(path_of("default"), config_map("c")).status == 201


def test_whichever_quota_refuses_the_amounts_of_namespace_and_tenant_are_told(
    door: Door, placed: tuple[Caller, str]
) -> None:
    """At the door too, where the cluster holds the quota of the namespace; and the trace names who refused (AZ11)."""
    owner, namespace = placed
    bound(door, **{"requests.cpu": "900m"})
    (own,) = owner.get(path_of(namespace, "resourcequotas")).body["items"]
    hard = own["spec"]["hard"]["requests.cpu"]
    assert hard == "4"
    assert owner.post(path_of(namespace, "pods"), pod("a", "600m")).status == 201
    by_tenant = owner.post(path_of(namespace, "pods"), pod("b", "500m"))
    said = f"asked 500m, 600m of {hard} used in the namespace, 600m of 900m in the tenant"
    assert by_tenant.status == 403 and by_tenant.body["message"].endswith(f"; requests.cpu: {said}"), by_tenant.body
    assert [each["message"] for each in by_tenant.body["details"]["causes"]] == [said]
    by_namespace = owner.post(path_of(namespace, "pods"), pod("c", "3600m"))
    said = f"asked 3600m, 600m of {hard} used in the namespace, 600m of 900m in the tenant"
    assert by_namespace.status == 403 and f"requests.cpu: {said}" in by_namespace.body["message"], by_namespace.body
    assert said in [each["message"] for each in by_namespace.body["details"]["causes"]]
    for step, rule in (("TenantQuota", "TenantQuota quota"), ("ResourceQuota", "")):
        refused = ApiRequest.objects.filter(tenant=door.name, step=f"admission/{step}", code=403)
        assert eventually(refused.exists)
        row = refused.first()
        assert row is not None and row.trace and rule in row.trace[-1]["rule"] and "in the tenant" in row.reason


def test_what_a_cluster_deletes_is_given_back_whatever_the_query_says(door: Door, placed: tuple[Caller, str]) -> None:
    """Of a deletion with options in its body a cluster reads no others: it is no dry run."""
    owner, namespace = placed
    before = there(owner, namespace, *SPACE)
    assert owner.post(path_of(namespace), config_map("a")).status == 201
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert owner.delete(f"{path_of(namespace)}/a", options, dryRun="All").status == 200
    assert owner.get(f"{path_of(namespace)}/a").status == 404
    assert eventually(lambda: used(door) == before)


def test_pods_count_with_the_defaults_that_the_cluster_gives_them(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    bound(door, **{"requests.cpu": "1"})
    assert owner.post(path_of(namespace, "pods"), pod("a", "600m")).status == 201
    assert tenant_quota(door.name).used["requests.cpu"] == "600m"
    refused = owner.post(path_of(namespace, "pods"), pod("b", "500m"))
    assert "requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1" in refused.body["message"]
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "c"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    assert owner.post(path_of(namespace, "pods"), plain).status == 201
    assert tenant_quota(door.name).used["requests.cpu"] == "700m"


def test_with_scopes_it_counts_what_is_in_them_on_the_cluster_too(door: Door, placed: tuple[Caller, str]) -> None:
    """AD3."""
    owner, namespace = placed
    assert owner.post(path_of(namespace, "pods"), pod("a", "10m")).status == 201
    change = {"spec": {"hard": {MAPS: None, "pods": "1"}, "scopes": ["Terminating"]}}
    path = f"/clusters/root:{door.name}/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"
    assert door.server.admin.patch(path, change).status == 200
    assert eventually(lambda: tenant_quota(door.name).used == {"pods": "0"})
    ending = pod("b", "10m")
    ending["spec"]["activeDeadlineSeconds"] = 3600
    assert owner.post(path_of(namespace, "pods"), ending).status == 201
    ending["metadata"]["name"] = "c"
    assert "used: pods=1, limited: pods=1" in owner.post(path_of(namespace, "pods"), ending).body["message"]
    assert owner.post(path_of(namespace, "pods"), pod("c", "10m")).status == 201
    assert tenant_quota(door.name).used == {"pods": "1"}


@pytest.fixture
def status_writers(door: Door) -> Iterator[None]:
    """What an operator may open, and no role of workspaces has."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "status-writers", "labels": {"tenantry.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["*"]}],
    }
    given = yaml.safe_dump(role)
    door.cluster.kubectl("apply", "-f", "-", stdin=given)
    yield
    door.cluster.kubectl("delete", "-f", "-", stdin=given)


@pytest.mark.usefixtures("status_writers")
def test_who_may_write_a_status_on_the_cluster_passes_no_quota_by_it(door: Door, placed: tuple[Caller, str]) -> None:
    """AD1: what it tells is so, but that what has ended runs again."""
    owner, namespace = placed
    path = path_of(namespace, "pods")
    bound(door, pods="1")
    assert owner.post(path, pod("a", "10m")).status == 201

    def told(phase: str) -> Any:
        return owner.patch(f"{path}/a/status", {"metadata": {"annotations": {"a": phase}}, "status": {"phase": phase}})

    assert eventually(lambda: told("Succeeded").status == 200)
    assert eventually(lambda: used(door, "pods") == 0)
    assert owner.post(path, pod("b", "10m")).status == 201
    refused = told("Running")
    assert (refused.status, "used: pods=1, limited: pods=1" in refused.body["message"]) == (403, True)
    assert told("Failed").status == 200


MACHINES = "machines.virtual.example.org"


@pytest.fixture
def machines(door: Door) -> Iterator[str]:
    """A kind that the cluster has and Kubernetes has not, in everybody's role; where its objects are, but for the namespace."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "Machine", "plural": "machines", "singular": "machine"}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": MACHINES},
        "spec": {"group": "virtual.example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "machines", "labels": {"tenantry.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["virtual.example.org"], "resources": ["machines"], "verbs": ["*"]}],
    }
    given = yaml.safe_dump_all([definition, role])
    door.cluster.kubectl("apply", "-f", "-", stdin=given)
    door.cluster.kubectl("wait", "--for=condition=Established", f"crd/{MACHINES}")
    yield "/apis/virtual.example.org/v1alpha1/namespaces/{}/machines"
    door.cluster.kubectl("delete", "-f", "-", stdin=given)


def test_kinds_that_the_cluster_alone_has_count_there(door: Door, placed: tuple[Caller, str], machines: str) -> None:
    """AD1, AD3: at the door and past it, and what ends is given back."""
    owner, namespace = placed
    name, path = f"count/{MACHINES}", machines.format(namespace)

    def machine(called: str) -> dict[str, Any]:
        return {"apiVersion": "virtual.example.org/v1alpha1", "kind": "Machine", "metadata": {"name": called}}

    bound(door, **{name: "2"})
    assert eventually(lambda: owner.post(path, machine("a")).status in (201, 409))
    assert owner.post(path, machine("b")).status == 201
    refused = owner.post(path, machine("c"))
    assert (refused.status, f"used: {name}=2, limited: {name}=2" in refused.body["message"]) == (403, True)
    assert owner.delete(f"{path}/a").status == 200
    assert eventually(lambda: used(door, name) == 1)
    door.cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=yaml.safe_dump(machine("past")))
    assert owner.delete(f"{path}/none").status == 404
    assert eventually(lambda: used(door, name) == 2)
    assert owner.post(path, machine("c")).status == 403


def test_what_the_door_does_not_send_takes_nothing(door: Door, placed: tuple[Caller, str], machines: str) -> None:
    """AD1: the cluster has nothing against what has a key twice, and what is judged could be another than it reads."""
    owner, namespace = placed
    name, path = f"count/{MACHINES}", machines.format(namespace)
    bound(door, **{name: "1"})
    machine = {"apiVersion": "virtual.example.org/v1alpha1", "kind": "Machine", "metadata": {"name": "a"}}
    twice = json.dumps({**machine, "spec": {"cores": 1}}).replace('"cores": 1', '"cores": 1, "cores": 2').encode()
    media = {"Content-Type": "application/json"}
    assert eventually(lambda: owner.call("PUT", f"{path}/a", twice, media).status == 400)
    assert used(door, name) == 0
    assert owner.put(f"{path}/a", machine).status == 201
    assert used(door, name) == 1


@pytest.fixture
def devices(door: Door) -> Iterator[str]:
    """Claims of devices, in everybody's role; where they are, but for the namespace."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "devices", "labels": {"tenantry.io/aggregate-to-edit": "true"}},
        "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["*"]}],
    }
    given = yaml.safe_dump(role)
    door.cluster.kubectl("apply", "-f", "-", stdin=given)
    yield "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
    door.cluster.kubectl("delete", "-f", "-", stdin=given)


def test_devices_count_on_the_cluster_by_their_class(door: Door, placed: tuple[Caller, str], devices: str) -> None:
    """AD1, AD3: at the door and past it, and what ends is given back."""
    owner, namespace = placed
    name, path = "gpu.deviceclass.resource.k8s.io/devices", devices.format(namespace)

    def claim(called: str, number: int) -> dict[str, Any]:
        exactly = {"deviceClassName": "gpu", "count": number}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": called},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }

    bound(door, **{name: "3"})
    assert eventually(lambda: owner.post(path, claim("a", 2)).status in (201, 409))
    refused = owner.post(path, claim("b", 2))
    assert (refused.status, f"used: {name}=2, limited: {name}=3" in refused.body["message"]) == (403, True)
    door.cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=yaml.safe_dump(claim("past", 1)))
    assert owner.delete(f"{path}/none").status == 404
    assert eventually(lambda: used(door, name) == 3)
    assert owner.post(path, claim("b", 1)).status == 403
    assert owner.delete(f"{path}/a").status == 200
    assert eventually(lambda: used(door, name) == 1)


def test_below_what_is_used_growth_alone_is_refused(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    assert owner.post(path_of(namespace), config_map("a")).status == 201
    bound(door, **{MAPS: "1"})
    assert owner.post(path_of(namespace), config_map("b")).status == 403
    assert owner.patch(f"{path_of(namespace)}/a", {"data": {"still": "changes"}}).status == 200
    assert owner.delete(f"{path_of(namespace)}/a").status == 200


@pytest.fixture
def two(
    door: Door, door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Server, Server]]:
    """The API server, and another one with three processes."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(door.server, tmp_path / "data", "--workers", "3") as second:
        yield door.server, second


def test_forty_at_once_in_several_processes_are_never_one_too_many(
    door: Door, placed: tuple[Caller, str], two: tuple[Server, Server]
) -> None:
    """TENANT_QUOTA_ROUNDS rounds, three unless it says otherwise."""
    owner, namespace = placed
    second = two[1].user(door.name, f"olga@{door.name}.test", "tenantry:owner")
    assert eventually(lambda: second.get(path_of(namespace)).status == 200)
    names = (f"m{number}" for number in count())

    def make(each: tuple[int, str]) -> int:
        number, name = each
        who, at = (owner, second)[number % 2], (namespace, "default")[number // 2 % 2]
        return created(lambda: who.post(path_of(at), config_map(name, labels={"of": "race"})))

    def held() -> int:
        return there(owner, namespace, *SPACE)

    with ThreadPoolExecutor(20) as pool:
        for _ in range(ROUNDS):
            room = held() + 7
            bound(door, **{MAPS: str(room)})
            assert eventually(lambda: used(door) == held())
            statuses = list(pool.map(make, zip(range(40), names, strict=False)))
            assert set(statuses) <= {201, 403}
            assert held() == room - 7 + statuses.count(201) <= room

            def filled(room: int = room) -> bool:
                """Nothing is lost for ever: what was refused too early for a moment fits when it is tried again."""
                owner.post(path_of(namespace), config_map(next(names), labels={"of": "race"}))
                return held() == room

            assert eventually(filled)
            assert eventually(lambda room=room: used(door) == room)
            for at in (namespace, "default"):
                assert answered(lambda at=at: owner.delete(path_of(at), labelSelector="of")).status == 200


def test_what_is_scaled_to_counts_by_the_rules_about_replicas(
    new_standing_door: Callable[[], Door],
    door_server: tuple[Server, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AD2, AD3: ``kubectl scale`` writes no object, and is judged as if it did, in both kinds of namespaces."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    door = new_standing_door()
    where = door.place(door.person("olga", Role.OWNER), on=STANDING_IN)
    with another(door.server, tmp_path / "data", replicas_rule(tmp_path)) as second:
        tenant_quota_change(actor=OPERATOR, name=door.name, hard={"example.com/replicas": "5", "pods": "99"})
        owner = Door(second, None, door.tenant).person("olga", Role.OWNER)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
        for namespace in (where, "default"):
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
            assert eventually(lambda path=path: owner.post(path, made).status in (201, 409))
            scale = owner.get(f"{path}/web/scale").body
            scale["spec"]["replicas"] = 400
            for refused in (
                owner.patch(f"{path}/web/scale", {"spec": {"replicas": 400}}),
                owner.put(f"{path}/web/scale", scale),
                owner.patch(f"{path}/web/scale", [{"op": "replace", "path": "/spec/replicas", "value": 400}], "json"),
                owner.patch(f"{path}/web", {"spec": {"replicas": 400}}),
            ):
                assert refused.status == 403, refused.body
                assert "requested: example.com/replicas=399" in refused.body["message"]
            for wanted in (2, 1):
                assert owner.patch(f"{path}/web/scale", {"spec": {"replicas": wanted}}).status == 200
                assert owner.get(f"{path}/web").body["spec"]["replicas"] == wanted


def test_what_no_tenant_may_create_is_not_created_on_clusters_either(
    door: Door,
    placed: tuple[Caller, str],
    door_server: tuple[Server, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AD4: as configured, by whichever verb; what is there goes on."""
    owner, namespace = placed
    assert owner.post(path_of(namespace), config_map("older")).status == 201
    told = {"apiVersion": "tenancy.tenantry.io/v1alpha1", "kind": "TenantScopeConfiguration", "refused": ["configmaps"]}
    plugins = [{"name": "TenantScope", "configuration": told}]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    file = tmp_path / "admission.yaml"
    file.write_text(yaml.safe_dump({**kind, "plugins": plugins}))
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(door.server, tmp_path / "data", f"--admission-control-config-file={file}") as second:
        caller = second.user(door.name, f"olga@{door.name}.test", "tenantry:owner")
        assert eventually(lambda: caller.get(path_of(namespace)).status == 200)
        body = {**config_map("new"), "apiVersion": "v1", "kind": "ConfigMap"}
        for at in (namespace, "default"):
            answers = [
                caller.post(path_of(at), body),
                caller.patch(f"{path_of(at)}/new", body, "apply", fieldManager="me"),
            ]
            for answer in answers:
                assert answer.status == 403, answer.body
                assert "configmaps cannot be created in a tenant space" in answer.body["message"]
        assert caller.patch(f"{path_of(namespace)}/older", {"data": {"a": "b"}}).status == 200
        assert caller.delete(f"{path_of(namespace)}/older").status == 200
