"""The quota of a tenant for people: read by its members, changed by operators, in the API and on the page (AD1)."""

from __future__ import annotations

import re
from typing import Any

import orjson
from django.test import Client
from django.urls import reverse

from audit.models import AuditEntry
from store import synchronous
from store.types import Create, Key, Update
from tenants.clusters.objects import TIER_ANNOTATION, WORKSPACE_LABEL
from tenants.models import Cluster, User
from tenants.policies import TIER_LIMITS
from tenants.quotas import missing_tenant_quotas_create, tenant_quota, tenant_quota_key
from tests import factories
from tests.portal.conftest import House, signed_in

API = "/api/v1/tenants/acme/quota/"


def put(client: Client, hard: dict[str, str]) -> Any:
    return client.put(API, {"hard": hard}, content_type="application/json")


def test_operators_change_it_and_members_read_it(acme: House, globex: House, operator: User) -> None:
    answer = put(signed_in(operator), {"pods": "5", "requests.storage": "10Gi"})
    assert answer.status_code == 200, answer.content
    assert signed_in(acme.viewer).get(API).json()["hard"] == {"pods": "5", "requests.storage": "10Gi"}
    for person in (acme.owner, acme.admin, acme.editor, acme.viewer):
        assert put(signed_in(person), {"pods": "500"}).status_code == 403
    for person in (globex.owner, globex.admin):
        assert put(signed_in(person), {"pods": "500"}).status_code == 404
        assert signed_in(person).get(reverse("tenant-quota", args=["acme"])).status_code == 404
    assert tenant_quota("acme").hard == {"pods": "5", "requests.storage": "10Gi"}
    entry = AuditEntry.objects.get(chain="acme", action="tenant.quota")
    assert entry.detail == {"hard": {"pods": "5", "requests.storage": "10Gi"}}
    refused = put(signed_in(operator), {"pods": "many", "no name": "1"})
    assert refused.status_code == 400 and "pods" in refused.content.decode()


def test_its_scopes_are_shown_and_stay(acme: House, operator: User) -> None:
    """AD3: what they do not know is refused."""
    assert put(signed_in(operator), {"pods": "5"}).status_code == 200
    stored = synchronous.get(tenant_quota_key("acme"))
    assert stored is not None
    body = orjson.loads(stored.data)
    body["spec"] |= {
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]},
    }
    synchronous.commit([Update(stored.key, stored.revision, body)])
    refused = put(signed_in(operator), {"services": "5"})
    assert refused.status_code == 400 and "unsupported scope" in refused.content.decode()
    assert put(signed_in(operator), {"pods": "7"}).json()["scopes"] == ["NotTerminating", "PriorityClass In high"]
    page = signed_in(acme.viewer).get(reverse("tenant-quota", args=["acme"])).content.decode()
    assert "<code>NotTerminating</code>" in page and "<code>PriorityClass In high</code>" in page


def test_a_tenant_is_made_with_its_own_or_with_the_default(operator: User, settings: Any) -> None:
    settings.TENANT_QUOTA = {"pods": "77"}
    client = signed_in(operator)
    for body in ({"name": "plain"}, {"name": "small", "quota": {"pods": "3"}}):
        assert client.post("/api/v1/tenants/", body, content_type="application/json").status_code == 201
    assert (tenant_quota("plain").hard, tenant_quota("small").hard) == ({"pods": "77"}, {"pods": "3"})
    wrong = client.post("/api/v1/tenants/", {"name": "bad", "quota": {"pods": "-3"}}, content_type="application/json")
    assert wrong.status_code == 400


def test_tenants_that_are_older_than_quotas_get_the_default_once(acme: House, globex: House, operator: User) -> None:
    put(signed_in(operator), {"pods": "5"})
    missing_tenant_quotas_create({"pods": "9"})
    missing_tenant_quotas_create({"pods": "11"})
    assert (tenant_quota("acme").hard, tenant_quota("globex").hard) == ({"pods": "5"}, {"pods": "9"})


