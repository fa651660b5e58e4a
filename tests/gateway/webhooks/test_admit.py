"""AdmissionReview: what a cluster may write in the namespaces of tenants, whoever writes it there (GW17, AD1 to AD5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from audit.models import ApiRequest
from tenants.policies import policies_enforced
from tenants.services import tenant_policies_change, tenant_quota_change
from tests.gateway.callers import Answer, eventually
from tests.gateway.conftest import Server, another, replicas_rule
from tests.gateway.webhooks.conftest import Asking, Customer, account
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

CONTROLLER = {
    "username": "system:serviceaccount:kube-system:replicaset-controller",
    "groups": ["system:serviceaccounts:kube-system"],
}
MARKS = {"app.kubernetes.io/managed-by": "tenantry", "tenantry.io/workspace": "w", "tenantry.io/tenant": "t"}


def pod(name: str = "", cpu: str = "1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or f"p-{uuid4().hex[:8]}", "uid": str(uuid4())},
        "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}]},
    }


def write(
    namespace: str, body: dict[str, Any], *, old: dict[str, Any] | None = None, operation: str = "", **more: Any
) -> dict[str, Any]:
    """The review of a write by a controller of the cluster, unless somebody else is named."""
    group, _, version = body["apiVersion"].rpartition("/")
    plural = more.pop("resource", f"{body['kind'].lower()}s")
    operation = operation or ("UPDATE" if old else "CREATE")
    request = {
        "uid": str(uuid4()),
        "kind": {"group": group, "version": version, "kind": body["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "name": body["metadata"]["name"],
        "namespace": namespace,
        "operation": operation,
        "userInfo": CONTROLLER,
        "object": None if operation == "DELETE" else body,
        "oldObject": body if operation == "DELETE" else old,
        "dryRun": False,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def admit(asking: Asking, namespace: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    review = write(namespace, body, **more)
    answer = asking.ask("admit", review)
    assert answer.status == 200, answer.raw
    response = dict(answer.body["response"])
    assert response["uid"] == review["request"]["uid"]
    return response


def bound(asking: Asking, customer: Customer, **hard: str) -> None:
    """Set what the tenant may hold."""
    path = f"/clusters/root:{customer.tenant.name}/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"
    body = {"spec": {"hard": {name.replace("_", "."): amount for name, amount in hard.items()}}}

    def done() -> bool:
        return (
            asking.product.admin.call(
                "PATCH",
                path,
                [{"op": "replace", "path": "/spec/hard", "value": body["spec"]["hard"]}],
                {"Content-Type": "application/json-patch+json"},
            ).status
            == 200
        )

    assert eventually(done)


def used(asking: Asking, customer: Customer) -> dict[str, str]:
    path = f"/clusters/root:{customer.tenant.name}/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"
    return dict(asking.product.admin.get(path).body["status"]["used"])


def test_the_quota_of_the_tenant_holds_for_controllers_too(asking: Asking, acme: Customer) -> None:
    """AD1, AD2: exactly as many as there is room for, with the amounts in the refusal and the step in the audit."""
    bound(asking, acme, pods="2", requests_cpu="10")
    first, second = pod(cpu="4"), pod(cpu="4")
    assert admit(asking, acme.namespace, first)["allowed"]
    assert admit(asking, acme.namespace, second)["allowed"]
    refused = admit(asking, acme.namespace, pod())
    assert (refused["allowed"], refused["status"]["code"], refused["status"]["reason"]) == (False, 403, "Forbidden")
    assert "exceeded quota: tenant" in refused["status"]["message"]
    assert "pods=1, used: pods=2, limited: pods=2" in refused["status"]["message"]

    def told() -> bool:
        causes = admit(asking, acme.namespace, pod())["status"]["details"]["causes"]
        said = [each["message"] for each in causes if each["field"] == "pods"]
        return said == ["asked 1, 0 of 30 used in the namespace, 2 of 2 in the tenant"]

    # A refusal waits for the namespace's amounts, but not for long.
    assert eventually(told)
    assert used(asking, acme) == {"pods": "2", "requests.cpu": "8"}
    # Asked again about the same object, as clusters do: it is claimed once.
    assert admit(asking, acme.namespace, first)["allowed"]
    assert used(asking, acme) == {"pods": "2", "requests.cpu": "8"}
    assert eventually(
        lambda: ApiRequest.objects.filter(tenant=acme.tenant.name, step="admission/TenantQuota", code=403).exists()
    )


def revised(body: dict[str, Any], version: str, cpu: str) -> dict[str, Any]:
    """A pod as it is kept in a version."""
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}, "spec": pod(cpu=cpu)["spec"]}


def test_what_grows_is_counted_by_what_it_grows(asking: Asking, acme: Customer) -> None:
    bound(asking, acme, requests_cpu="5")
    made = pod(cpu="2")
    assert admit(asking, acme.namespace, made)["allowed"]
    first, larger, largest = revised(made, "1", "2"), revised(made, "1", "5"), revised(made, "2", "6")
    assert admit(asking, acme.namespace, larger, old=first)["allowed"]
    assert admit(asking, acme.namespace, larger, old=first)["allowed"]
    assert used(asking, acme) == {"requests.cpu": "5"}
    assert not admit(asking, acme.namespace, largest, old=revised(made, "2", "5"))["allowed"]
    # What is older than the webhook is not refused for what it takes already.
    older = revised(pod(), "7", "7")
    labelled = {**older, "metadata": {**older["metadata"], "labels": {"a": "b"}}}
    assert admit(asking, acme.namespace, labelled, old=older)["allowed"]


def test_a_status_that_a_cluster_asks_about_is_so_and_what_is_beside_it_a_wish(asking: Asking, acme: Customer) -> None:
    """AD1: as in stored namespaces."""
    name = "gold.storageclass.storage.k8s.io/requests.storage"
    bound(asking, acme, **{name: "9"})
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "uid": str(uuid4()), "resourceVersion": "1"},
        "spec": {"resources": {"requests": {"storage": "5"}}},
    }
    told = {**claim, "status": {"phase": "Bound", "allocatedResources": {"storage": "20"}}}
    golden = {
        **told,
        "metadata": {**claim["metadata"], "annotations": {"volume.beta.kubernetes.io/storage-class": "gold"}},
    }
    gold = {**claim, "metadata": golden["metadata"]}
    assert admit(asking, acme.namespace, told, old=claim, subResource="status")["allowed"]
    assert not admit(asking, acme.namespace, golden, old=told, subResource="status")["allowed"]
    assert used(asking, acme) == {name: "0"}
    assert admit(asking, acme.namespace, golden, old=claim, subResource="status")["allowed"]
    assert used(asking, acme) == {name: "5"}
    assert admit(asking, acme.namespace, golden, old=gold, subResource="status")["allowed"]


def test_what_a_controller_scales_to_counts_by_the_rules_about_replicas(
    asking: Asking,
    acme: Customer,
    door_server: tuple[Server, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AD2, AD3: of a kind that the cluster alone has too, of which it shows nothing but the Scale."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])

    def scaled(group: str, plural: str, name: str, replicas: int) -> bool:
        metadata = {"name": name, "uid": f"{plural}-{name}", "resourceVersion": "1"}
        old, new = (
            {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": number}}
            for number in (1, replicas)
        )
        review = write(acme.namespace, new, old=old, subResource="scale")
        review["request"]["resource"] = {"group": group, "version": "v1", "resource": plural}
        answer = counting.ask("admit", review)
        assert answer.status == 200, answer.raw
        return bool(answer.body["response"]["allowed"])

    with another(asking.product, tmp_path / "data", replicas_rule(tmp_path)) as second:
        counting = replace(asking, product=second)
        bound(counting, acme, **{"example.com/replicas": "5", "count/deployments.apps": "0"})
        for group, plural in (("apps", "deployments"), ("pool.kubevirt.io", "virtualmachinepools")):
            assert not scaled(group, plural, "a", 500)
            assert scaled(group, plural, "a", 3)
            assert scaled(group, plural, "a", 0)
        assert used(counting, acme)["example.com/replicas"] == "4"
        assert not scaled("apps", "deployments", "b", 3)
        assert scaled("apps", "statefulsets", "c", 500), "no rule is about it"


def test_two_changes_of_one_version_are_not_taken_for_one(asking: Asking, acme: Customer) -> None:
    """AD2: the first may come to nothing, and the other be made."""
    bound(asking, acme, requests_cpu="5")
    made = pod(cpu="2")
    assert admit(asking, acme.namespace, made)["allowed"]
    first = revised(made, "1", "2")
    for cpu, allowed, taken in (("3", True, "3"), ("6", False, "3"), ("4", True, "4"), ("3", True, "4")):
        assert admit(asking, acme.namespace, revised(made, "1", cpu), old=first)["allowed"] is allowed, cpu
        assert used(asking, acme) == {"requests.cpu": taken}
    assert not admit(asking, acme.namespace, revised(made, "1", "6"), old=first, dryRun=True)["allowed"]


def test_that_a_cluster_asks_is_known_by_its_asking(asking: Asking, acme: Customer) -> None:
    """Not by its credential, nor by the other webhooks, which judge no object (AD5)."""

    def enforced() -> tuple[str, bool]:
        (found,) = policies_enforced(acme.tenant, timezone.now())
        return found.enforced, found.last_asked is not None

    assert asking.ask("authenticate", {}).status == 400
    assert enforced() == ("door", False)

    # A process tells once a minute: that a cluster of this name has asked before counts for nothing.
    assert admit(asking, acme.namespace, pod(), dryRun=True)["allowed"]
    assert eventually(lambda: enforced() == ("webhook", True))
    (later,) = policies_enforced(acme.tenant, timezone.now() + timedelta(days=2))
    assert (later.enforced, later.last_asked is not None) == ("door", True)


def test_a_dry_run_is_judged_and_keeps_nothing(asking: Asking, acme: Customer) -> None:
    bound(asking, acme, pods="1")
    assert admit(asking, acme.namespace, pod(), dryRun=True)["allowed"]
    assert admit(asking, acme.namespace, pod(), dryRun=True)["allowed"]
    assert used(asking, acme) == {"pods": "0"}
    assert admit(asking, acme.namespace, pod())["allowed"]
    assert not admit(asking, acme.namespace, pod(), dryRun=True)["allowed"]


def test_nobody_waits_for_a_count(asking: Asking, acme: Customer) -> None:
    """What the tenant's quota bounds anew is counted by whoever asks first, beside what is on its way (AD2)."""
    bound(asking, acme, pods="9")
    made = []
    for number in range(3):
        made.append(pod())
        assert admit(asking, acme.namespace, made[-1])["allowed"]
        hard = {"pods": "9", f"count/configmaps{'.example.com' * number}": "3"}
        tenant_quota_change(actor=OPERATOR, name=acme.tenant.name, hard=hard)
        assert admit(asking, acme.namespace, made[-1])["allowed"]
        assert admit(asking, acme.namespace, pod(), dryRun=True)["allowed"]
    tenant_quota_change(actor=OPERATOR, name=acme.tenant.name, hard={"pods": "3", "requests.cpu": "3"})
    assert not admit(asking, acme.namespace, pod(cpu="0"))["allowed"]


