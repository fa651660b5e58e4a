"""Explained requests with the object that they send: the step of the admission, its rule and the amounts (AZ11, AD1 to AD5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from store import synchronous
from store.types import Create, Key
from tenants.models import Role, Tenant, User
from tenants.services import tenant_policies_change, tenant_quota_change
from tests import factories
from tests.portal.conftest import signed_in
from tests.portal.test_access import acme, globex
from tests.tenants.conftest import OPERATOR

__all__ = ["acme", "globex"]

PODS = "/api/v1/namespaces/team/pods"


def pod(cpu: str = "2", image: str = "nginx", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    return {**body, "spec": {"containers": [container], **spec}}


def there(space: str, plural: str, body: dict[str, Any], namespace: str = "") -> None:
    metadata = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}"}
    key = Key(space, "", plural, namespace, metadata["name"])
    synchronous.commit([Create(key, {**body, "metadata": metadata})])


@pytest.fixture
def owner(acme: Tenant) -> User:
    """Of a tenant with a namespace in which pods are bounded."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    team = {"kind": "Namespace", "metadata": {"name": "team", "labels": labels}, "status": {"phase": "Active"}}
    there("root:acme", "namespaces", {"apiVersion": "v1", **team})
    there("root:acme", "serviceaccounts", {"metadata": {"name": "default", "namespace": "team"}}, "team")
    hard, used = {"requests.cpu": "4"}, {"requests.cpu": "3"}
    quota = {"metadata": {"name": "small", "namespace": "team"}, "spec": {"hard": hard}}
    there("root:acme", "resourcequotas", {**quota, "status": {"hard": hard, "used": used}}, "team")
    tenant_quota_change(actor=OPERATOR, name="acme", hard={"requests.cpu": "20"})
    return factories.member(acme, Role.OWNER)


def explained(user: User, manifest: dict[str, Any] | None, path: str = PODS, method: str = "POST") -> dict[str, Any]:
    body = {"user": {"name": user.email, "tenant": "acme"}, "method": method, "path": path, "manifest": manifest}
    answer = signed_in(user).post("/api/v1/access/explain", body, content_type="application/json")
    return {"status": answer.status_code, **answer.json()}


def test_a_quota_that_would_refuse_is_named_with_its_amounts(owner: User) -> None:
    """Not the authorization that passed; and nothing is sent, or kept."""
    found = explained(owner, pod("2"))
    assert (found["decision"], found["decidedBy"]) == ("deny", "admission/ResourceQuota")
    assert "requests.cpu: asked 2, 3 of 4 used in the namespace, 0 of 20 in the tenant" in found["reason"]
    assert [step["step"] for step in found["trace"]][-2:] == ["RBAC", "admission/ResourceQuota"]
    assert found["trace"][-1]["rule"] == "ResourceQuota team/small"
    assert explained(owner, pod("1"))["trace"][-1] == {
        "step": "admission",
        "decision": "allow",
        "reason": "no step of it refuses the object",
        "rule": "",
    }
    assert synchronous.get(Key("root:acme", "", "pods", "team", "web")) is None
    assert explained(owner, None)["decision"] == "allow"
    page = signed_in(owner).get(
        "/explain/",
        {"method": "POST", "path": PODS, "user": owner.email, "tenant": "acme", "manifest": str(pod("2"))},
    )
    assert "3 of 4 used in the namespace, 0 of 20 in the tenant" in page.content.decode()


@pytest.mark.parametrize(
    ("manifest", "step", "words"),
    [
        (pod("1", image="elsewhere.example/x"), "TenantPolicy", "rule registries"),
        (pod("1", nodeName="n"), "TenantPolicy", "rule node_names"),
        (pod("1", hostNetwork=True), "PodSecurity", "host namespaces"),
        (pod("21"), "ResourceQuota", "asked 21, 3 of 4 used in the namespace, 0 of 20 in the tenant"),
        (pod("1", restartPolicy="Sometimes"), "ObjectValidation", "restartPolicy"),
    ],
)
def test_every_step_of_the_admission_says_why(owner: User, manifest: dict[str, Any], step: str, words: str) -> None:
    tenant_policies_change(actor=OPERATOR, name="acme", policies={"registries": ["docker.io/library"]})
    found = explained(owner, manifest)
    assert (found["decision"], found["decidedBy"]) == ("deny", f"admission/{step}"), found
    assert words in found["reason"]


def test_the_tenants_quota_is_named_where_it_refuses(owner: User) -> None:
    tenant_quota_change(actor=OPERATOR, name="acme", hard={"requests.cpu": "500m"})
    found = explained(owner, pod("1"))
    assert found["decidedBy"] == "admission/TenantQuota"
    assert "requests.cpu: asked 1, 3 of 4 used in the namespace, 0 of 500m in the tenant" in found["reason"]


def test_who_may_not_send_it_learns_nothing_of_what_would_refuse_the_object(acme: Tenant, owner: User) -> None:
    viewer = factories.member(acme, Role.VIEWER)
    found = explained(viewer, pod("2"))
    assert found["decision"] == "deny"
    assert not [step for step in found["trace"] if step["step"].startswith("admission")]


@pytest.mark.parametrize(
    ("path", "method", "manifest", "status"),
    [
        (PODS, "GET", pod(), 400),
        (f"{PODS}/web", "PUT", pod(), 400),
        (PODS, "POST", "a text", 400),
    ],
)
def test_what_makes_no_object_is_said(owner: User, path: str, method: str, manifest: Any, status: int) -> None:
    assert explained(owner, manifest, path, method)["status"] == status


@pytest.mark.parametrize("manifest", [{}, {"kind": 7}, {"metadata": 7}, {**pod(), "spec": 7}, {**pod(), "kind": "Job"}])
def test_what_is_no_pod_is_refused_as_the_server_would(owner: User, manifest: dict[str, Any]) -> None:
    assert explained(owner, manifest)["decision"] == "deny"


def test_the_page_says_what_is_no_manifest(owner: User) -> None:
    browser: Client = signed_in(owner)
    asked = {"method": "POST", "path": PODS, "user": owner.email, "tenant": "acme", "manifest": "a: ["}
    assert browser.get("/explain/", asked).status_code == 422