def test_the_page_shows_who_uses_what_and_what_was_refused(acme: House, operator: User) -> None:
    put(signed_in(operator), {"pods": "5"})
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "shop"},
        "spec": {"hard": {"pods": "4"}},
        "status": {"hard": {"pods": "4"}, "used": {"pods": "3"}},
    }
    synchronous.commit([Create(Key("root:acme", "", "resourcequotas", "shop", "small"), body)])
    reason = 'pods "p" is forbidden: exceeded quota: tenant acme'
    factories.api_request("acme", step="admission/TenantQuota", reason=reason)
    factories.api_request("acme", step="rbac", reason="no rule")
    page = reverse("tenant-quota", args=["acme"])
    seen = signed_in(acme.admin).get(page).content.decode()
    assert "shop" in seen and "exceeded quota: tenant acme" in seen and "no rule" not in seen
    assert "Change quota" not in seen
    assert "exceeded quota" not in signed_in(acme.viewer).get(page).content.decode()
    assert "Change quota" in signed_in(operator).get(page).content.decode()
    change = reverse("tenant-quota-change", args=["acme"])
    assert signed_in(acme.owner).get(change).status_code == 403
    assert "pods: 5" in signed_in(operator).get(change).content.decode()
    assert signed_in(operator).post(change, {"hard": "pods: 8"}).status_code == 302
    stored = synchronous.get(Key("root:acme", "tenancy.tenantry.io", "tenantquotas", "", "quota"))
    assert stored is not None and orjson.loads(stored.data)["spec"] == {"hard": {"pods": "8"}}


def test_who_uses_what_on_clusters_is_shown_with_the_sums(acme: House, globex: House, operator: User) -> None:
    """By cluster and by namespace, as it was counted there; a namespace that nobody has looked at uses nothing yet."""
    put(signed_in(operator), {"pods": "50", "requests.cpu": "20", "count/configmaps": "9"})
    first = acme.workspace
    second = factories.workspace(acme.tenant, acme.editor, cluster=first.cluster)
    third = factories.workspace(acme.tenant, acme.editor, cluster=factories.cluster("nyc-1"))
    stored = factories.workspace(acme.tenant, acme.editor, cluster=factories.cluster("own", kind=Cluster.Kind.EMBEDDED))
    for tenant, workspace, counted in (
        ("acme", first, {"pods": "3", "requests.cpu": "1500m"}),
        ("acme", second, {"pods": "4", "requests.cpu": "700m", "count/configmaps": "2"}),
        ("globex", globex.workspace, {"pods": "41"}),
    ):
        body = {"metadata": {"name": workspace.k8s_namespace}, "counted": counted, "turn": 1, "objects": 7}
        key = Key(f"root:{tenant}", "tenancy.tenantry.io", "placedusages", "", workspace.k8s_namespace)
        synchronous.commit([Create(key, body)])
    shown = signed_in(acme.viewer).get(API).json()["clusters"]
    assert [(each["cluster"], each["used"]) for each in shown] == [
        ("fra-1", {"pods": "7", "requests.cpu": "2200m", "count/configmaps": "2"}),
        ("nyc-1", {}),
    ]
    by_namespace = {row["namespace"]: (row["workspace"], row["used"]) for each in shown for row in each["namespaces"]}
    assert by_namespace == {
        first.k8s_namespace: (first.name, {"pods": "3", "requests.cpu": "1500m"}),
        second.k8s_namespace: (second.name, {"pods": "4", "requests.cpu": "700m", "count/configmaps": "2"}),
        third.k8s_namespace: (third.name, {}),
    }
    page = signed_in(acme.viewer).get(reverse("tenant-quota", args=["acme"])).content.decode()
    cards = {card.partition("</h2>")[0]: card for card in page.split('<h2 id="on-')[1:]}
    assert sorted(name.partition('"')[0] for name in cards) == ["fra-1", "nyc-1"]
    (fra,) = [card for name, card in cards.items() if name.startswith("fra-1")]
    for row in (first, second):
        assert row.k8s_namespace in fra and row.name in fra
    assert "All together" in fra and third.k8s_namespace not in fra and stored.k8s_namespace not in page
    assert "41" not in {word.strip() for word in re.split(r"<[^>]*>", page)}, "another tenant's"
    (nyc,) = [card for name, card in cards.items() if name.startswith("nyc-1")]
    assert "Nothing is used of 3 limits" in nyc.partition("</table>")[0]
    assert 'class="empty' not in nyc.partition("</table>")[0], "a line is enough for each that is not used"


