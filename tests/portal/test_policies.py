"""What the objects of a tenant may be, for people: read by its members, tried and changed by operators (AD5)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from kube.kinds.builtins import BUILTINS
from kube.openapi.discovery import api_group, api_resource_list
from kube.policies.violations import KINDS
from store import synchronous
from store.types import Create, Key
from tenants.clusters.objects import ACCOUNTS
from tenants.models import Cluster, Status, Tenant, Tier, User
from tenants.services import cluster_register
from tests import factories
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.portal.conftest import House, signed_in
from tests.tenants.conftest import OPERATOR

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


def test_where_the_rules_hold_is_told_as_it_is(acme: House) -> None:
    """Not what a cluster might be configured to do: whether it has asked, and when (GW17)."""
    Cluster.objects.update(admission_asked_at=None)
    now = timezone.now()
    for name, kind, asked in (
        ("asks", Cluster.Kind.EXTERNAL, now - timedelta(minutes=3)),
        ("asked-once", Cluster.Kind.EXTERNAL, now - timedelta(days=9)),
        ("here", Cluster.Kind.EMBEDDED, None),
    ):
        factories.workspace(
            acme.tenant, acme.editor, cluster=factories.cluster(name, kind=kind, admission_asked_at=asked)
        )
    factories.cluster("elsewhere", admission_asked_at=now)
    told = {each["cluster"]: each for each in signed_in(acme.viewer).get(API).json()["clusters"]}
    assert {name: each["enforced"] for name, each in told.items()} == {
        "fra-1": "door",
        "asks": "webhook",
        "asked-once": "door",
    }, "what is stored here is judged with every write"
    assert {name for name, each in told.items() if each["last_asked"]} == {"asks", "asked-once"}
    page = signed_in(acme.viewer).get(reverse("tenant-objects", args=["acme"])).content.decode()
    rows = {row.partition("</dt>")[0]: row for row in page.split("<dt>")}
    assert "whoever writes there: it asked" in rows["asks"] and "door only" not in rows["asks"]
    assert "door only" in rows["fra-1"] and "has never asked" in rows["fra-1"]
    assert "door only" in rows["asked-once"] and "not since" in rows["asked-once"]
    assert "Always" in rows["Namespaces that are no workspace"] and "here" not in rows


# What is tried looks at whatever is there, and says what it has not looked at.


def tried(operator: User, policies: dict[str, Any], path: str = f"{API}what-if") -> dict[str, Any]:
    answer = post(signed_in(operator), policies, path)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def kept(kind: str, name: str, namespace: str = "shop", *, at: str = "root:acme", group: str = "", **more: Any) -> None:
    """An object as the API server keeps it: of a custom kind under the identity of its definition."""
    plural = f"{kind.lower()}s"
    kept_as = f"{plural}:8a7b" if group else plural
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    body = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **more}
    synchronous.commit([Create(Key(at, group, kept_as, namespace, name), body)])


REFUSED = {"refused_kinds": ["Widget.example.com", "ConfigMap", "Whole.example.com"], "hosts": ["*.acme.test"]}


def test_custom_kinds_are_tried_as_well(acme: House, globex: House, operator: User) -> None:
    """Those that a rule refuses, and those of the Gateway API, in the tenant's space and the workspaces below it."""
    kept("Widget", "w", group="example.com")
    kept("Widget", "below", "default", at="root:acme:team", group="example.com")
    kept("Whole", "one", "", group="example.com")
    kept("Other", "o", group="example.com")
    kept("ConfigMap", "c")
    kept("Secret", "s")
    kept("Widget", "theirs", at="root:globex", group="example.com")
    for name, host in (("in", "a.acme.test"), ("out", "elsewhere.test")):
        kept("HTTPRoute", name, group="gateway.networking.k8s.io", spec={"hostnames": [host]})
    found = tried(operator, REFUSED)["offenders"]
    assert {(each["space"], each["kind"], each["name"], each["rule"]) for each in found} == {
        ("root:acme", "Widget", "w", "refused_kinds"),
        ("root:acme:team", "Widget", "below", "refused_kinds"),
        ("root:acme", "Whole", "one", "refused_kinds"),
        ("root:acme", "ConfigMap", "c", "refused_kinds"),
        ("root:acme", "HTTPRoute", "out", "hosts"),
    }


