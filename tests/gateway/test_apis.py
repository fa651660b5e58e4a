"""APIs that one logical cluster exports and others bind (KC5, KC6, KC11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server
from tests.gateway.organization import RBAC, bound, made, ready, role, rule

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
APIS = "/apis/apis.kcp.io/v1alpha1"
ORG = "/clusters/root:supply"
PROVIDER, CONSUMER, GLOBEX = f"{ORG}:provider", f"{ORG}:consumer", "/clusters/root:globex"
WIDGETS = "/apis/example.org/v1/namespaces/default/widgets"


def schema(kind: str, *, prefix: str = "v1", scope: str = "Namespaced", **fields: Any) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    properties = {"spec": {"type": "object", "properties": {"size": {"type": "integer"}, **fields}}}
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {"name": f"{prefix}.{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"plural": plural, "kind": kind},
            "scope": scope,
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"type": "object", "properties": properties}}
            ],
        },
    }


def export(name: str, *schemas: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": name},
        "spec": {"latestResourceSchemas": list(schemas), **spec},
    }


def binding(name: str, target: str, **spec: Any) -> dict[str, Any]:
    path, _, short = target.rpartition(":")
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": path, "name": short}}, **spec},
    }


def widget(name: str, size: Any = 1, kind: str = "Widget") -> dict[str, Any]:
    return {"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name}, "spec": {"size": size}}


def status_of(caller: Caller, prefix: str, name: str) -> dict[str, Any]:
    return dict(caller.get(f"{prefix}{APIS}/apibindings/{name}").body.get("status") or {})


def binds(caller: Caller, prefix: str, name: str, target: str, **spec: Any) -> None:
    made(caller.post(f"{prefix}{APIS}/apibindings", binding(name, target, **spec)))
    assert eventually(lambda: status_of(caller, prefix, name).get("phase") == "Bound"), status_of(caller, prefix, name)


@pytest.fixture(scope="module")
def people(server: Server, gina: Caller) -> dict[str, Caller]:
    made(server.admin.post("/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": "supply"}}))
    olga = server.user("supply", "olga", "tenantry:owner")
    for name in ("provider", "consumer"):
        ready(olga, ORG, name)
    for one in (schema("Widget"), schema("Gadget", scope="Cluster"), schema("Secretive")):
        made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", one))
    local = {"maximalPermissionPolicy": {"local": {}}}
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("widgets", "v1.widgets.example.org", **local)))
    claim = {"permissionClaims": [{"group": "", "resource": "configmaps", "all": True, "verbs": ["list"]}]}
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("gadgets", "v1.gadgets.example.org", **claim)))
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("closed", "v1.secretives.example.org")))

    role(olga, PROVIDER, "read", rule("get list watch", "example.org", "widgets"))
    role(olga, PROVIDER, "write", rule("get list watch create update patch", "example.org", "widgets"))
    bound(olga, PROVIDER, "write", "User", "apis.kcp.io:binding:alice")
    bound(olga, PROVIDER, "read", "User", "apis.kcp.io:binding:ann")
    bound(olga, PROVIDER, "read", "Group", "apis.kcp.io:binding:readers")
    bound(olga, PROVIDER, "read", "Group", "apis.kcp.io:binding:system:cluster:root:globex")
    bound(olga, PROVIDER, "cluster-admin", "User", "bob")
    role(olga, PROVIDER, "may-bind", rule("bind", "apis.kcp.io", "apiexports", "widgets", "gadgets"))
    role(olga, PROVIDER, "lend", rule("bind", "apis.kcp.io", "apiexports", "widgets"))
    bound(olga, PROVIDER, "lend", "Group", "system:cluster:root:globex")
    for name in ("alice", "bob", "gus"):
        bound(olga, CONSUMER, "cluster-admin", "User", name)
    bound(olga, CONSUMER, "system:kcp:workspace:access", "User", "ann")
    binds(olga, CONSUMER, "widgets", "root:supply:provider:widgets")
    binds(olga, CONSUMER, "gadgets", "root:supply:provider:gadgets")
    binds(gina, GLOBEX, "widgets", "root:supply:provider:widgets")
    # bob may do anything in the provider, until here: then binding is asked about as for everybody.
    assert olga.delete(f"{PROVIDER}{RBAC}/clusterrolebindings/bob-cluster-admin").status == 200
    return {
        "olga": olga,
        **{name: server.user("supply", name) for name in ("alice", "bob", "ann")},
        "gus": server.user("supply", "gus", "readers"),
        "owner of globex": gina,
        "masters": server.admin,
    }


@pytest.fixture(scope="module")
def olga(people: dict[str, Caller]) -> Caller:
    return people["olga"]


def body_of(case: dict[str, Any]) -> dict[str, Any] | None:
    if "named" not in case:
        return None
    if "export" in case:
        return binding(case["named"], case["export"].replace("umbrella", "supply"))
    return widget(case["named"], kind="Gadget" if "gadgets" in case["do"] else "Widget")


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case['is']} {case['who']} {case['do']}"[:110])
def test_decision_table(people: dict[str, Caller], case: dict[str, Any]) -> None:
    """KC5, KC11."""
    method, path = case["do"].replace("umbrella", "supply").split()
    answer = people[case["who"]].call(method, path, body_of(case))
    assert answer.status == case["gives"], answer.body


def test_bound_resource_is_served_as_the_schema_says(people: dict[str, Caller]) -> None:
    """KC11."""
    alice = people["alice"]
    kinds = [entry["kind"] for entry in alice.get(f"{CONSUMER}/apis/example.org/v1").body["resources"]]
    assert kinds == ["Gadget", "Widget"]
    assert alice.post(f"{CONSUMER}{WIDGETS}", widget("bad", "big")).status == 422
    assert alice.post(f"{CONSUMER}{WIDGETS}", widget("good", 3)).body["spec"] == {"size": 3}
    assert "example.org" not in str(people["olga"].get(f"{ORG}/apis").body)
    status = status_of(people["olga"], CONSUMER, "widgets")
    assert status["apiExportClusterName"] == "root:supply:provider"
    assert [(each["group"], each["resource"]) for each in status["boundResources"]] == [("example.org", "widgets")]


def test_schemas_never_change_and_exports_move_on_to_new_ones(olga: Caller) -> None:
    """KC11."""
    ready(olga, ORG, "mover")
    made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", schema("Mover", scope="Cluster")))
    made(
        olga.post(
            f"{PROVIDER}{APIS}/apiresourceschemas",
            schema("Mover", prefix="v2", scope="Cluster", colour={"type": "string"}),
        )
    )
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("movers", "v1.movers.example.org")))
    one = f"{PROVIDER}{APIS}/apiresourceschemas/v1.movers.example.org"
    assert olga.patch(one, {"spec": {"scope": "Namespaced"}}).status == 422
    assert (
        olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", {**schema("Mover"), "metadata": {"name": "movers"}}).status
        == 422
    )
    mover = f"{ORG}:mover"
    binds(olga, mover, "movers", "root:supply:provider:movers")

    def colour(name: str) -> Answer:
        body = widget(name, kind="Mover")
        return olga.post(f"{mover}/apis/example.org/v1/movers", {**body, "spec": {"colour": "red"}})

    assert "colour" not in made(colour("before")).get("spec", {})
    moved = {"spec": {"latestResourceSchemas": ["v2.movers.example.org"]}}
    assert olga.patch(f"{PROVIDER}{APIS}/apiexports/movers", moved).status == 200
    assert eventually(
        lambda: status_of(olga, mover, "movers")["boundResources"][0]["schema"]["name"] == "v2.movers.example.org"
    )
    assert made(colour("after"))["spec"] == {"colour": "red"}


def test_unbinding_takes_the_objects_and_the_api_away(olga: Caller) -> None:
    """KC11."""
    ready(olga, ORG, "leaver")
    leaver = f"{ORG}:leaver"
    binds(olga, leaver, "gadgets", "root:supply:provider:gadgets")
    made(olga.post(f"{leaver}/apis/example.org/v1/gadgets", widget("g", kind="Gadget")))
    assert olga.delete(f"{leaver}{APIS}/apibindings/gadgets").status == 200
    assert eventually(lambda: olga.get(f"{leaver}{APIS}/apibindings/gadgets").status == 404)
    assert olga.get(f"{leaver}/apis/example.org/v1/gadgets").status == 404
    binds(olga, leaver, "gadgets", "root:supply:provider:gadgets")
    assert olga.get(f"{leaver}/apis/example.org/v1/gadgets").body["items"] == []


def test_own_definition_stays_and_the_binding_says_so(olga: Caller) -> None:
    """KC11."""
    ready(olga, ORG, "owner")
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "scope": "Cluster",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    path = f"{ORG}:owner"
    made(olga.post(f"{path}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd))
    forged = {**crd, "metadata": {"name": "gadgets.example.org", "annotations": {"apis.kcp.io/binding": "x"}}}
    assert olga.post(f"{CONSUMER}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", forged).status == 422
    made(olga.post(f"{path}{APIS}/apibindings", binding("gadgets", "root:supply:provider:gadgets")))
    assert eventually(lambda: "conditions" in status_of(olga, path, "gadgets"))
    status = status_of(olga, path, "gadgets")
    assert status["phase"] == "Binding"
    assert status["conditions"][0]["reason"] == "NamingConflicts"


def test_without_the_export_nothing_more_is_allowed(olga: Caller) -> None:
    """KC5: kcp fails open here."""
    made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", schema("Fleeting", scope="Cluster")))
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("fleeting", "v1.fleetings.example.org")))
    ready(olga, ORG, "left")
    path = f"{ORG}:left/apis/example.org/v1/fleetings"
    binds(olga, f"{ORG}:left", "fleeting", "root:supply:provider:fleeting")
    assert olga.get(path).status == 200
    assert olga.delete(f"{PROVIDER}{APIS}/apiexports/fleeting").status == 200
    assert olga.get(path).status == 403
    assert olga.delete(f"{ORG}:left{APIS}/apibindings/fleeting").status == 200


def test_nobody_signs_in_with_a_prefixed_name(server: Server, people: dict[str, Caller]) -> None:
    """KC5."""
    assert server.user("supply", "apis.kcp.io:binding:alice").get("/api").status == 401
    assert server.user("supply", "x", "apis.kcp.io:binding:readers").get("/api").status == 401
    assert people["olga"].get("/api", {"Impersonate-User": "apis.kcp.io:binding:alice"}).status in (400, 403)


VIEW = "/services/apiexport/root:supply:provider"


def test_provider_sees_the_objects_of_all_its_consumers(people: dict[str, Caller], server: Server) -> None:
    """KC6: the owner goes beyond the policy; nobody else gets in by this door."""
    olga = people["olga"]
    role(olga, PROVIDER, "viewing", rule("get list watch", "apis.kcp.io", "apiexports/content", "widgets", "gadgets"))
    bound(olga, PROVIDER, "viewing", "User", "vivian")
    bound(olga, PROVIDER, "system:kcp:workspace:access", "User", "vivian")
    vivian = server.user("supply", "vivian")
    everywhere = f"{VIEW}/widgets/clusters/*/apis/example.org/v1/widgets"
    made(server.admin.post(f"{GLOBEX}{WIDGETS}", widget("theirs")))
    made(people["alice"].post(f"{CONSUMER}{WIDGETS}", widget("ours")))
    seen = vivian.get(everywhere)
    assert seen.status == 200, seen.body
    found = {(item["metadata"]["tenant"], item["metadata"]["name"]) for item in seen.body["items"]}
    assert found >= {("globex", "theirs"), ("supply", "ours")}
    with vivian.watch(everywhere, resourceVersion=seen.body["metadata"]["resourceVersion"]) as watch:
        made(server.admin.post(f"{GLOBEX}{WIDGETS}", widget("later")))
        assert watch.take(1)[0]["object"]["metadata"]["name"] == "later"
        assert olga.delete(f"{PROVIDER}{RBAC}/clusterrolebindings/vivian-viewing").status == 200
        watch.until_end()
    bound(olga, PROVIDER, "viewing", "User", "vivian")
    one = f"{VIEW}/widgets/clusters/root:supply:consumer/apis/example.org/v1/namespaces/default/widgets/ours"
    assert vivian.get(one).body["metadata"]["name"] == "ours"
    assert vivian.get(f"{VIEW}/widgets/clusters/*/apis/example.org/v1").body["resources"][0]["kind"] == "Widget"
    for method, path, status in (
        ("DELETE", one, 403),
        ("GET", f"{VIEW}/widgets/clusters/*/apis/example.org/v1/gadgets", 404),
        ("GET", f"{VIEW}/widgets/clusters/*/api/v1/secrets", 404),
        ("GET", f"{VIEW}/widgets/clusters/root:supply:consumer/api/v1/namespaces/default/secrets", 404),
        ("GET", f"{VIEW}/widgets/clusters/root:supply/apis/example.org/v1/widgets", 404),
        ("GET", f"{VIEW}/closed/clusters/*/apis/example.org/v1/secretives", 403),
        ("GET", f"{VIEW}/widgets/clusters/*/apis/example.org/v1/namespaces/default/widgets", 404),
    ):
        assert vivian.call(method, path).status == status, path
    assert people["alice"].get(everywhere).status == 403
    assert people["owner of globex"].get(everywhere).status == 403
    assert olga.delete(one).status == 405


def test_claimed_objects_are_seen_where_the_claim_is_accepted_and_within_their_own_policy(olga: Caller) -> None:
    """KC6."""
    widgets = {"group": "example.org", "resource": "widgets", "all": True, "verbs": ["list"]}
    maps = {"group": "", "resource": "configmaps", "all": True, "verbs": ["list"]}
    made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", schema("Claimer", scope="Cluster")))
    made(
        olga.post(
            f"{PROVIDER}{APIS}/apiexports",
            export("claimers", "v1.claimers.example.org", permissionClaims=[widgets, maps]),
        )
    )
    for name, state in (("yes", "Accepted"), ("no", "Rejected")):
        ready(olga, ORG, name)
        accepted = [{**claim, "state": state} for claim in (widgets, maps)]
        binds(olga, f"{ORG}:{name}", "claimers", "root:supply:provider:claimers", permissionClaims=accepted)
        binds(olga, f"{ORG}:{name}", "widgets", "root:supply:provider:widgets")
        made(olga.post(f"{ORG}:{name}/api/v1/namespaces/default/configmaps", config_map("seen")))
    view = f"{VIEW}/claimers/clusters/root:supply"
    answer = olga.get(f"{view}:yes/api/v1/namespaces/default/configmaps")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["seen"]
    assert olga.get(f"{view}:yes/api/v1/namespaces/default/configmaps/seen").status == 404
    assert olga.get(f"{view}:yes/api/v1/secrets").status == 404
    assert olga.get(f"{view}:no/api/v1/namespaces/default/configmaps").status == 404
    # widgets belong to another export, whose policy names olga nowhere.
    refused = olga.get(f"{view}:yes/apis/example.org/v1/namespaces/default/widgets")
    assert refused.status == 403
    assert "maximal permission policy" in refused.body["message"]
    bound(olga, PROVIDER, "read", "User", "apis.kcp.io:binding:olga")
    assert olga.get(f"{view}:yes/apis/example.org/v1/namespaces/default/widgets").status == 200
    assert olga.get(f"{view}:no/apis/example.org/v1/namespaces/default/widgets").status == 404