def test_never_one_unit_over_however_many_ask_at_once(asking: Asking, acme: Customer) -> None:
    """AD2."""
    bound(asking, acme, pods="7")
    reviews = [write(acme.namespace, pod()) for _ in range(40)]

    def ask(review: dict[str, Any]) -> Answer:
        return asking.ask("admit", review)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, reviews))
    assert {answer.status for answer in answers} == {200}
    assert sum(answer.body["response"]["allowed"] for answer in answers) == 7
    assert used(asking, acme) == {"pods": "7"}


def test_kinds_that_no_tenant_may_make_are_refused_to_everybody(asking: Asking, acme: Customer) -> None:
    """AD4."""
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "uid": str(uuid4())}, "spec": {}}
    refused = admit(asking, acme.namespace, body)
    assert "daemonsets cannot be created in a tenant space" in refused["status"]["message"]
    assert admit(asking, "kube-system", body)["allowed"]


def test_the_tenants_policy_holds_for_what_controllers_make(asking: Asking, acme: Customer, globex: Customer) -> None:
    """AD5; a refusal is in the tenant's audit, with who was refused (AZ11)."""
    assert admit(asking, acme.namespace, pod())["allowed"]
    tenant_policies_change(actor=OPERATOR, name=acme.tenant.name, policies={"registries": ["registry.example.org"]})
    for dry_run in (False, True):
        refused = admit(asking, acme.namespace, pod("web"), dryRun=dry_run)
        assert not refused["allowed"]
        assert (refused["status"]["code"], refused["status"]["reason"]) == (403, "Forbidden")
        assert "spec.containers[0].image" in [cause["field"] for cause in refused["status"]["details"]["causes"]]
    assert admit(asking, globex.namespace, pod())["allowed"]
    kept = {"tenant": acme.tenant.name, "actor": CONTROLLER["username"], "code": 403}
    assert eventually(lambda: ApiRequest.objects.filter(**kept).exists())
    assert not ApiRequest.objects.filter(**{**kept, "tenant": globex.tenant.name}).exists()


