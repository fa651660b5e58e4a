"""AdmissionReview: what a cluster may write in the namespaces of tenants, whoever writes it there (GW17, AD4, AD5)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from audit.models import ApiRequest
from tenants.services import tenant_policies_change
from tests.gateway.callers import eventually
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
    answer = asking.ask("admit", review, timeout="10s")
    assert answer.status == 200, answer.raw
    response = dict(answer.body["response"])
    assert response["uid"] == review["request"]["uid"]
    return response


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
