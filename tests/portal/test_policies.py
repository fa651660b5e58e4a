"""What the objects of a tenant may be, for people: read by its members, tried and changed by operators (AD5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from audit.models import AuditEntry
from store import synchronous
from store.types import Create, Key
from tenants.models import Tenant, Tier, User
from tests import factories
from tests.portal.conftest import House, signed_in

API = "/api/v1/tenants/acme/policies/"
RULES = {"registries": ["ghcr.io/acme"], "node_labels": ["zone=a"], "service_types": None}


@pytest.fixture
def tier() -> Tier:
    return factories.tier()


def put(client: Client, policies: Any, path: str = API) -> Any:
    return client.put(path, {"policies": policies}, content_type="application/json")


def post(client: Client, policies: Any, path: str) -> Any:
    return client.post(path, {"policies": policies}, content_type="application/json")


@pytest.fixture
def deployed(acme: House) -> None:
    """What is there already: of an image from anywhere."""
    spec = {"template": {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    synchronous.commit([Create(Key("root:acme", "apps", "deployments", "shop", "web"), body)])


def test_operators_change_the_rules_and_members_read_what_they_come_to(
    acme: House, globex: House, operator: User
) -> None:
    answer = put(signed_in(operator), RULES)
    assert answer.status_code == 200, answer.content
    seen = signed_in(acme.viewer).get(API).json()
    assert seen["policies"] == RULES
    (effective,) = [each["policies"] for each in seen["effective"] if each["tier"] == ""]
    assert (effective["node_labels"], effective["tolerations"], effective["hosts"]) == (["zone=a"], [], None)
    for person in (acme.owner, acme.admin, acme.viewer):
        assert put(signed_in(person), {}).status_code == 403
        assert post(signed_in(person), {}, f"{API}what-if").status_code == 403
    assert put(signed_in(globex.owner), {}).status_code == 404
    assert signed_in(globex.owner).get(API).status_code == 404
    assert Tenant.objects.get(name="acme").policies == RULES
    entry = AuditEntry.objects.get(chain="acme", action="tenant.policies")
    assert entry.detail == {"before": {}, "after": RULES}
    for wrong in ({"registries": ["nginx"]}, {"images": []}, {"priority_classes": None}, {"hosts": "a"}):
        assert put(signed_in(operator), wrong).status_code == 400, wrong
    assert Tenant.objects.get(name="acme").policies == RULES


def test_a_tiers_rules_are_part_of_it(acme: House, operator: User, tier: Tier) -> None:
    path = f"/api/v1/tiers/{tier.name}/"
    changed = signed_in(operator).patch(path, {"policies": RULES}, content_type="application/json")
    assert (changed.status_code, changed.json()["policies"]) == (200, RULES)
    bad = signed_in(operator).patch(path, {"policies": {"tolerations": ["a:b"]}}, content_type="application/json")
    assert bad.status_code == 400 and "tolerations" in bad.content.decode()
    assert signed_in(acme.viewer).get(path).json()["policies"] == RULES


@pytest.mark.usefixtures("deployed")
def test_what_would_break_the_rules_is_shown_before_they_are_saved(operator: User) -> None:
    client = signed_in(operator)
    (found,) = post(client, RULES, f"{API}what-if").json()["offenders"]
    assert (found["kind"], found["namespace"], found["name"], found["rule"]) == (
        "Deployment",
        "shop",
        "web",
        "registries",
    )
    kept = post(client, {"registries": ["docker.io"]}, f"{API}what-if").json()
    # A cluster that nobody answers for has not been looked at.
    assert (kept["offenders"], kept["is_cut"], len(kept["unseen"])) == ([], False, 1)
    page = reverse("tenant-policies-change", args=["acme"])
    tried = client.post(page, {"registries": "ghcr.io/acme", "try": "1"}).content.decode()
    assert "Deployment shop/web" in tried and "which is not allowed" in tried
    assert Tenant.objects.get(name="acme").policies == {}


def test_the_pages_take_lines_and_no_json(acme: House, operator: User, tier: Tier) -> None:
    client = signed_in(operator)
    page = reverse("tenant-policies-change", args=["acme"])
    lines = {"registries": "ghcr.io/acme\r\n docker.io/library \r\n", "tolerations": "*", "service_types": "-"}
    assert client.post(page, lines).status_code == 302
    kept = {"registries": ["ghcr.io/acme", "docker.io/library"], "tolerations": None, "service_types": []}
    assert Tenant.objects.get(name="acme").policies == kept
    shown = client.get(page).content.decode()
    assert "ghcr.io/acme\ndocker.io/library" in shown
    refused = client.post(page, {"registries": "nginx"})
    assert refused.status_code == 422 and "must be a registry" in refused.content.decode()
    page = reverse("tier-policies-change", args=[tier.name])
    assert client.post(page, {"priority_classes": "batch"}).status_code == 302
    assert Tier.objects.get(name=tier.name).policies == {"priority_classes": ["batch"]}
    assert page in client.get(reverse("tier", args=[tier.name])).content.decode()
    for person in (acme.owner, acme.viewer):
        assert signed_in(person).get(page).status_code == 403
        assert signed_in(person).get(reverse("tenant-policies-change", args=["acme"])).status_code == 403
        seen = signed_in(person).get(reverse("tenant-objects", args=["acme"])).content.decode()
        assert "docker.io/library" in seen and "Change rules" not in seen