class ShownCluster:
    """What a registered cluster answers a workspace's admin: lists by path, and which groups it serves.

    By itself it serves what all clusters do, and has nothing of it. As on clusters nobody may list what it has not.
    """

    def __init__(self, server: HostileCluster) -> None:
        self.lists: dict[str, Any] = {}
        self.told: dict[str, Any] = {}
        for group, versions in BUILTINS.groups().items():
            root = f"/apis/{group}" if group else "/api"
            self.told[root] = api_group(BUILTINS, group)
            self.told |= {f"{root}/{each}": api_resource_list(BUILTINS, group, each) for each in versions}
        self.server = server
        server.reply = self._reply

    def _reply(self, method: str, target: str) -> tuple[int, Any]:
        path = urlsplit(target).path
        if method == "POST":
            return 201, self._token(path.split("/"))
        root, _, place = path.partition("/namespaces/")
        served = [each["name"] for each in self.told.get(root, {}).get("resources", ())]
        empty = listed() if place.partition("/")[2] in served else 403
        found = self.lists.get(path) or (empty if place else self.told.get(path, 404))
        if isinstance(found, int):
            return found, {"kind": "Status", "code": found, "message": f"as it answers {found}"}
        return 200, found

    def _token(self, path: list[str]) -> dict[str, Any]:
        namespace, account = path[4], path[6]
        ends = timezone.now() + timedelta(seconds=json.loads(self.server.sent)["spec"]["expirationSeconds"])
        claims = {
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "exp": int(ends.timestamp()),
            "jti": "j",
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": "u"}},
        }
        text = ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, {})
        )
        return {"kind": "TokenRequest", "status": {"token": text, "expirationTimestamp": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}}


@pytest.fixture
def shown(acme: House) -> Iterator[tuple[ShownCluster, str]]:
    """A cluster that answers, and the tenant's namespace there."""
    with hostile_cluster() as server:
        cluster = cluster_register(actor=OPERATOR, name="shows", kubeconfig=server.kubeconfig)
        accounts = dict.fromkeys(ACCOUNTS.values(), "u")
        workspace = factories.workspace(acme.tenant, acme.editor, cluster=cluster, service_accounts=accounts)
        acme.workspace.delete()
        yield ShownCluster(server), workspace.k8s_namespace


def listed(*names: str) -> dict[str, Any]:
    return {"kind": "List", "metadata": {}, "items": [{"metadata": {"name": name}} for name in names]}


def test_custom_kinds_of_a_cluster_are_tried_and_what_it_does_not_show_is_told(
    shown: tuple[ShownCluster, str], operator: User
) -> None:
    cluster, namespace = shown
    cluster.lists = {
        "/apis/example.com": {
            "kind": "APIGroup",
            "preferredVersion": {"version": "v2"},
            "versions": [{"version": "v2"}, {"version": "v1"}],
        },
        "/apis/example.com/v2": {
            "kind": "APIResourceList",
            "resources": [{"name": "others", "kind": "Other", "namespaced": True, "verbs": ["list"]}],
        },
        "/apis/example.com/v1": {
            "kind": "APIResourceList",
            "resources": [
                {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]},
                {"name": "looks", "kind": "Widget", "namespaced": True, "verbs": ["create"]},
                {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ["create", "list"]},
                {"name": "wholes", "kind": "Whole", "namespaced": False, "verbs": ["list"]},
            ],
        },
        f"/apis/example.com/v1/namespaces/{namespace}/widgets": listed("w"),
        f"/api/v1/namespaces/{namespace}/configmaps": 403,
    }
    found = tried(operator, REFUSED)
    assert [(each["namespace"], each["kind"], each["name"]) for each in found["offenders"]] == [
        (namespace, "Widget", "w")
    ]
    (closed,) = found["unseen"]
    assert closed.startswith(
        f"ConfigMap in {namespace}: the cluster shows does not let the workspace's admin list them;"
    )
    assert not found["is_cut"]
    (account,) = [path for method, path in cluster.server.calls if method == "POST"]
    assert ACCOUNTS["admin"] in account
    cluster.lists[f"/api/v1/namespaces/{namespace}/services"] = 503
    (told,) = [each for each in tried(operator, REFUSED)["unseen"] if "ConfigMap" not in each]
    assert told.startswith(f"{namespace}: the cluster shows does not show it: ")
    asked = {urlsplit(path).path for method, path in cluster.server.calls if method == "GET"}
    assert {path for path in asked if "/namespaces/" in path} >= {
        f"/{'apis/' + group if group else 'api'}/{version}/namespaces/{namespace}/{plural}"
        for (group, _), (version, plural) in KINDS.items()
        if group in {"", "apps"} and plural != "services"
    } - {f"/api/v1/namespaces/{namespace}/services"}


def test_a_kind_that_a_cluster_does_not_serve_is_not_unseen_there_and_one_that_it_serves_is_found_in_its_version(
    shown: tuple[ShownCluster, str], acme: House, operator: User
) -> None:
    """Its discovery is asked once for all of a cluster's namespaces, for it refuses lists of what it has not as any other."""
    cluster, first = shown
    registered, accounts = Cluster.objects.get(name="shows"), dict.fromkeys(ACCOUNTS.values(), "u")
    factories.workspace(acme.tenant, acme.editor, cluster=registered, service_accounts=accounts)
    found = tried(operator, {"hosts": ["*.acme.test"], "refused_kinds": ["Widget.example.com"]})
    assert (found["offenders"], found["unseen"]) == ([], [])
    asked = [path for method, path in cluster.server.calls if method == "GET" and "/namespaces/" not in path]
    assert len(asked) == len(set(asked)), asked
    assert {"/apis/gateway.networking.k8s.io", "/apis/example.com"} <= set(asked)

    group = "/apis/gateway.networking.k8s.io"
    kinds = {"v1": ["HTTPRoute", "Gateway"], "v1beta1": ["HTTPRoute"], "v1alpha3": [], "v1alpha2": ["TLSRoute"]}
    cluster.lists[group] = {"kind": "APIGroup", "versions": [{"version": version} for version in kinds]}
    for version, names in kinds.items():
        resources = [
            {"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": ["list"]} for kind in names
        ]
        cluster.lists[f"{group}/{version}"] = {"kind": "APIResourceList", "resources": resources}
    route = {"metadata": {"name": "out"}, "spec": {"hostnames": ["elsewhere.test"]}}
    cluster.lists[f"{group}/v1alpha2/namespaces/{first}/tlsroutes"] = {"kind": "List", "items": [route]}
    found = tried(operator, {"hosts": ["*.acme.test"]})
    assert [(each["namespace"], each["kind"], each["name"]) for each in found["offenders"]] == [
        (first, "TLSRoute", "out")
    ]
    told = [each.partition(":")[0] for each in found["unseen"] if first in each]
    assert told == [f"{kind}.gateway.networking.k8s.io in {first}" for kind in ("Gateway", "HTTPRoute")]