def ingress(host: str) -> dict[str, Any]:
    spec = {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}, "rules": [{"host": host}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "uid": str(uuid4())},
        "spec": spec,
    }


def test_a_host_name_is_the_tenants_that_was_admitted_first(asking: Asking, acme: Customer, globex: Customer) -> None:
    """AD5; a dry run takes none."""
    body = ingress(f"web.{acme.tenant.name}.example")

    def asked(customer: Customer, **more: Any) -> dict[str, Any]:
        return admit(asking, customer.namespace, body, resource="ingresses", **more)

    assert asked(globex, dryRun=True)["allowed"]
    assert asked(acme)["allowed"]
    for dry_run in (True, False):
        refused = asked(globex, dryRun=dry_run)
        assert [cause["field"] for cause in refused["status"]["details"]["causes"]] == ["spec.rules[0].host"]
    assert asked(acme)["allowed"]


def test_nobody_but_the_platform_touches_what_a_workspace_owns_or_its_marks(asking: Asking, acme: Customer) -> None:
    """GW5; strangers who may do everything on the cluster included."""
    robot = account(acme.namespace, "sa-tenant-admin")
    robot = {"username": robot["user"], "groups": robot["groups"]}
    stranger, gateway = {"username": "stranger"}, {"username": "tenantry-gateway"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": acme.namespace, "labels": MARKS}}
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": acme.namespace}}
    taken = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine", "labels": MARKS}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tenantry-quota"}, "spec": {}}
    for who, allowed in ((robot, False), (stranger, False), (gateway, True), (CONTROLLER, True)):
        answers = [
            admit(asking, acme.namespace, bare, old=namespace, userInfo=who),
            admit(asking, acme.namespace, namespace, operation="DELETE", userInfo=who),
            admit(asking, "mine", taken, userInfo=who),
            admit(asking, acme.namespace, quota, old=quota, userInfo=who),
            admit(asking, acme.namespace, quota, operation="DELETE", userInfo=who),
        ]
        assert [answer["allowed"] for answer in answers] == [allowed] * 5, (who, answers)
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "a"}}}
    assert admit(asking, "other", other, userInfo=stranger)["allowed"]


@pytest.mark.parametrize(
    "change",
    [
        {"uid": ""},
        {"operation": "INVENT"},
        {"resource": {}},
        {"object": 7},
        {"object": {"metadata": 7}},
        {"object": {"metadata": {"labels": []}}},
        {"userInfo": {"groups": "x"}},
        {"namespace": 1},
    ],
)
def test_what_is_no_review_is_refused(asking: Asking, change: dict[str, Any]) -> None:
    body = write("default", pod())
    body["request"].update(change)
    assert asking.ask("admit", body).status == 400
    assert asking.ask("admit", {**body, "apiVersion": "admission.k8s.io/v1beta1"}).status == 400