def test_lowering_below_the_use_says_so_and_the_console_shows_it(acme: House, operator: User) -> None:
    """AD1."""
    client = signed_in(operator)
    put(client, {"pods": "5", "requests.cpu": "4"})
    key = tenant_quota_key("acme")
    stored = synchronous.get(key)
    assert stored is not None
    body = orjson.loads(stored.data)
    used = {"hard": body["spec"]["hard"], "used": {"pods": "4", "requests.cpu": "500m"}}
    synchronous.commit([Update(key, stored.revision, {**body, "status": used})])
    assert client.get(API).json()["beyond"] == {}
    page = reverse("tenant-quota", args=["acme"])
    assert "nothing more is admitted" not in client.get(page).content.decode()
    assert put(client, {"pods": "3", "requests.cpu": "4"}).json()["beyond"] == {"pods": "4"}
    assert client.get(page).content.decode().count("more than allowed: nothing is taken away") == 1
    console = client.get("/admin/tenants/tenant/acme/change/").content.decode()
    assert "pods: 4 of 3 used" in console and "pods: more than allowed" in console
    assert reverse("tenant-quota-change", args=["acme"]) in console
    assert client.get("/admin/tenants/tenant/add/").status_code == 200


def test_the_bound_on_stored_bytes_is_a_tiers_and_shown_with_the_quota(
    acme: House, operator: User, settings: Any
) -> None:
    """AD8: by form, REST and console; whoever says something else is told what it must be."""
    settings.TENANT_STORED_MEBIBYTES = 2
    client, page = signed_in(operator), reverse("tenant-quota", args=["acme"])
    assert put(client, {"pods": "5"}).status_code == 200
    taken = synchronous.bytes_of("acme")
    assert taken > 100
    assert client.get(API).json()["stored_bytes"] == {"used": taken, "hard": 2 << 20}
    # A namespace that is a workspace has the bound of its tier.
    metadata = {"name": "web", "labels": {WORKSPACE_LABEL: "w"}, "annotations": {TIER_ANNOTATION: "basic"}}
    synchronous.commit([Create(Key("root:acme", "", "namespaces", "", "web"), {"metadata": metadata})])
    answer = client.patch("/api/v1/tiers/basic/", {"stored_mebibytes": 3}, content_type="application/json")
    assert answer.status_code == 200 and answer.json()["stored_mebibytes"] == 3, answer.content
    told = synchronous.get(Key("root", *TIER_LIMITS, "", "basic"))
    assert told is not None and orjson.loads(told.data)["rules"]["stored_mebibytes"] == 3
    assert signed_in(acme.viewer).get(API).json()["stored_bytes"]["hard"] == 3 << 20
    shown = signed_in(acme.viewer).get(page).content.decode()
    assert "All objects, in bytes" in shown and "3 MiB" in shown
    console = client.get("/admin/tenants/tenant/acme/change/").content.decode()
    assert f"of {3 << 20} used" in console
    # The form, with a bound and without.
    form = {"display_name": "B", "quota": "pods: 5", "limit_range": "[]", "workspaces_per_user": 1, "position": 0}
    assert client.post("/tiers/basic/", {**form, "stored_mebibytes": "4"}).status_code == 302
    assert 'value="4"' in client.get("/tiers/basic/").content.decode()
    assert client.post("/tiers/basic/", {**form, "stored_mebibytes": "-1"}).status_code == 422
    assert client.get(API).json()["stored_bytes"]["hard"] == 4 << 20
    assert client.post("/tiers/basic/", {**form, "stored_mebibytes": "0"}).status_code == 302
    assert client.get(API).json()["stored_bytes"]["hard"] == 0
    assert "All objects, in bytes" not in client.get(page).content.decode()
    assert client.post("/tiers/basic/", {**form, "stored_mebibytes": ""}).status_code == 302
    assert client.get(API).json()["stored_bytes"]["hard"] == 2 << 20
    for wrong in (-1, 1 << 25, "many", 1.5):
        refused = client.patch("/api/v1/tiers/basic/", {"stored_mebibytes": wrong}, content_type="application/json")
        assert refused.status_code == 400 and "stored_mebibytes" in refused.content.decode()
    # The person's own connection to the database sees no other tenant's sums.
    assert signed_in(acme.viewer).get("/api/v1/tenants/globex/quota/").status_code == 404