def test_a_cluster_that_does_not_answer_is_not_waited_for_at_each_of_its_workspaces(
    shown: tuple[ShownCluster, str], acme: House, operator: User
) -> None:
    """What is wrong with one workspace alone hides none of the others."""
    cluster, first = shown
    registered = Cluster.objects.get(name="shows")
    accounts = dict.fromkeys(ACCOUNTS.values(), "u")
    others = [
        factories.workspace(acme.tenant, acme.editor, cluster=registered, service_accounts=accounts).k8s_namespace
        for _ in range(3)
    ]
    spaces, answers, broken = sorted([first, *others]), cluster.server.reply, min([first, *others])
    cluster.lists = {f"/api/v1/namespaces/{namespace}/configmaps": listed("c") for namespace in spaces}

    def reply(method: str, path: str) -> Any:
        if method == "POST" and f"/{broken}/" in path:
            return 404, {"kind": "Status", "reason": "NotFound", "code": 404}
        return answers(method, path)

    cluster.server.reply = reply
    found = tried(operator, REFUSED)
    assert {each["namespace"] for each in found["offenders"]} == {*spaces} - {broken}
    assert [each.partition(": ")[0] for each in found["unseen"]] == [broken]
    cluster.server.reply = lambda _method, _path: lambda connection: connection.close()
    cluster.server.calls.clear()
    found = tried(operator, REFUSED)
    assert [each.partition(": ")[0] for each in found["unseen"]] == spaces
    assert all("has not answered" in each for each in found["unseen"][1:]), found["unseen"]
    assert len([method for method, _ in cluster.server.calls if method == "POST"]) == 1


def test_what_is_not_looked_at_is_told_with_the_reason(acme: House, globex: House, operator: User, tier: Tier) -> None:
    """A cluster that is away, one that nobody asks, and what comes after more than anybody reads."""
    away = acme.workspace.k8s_namespace
    asleep = factories.workspace(
        acme.tenant, acme.editor, status=Status.SUSPENDED, suspended_at=timezone.now()
    ).k8s_namespace
    told = dict(each.split(": ", 1) for each in tried(operator, {})["unseen"])
    assert set(told) == {away, asleep}
    assert "suspended" in told[asleep]
    assert all(told.values())
    for number in range(201):
        kept("ConfigMap", f"c-{number}")
    full = tried(operator, {"refused_kinds": ["ConfigMap"]})
    assert (len(full["offenders"]), full["is_cut"]) == (200, True)
    assert [each.partition(": ")[0] for each in full["unseen"]] == ["whatever else there is", *sorted((away, asleep))]
    page = signed_in(operator).post(
        reverse("tenant-policies-change", args=["acme"]), {"refused_kinds": "Secret", "try": "1"}
    )
    text = page.content.decode()
    assert "Nothing in what was looked at." in text
    assert away in text and asleep in text
    # Of a tier: which tenants were not come to.
    synchronous.commit([*_with_tier("acme", tier.name), *_with_tier("globex", tier.name)])
    path = f"/api/v1/tiers/{tier.name}/policies/what-if"
    unseen = tried(operator, {"refused_kinds": ["ConfigMap"]}, path)["unseen"]
    assert any(each.startswith("the tenant globex: 200 were found before") for each in unseen), unseen


def _with_tier(tenant: str, tier: str) -> Iterator[Create]:
    metadata = {"name": tenant, "annotations": {"tenantry.io/default-tier": tier}}
    yield Create(Key("root", "", "tenants", "", tenant), {"kind": "Tenant", "metadata": metadata})


def test_one_object_that_breaks_many_rules_does_not_end_the_look(acme: House, operator: User) -> None:
    """Of one object there is a bound as well; the others are looked at all the same."""
    containers = [{"name": f"c{number}", "image": "nginx"} for number in range(500)]
    for name in ("a", "b"):
        body = {"kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": containers}}
        synchronous.commit([Create(Key("root:acme", "", "pods", "shop", name), body)])
    found = tried(operator, {"registries": ["ghcr.io"]})
    assert found["is_cut"]
    assert {each["name"] for each in found["offenders"]} == {"a", "b"}
