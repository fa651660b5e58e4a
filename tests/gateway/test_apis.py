"""APIs that one logical cluster exports and others bind (KC5, KC6, KC11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.apiexports import APIS, WIDGETS, binding, binds, export, schema, status_of, widget
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server
from tests.gateway.organization import RBAC, bound, made, ready, role, rule

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
ORG = "/clusters/root:supply"
PROVIDER, CONSUMER, GLOBEX = f"{ORG}:provider", f"{ORG}:consumer", "/clusters/root:globex"


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
    """KC5, KC6, KC11."""
    method, path = case["do"].replace("umbrella", "supply").split()
    if "existing" in case:
        # Rows run in any order, in several processes.
        made = people[case["who"]].call("POST", path.rpartition("/")[0], widget(case["existing"]))
        assert made.status == 201, made.body
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


def test_rules_reviews_show_what_the_policy_leaves(people: dict[str, Caller], olga: Caller) -> None:
    """KC5, AZ10."""
    role(olga, CONSUMER, "widgeteer", rule("get list create delete", "example.org", "widgets gadgets"))
    bound(olga, CONSUMER, "widgeteer", "User", "ann")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    path = f"{CONSUMER}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

    def verbs(caller: Caller, resource: str) -> tuple[set[str], bool]:
        status = made(caller.post(path, review))["status"]
        rules = [one for one in status["resourceRules"] if resource in one["resources"]]
        return {verb for one in rules for verb in one["verbs"]}, status["incomplete"]

    assert verbs(people["ann"], "widgets") == ({"get", "list"}, False)
    assert verbs(people["ann"], "gadgets") == ({"get", "list", "create", "delete"}, False)
    assert verbs(people["bob"], "*") == ({"*"}, True), "all but some cannot be said by rules"


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
    assert olga.delete(everywhere).status == 405


def test_whoever_may_no_longer_look_through_an_export_sees_nothing_more_of_one_consumer(
    people: dict[str, Caller], server: Server
) -> None:
    """CT-07: what is watched is in the consumer, and the right to it is in the provider."""
    olga, quiet = people["olga"], f"{ORG}:quiet"
    ready(olga, ORG, "quiet")
    made(olga.post(f"{quiet}{APIS}/apiresourceschemas", schema("Gizmo", scope="Cluster")))
    made(olga.post(f"{quiet}{APIS}/apiexports", export("gizmos", "v1.gizmos.example.org")))
    binds(olga, CONSUMER, "gizmos", "root:supply:quiet:gizmos")
    role(olga, quiet, "viewing", rule("get list watch", "apis.kcp.io", "apiexports/content", "gizmos"))
    for given in ("viewing", "system:kcp:workspace:access"):
        bound(olga, quiet, given, "User", "quinn")
    one = "/services/apiexport/root:supply:quiet/gizmos/clusters/root:supply:consumer/apis/example.org/v1/gizmos"
    with server.user("supply", "quinn").watch(one) as watch:
        made(olga.post(f"{CONSUMER}/apis/example.org/v1/gizmos", widget("seen", kind="Gizmo")))
        assert watch.take(1)[0]["object"]["metadata"]["name"] == "seen"
        assert olga.delete(f"{quiet}{RBAC}/clusterrolebindings/quinn-viewing").status == 200
        assert watch.until_end()[-1]["object"]["code"] == 403


def test_a_provider_reaches_nothing_of_a_namespace_that_is_on_a_cluster(
    people: dict[str, Caller], server: Server
) -> None:
    """KC6, D1: what would be kept of it here nobody would see, and roles would be believed."""
    olga, namespaces = people["olga"], f"{GLOBEX}/api/v1/namespaces"
    made(server.admin.post(namespaces, {"metadata": {"name": "away"}}))
    view = f"{VIEW}/widgets/clusters/root:globex/apis/example.org/v1/namespaces/away/widgets"
    made(olga.post(view, widget("before")))
    labels = {"tenantry.io/cluster": "far", "tenantry.io/workspace": "4f0e"}
    assert server.admin.patch(f"{namespaces}/away", {"metadata": {"labels": labels}}).status == 200
    for method, path, body in (
        ("GET", view, None),
        ("GET", f"{view}?watch=true", None),
        ("GET", f"{view}/before", None),
        ("POST", view, widget("after")),
        ("PUT", f"{view}/before", widget("before")),
        ("DELETE", f"{view}/before", None),
        ("DELETE", view, None),
    ):
        answer = olga.call(method, path, body) if body else olga.call(method, path)
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden"), (method, path)
        assert "on a cluster" in answer.body["message"]
    assert server.admin.patch(f"{namespaces}/away", {"metadata": {"labels": dict.fromkeys(labels)}}).status == 200
    assert [each["metadata"]["name"] for each in olga.get(view).body["items"]] == ["before"]


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
    found = {item["metadata"]["name"] for item in answer.body["items"]}
    assert found - {"kube-root-ca.crt"} == {"seen"}
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


def test_a_claim_to_another_providers_resource_is_seen_across_consumers_by_its_identity(
    people: dict[str, Caller], server: Server
) -> None:
    """KC6: where it is accepted and of that very export, and within the policy of whoever exports it."""
    olga, masters = people["olga"], people["masters"]
    identity = olga.get(f"{PROVIDER}{APIS}/apiexports/widgets").body["status"]["identityHash"]
    any_widgets = {"group": "example.org", "resource": "widgets", "all": True, "verbs": ["list", "watch"]}
    named = {**any_widgets, "identityHash": identity}
    for export_name, kind, claim in (("lookers", "Looker", named), ("gazers", "Gazer", any_widgets)):
        claiming(olga, export_name, kind, claim)
        binds(olga, f"{ORG}:{export_name}", "widgets", "root:supply:provider:widgets")
        made(masters.post(f"{ORG}:{export_name}{WIDGETS}", widget(f"of-{export_name}")))
    # Has accepted the claim, and a kind of its own with the same name.
    ready(olga, ORG, "namesake")
    own = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    shape = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": shape}}
    spec = {"group": "example.org", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced"}
    own |= {"metadata": {"name": "widgets.example.org"}, "spec": spec | {"versions": [version]}}
    made(olga.post(f"{ORG}:namesake/apis/apiextensions.k8s.io/v1/customresourcedefinitions", own))
    assert eventually(lambda: olga.post(f"{ORG}:namesake{WIDGETS}", widget("of-namesake")).status in (201, 409))
    accepted = [{**named, "state": "Accepted"}]
    binds(olga, f"{ORG}:namesake", "lookers", "root:supply:provider:lookers", permissionClaims=accepted)

    everywhere = f"{VIEW}/lookers/clusters/*/apis/example.org/v1/widgets"
    seen = masters.get(everywhere)
    assert seen.status == 403, "masters of the operators are nobody in the policy"
    bound(olga, PROVIDER, "read", "Group", "apis.kcp.io:binding:seers")
    bound(olga, PROVIDER, "cluster-admin", "User", "sia")
    seer = server.user("supply", "sia", "seers")
    seen = seer.get(everywhere)
    assert seen.status == 200, seen.body
    assert [item["metadata"]["name"] for item in seen.body["items"]] == ["of-lookers"]
    with seer.watch(everywhere, resourceVersion=seen.body["metadata"]["resourceVersion"]) as watch:
        for place in ("namesake", "gazers", "lookers"):
            made(masters.post(f"{ORG}:{place}{WIDGETS}", widget(f"later-in-{place}")))
        assert watch.take(1)[0]["object"]["metadata"]["name"] == "later-in-lookers"
    assert seer.get(f"{VIEW}/gazers/clusters/*/apis/example.org/v1/widgets").status == 404, "anybody's widgets"
    assert people["alice"].get(everywhere).status == 403


def claiming(olga: Caller, name: str, kind: str, *claims: dict[str, Any]) -> str:
    """An export with claims, bound and accepted in a workspace of its own; the view of it."""
    made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", schema(kind, scope="Cluster")))
    spec = export(name, f"v1.{kind.lower()}s.example.org", permissionClaims=list(claims))
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", spec))
    ready(olga, ORG, name)
    accepted = [{**claim, "state": "Accepted"} for claim in claims]
    binds(olga, f"{ORG}:{name}", name, f"root:supply:provider:{name}", permissionClaims=accepted)
    return f"{VIEW}/{name}/clusters/root:supply:{name}"


def test_provider_writes_its_own_resources_beyond_its_policy(people: dict[str, Caller]) -> None:
    """KC6: the verb is asked of apiexports/content in the provider's workspace, and of nothing else."""
    olga, alice = people["olga"], people["alice"]
    view = f"{VIEW}/widgets/clusters/root:supply:consumer/apis/example.org/v1/namespaces/default/widgets"
    own = f"{CONSUMER}{WIDGETS}"
    assert olga.post(own, widget("pushed")).status == 403, "the policy lets olga read at most"
    assert made(olga.post(view, widget("pushed", 2)))["metadata"]["tenant"] == "supply"
    assert alice.get(f"{own}/pushed").body["spec"] == {"size": 2}
    assert olga.patch(f"{view}/pushed", {"spec": {"size": 3}}).body["spec"] == {"size": 3}
    whole = alice.get(f"{own}/pushed").body
    assert olga.put(f"{view}/pushed", {**whole, "spec": {"size": 4}}).body["spec"] == {"size": 4}
    assert olga.post(view, widget("bad", "big")).status == 422
    assert olga.delete(f"{view}/pushed").status == 200
    assert alice.get(f"{own}/pushed").status == 404
    assert alice.post(view, widget("mine")).status == 403
    elsewhere = view.replace("root:supply:consumer", "root:supply:provider")
    assert olga.post(elsewhere, widget("x")).status == 404, "not bound there"


def test_claimed_objects_are_written_with_the_verbs_that_both_sides_name(olga: Caller) -> None:
    """KC6."""
    maps = {"group": "", "resource": "configmaps", "all": True, "verbs": ["get", "create", "update"]}
    reviews = {"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "all": True}
    view = claiming(olga, "writers", "Writer", maps, reviews)
    asks = f"{view}/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert olga.post(asks, {"spec": {"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/"}}}).status == 404
    path = f"{view}/api/v1/namespaces/default/configmaps"
    made(olga.post(path, config_map("made")))
    assert olga.get(f"{ORG}:writers/api/v1/namespaces/default/configmaps/made").status == 200
    assert olga.get(f"{path}/made").status == 200
    assert olga.patch(f"{path}/made", {"data": {"a": "b"}}).status == 404
    assert olga.delete(f"{path}/made").status == 404
    assert olga.get(path).status == 404
    less = [{**maps, "verbs": ["get"], "state": "Accepted"}]
    bindings = f"{ORG}:writers{APIS}/apibindings/writers"
    assert olga.patch(bindings, {"spec": {"permissionClaims": less}}).status == 200
    assert olga.post(path, config_map("more")).status == 404
    assert olga.get(f"{path}/made").status == 200
    status = status_of(olga, f"{ORG}:writers", "writers")
    assert status["exportPermissionClaims"][0]["verbs"] == ["get", "create", "update"]
    rejected = [{**maps, "state": "Rejected"}]
    assert olga.patch(bindings, {"spec": {"permissionClaims": rejected}}).status == 200
    assert olga.get(f"{path}/made").status == 404
    assert eventually(lambda: "appliedPermissionClaims" not in status_of(olga, f"{ORG}:writers", "writers"))
    assert olga.patch(bindings, {"spec": {"permissionClaims": [{**maps, "state": "Maybe"}]}}).status == 422
    assert olga.patch(bindings, {"spec": {"permissionClaims": [{"resource": "x", "state": "Accepted"}]}}).status == 422


def test_a_claim_that_selects_some_objects_reaches_no_others(olga: Caller) -> None:
    """KC6: by labels or by names, for reading, watching and writing alike."""
    labelled = {"group": "", "resource": "configmaps", "verbs": ["*"], "selector": {"matchLabels": {"shared": "yes"}}}
    named = {
        "group": "",
        "resource": "secrets",
        "verbs": ["*"],
        "resourceSelector": [{"namespace": "default", "name": "token"}],
    }
    view = claiming(olga, "choosers", "Chooser", labelled, named)
    inside = f"{ORG}:choosers/api/v1/namespaces/default"
    shared = {**config_map("shared"), "metadata": {"name": "shared", "labels": {"shared": "yes"}}}
    made(olga.post(f"{inside}/configmaps", shared))
    made(olga.post(f"{inside}/configmaps", config_map("private")))
    for name in ("token", "other"):
        made(olga.post(f"{inside}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}))
    maps, secrets = f"{view}/api/v1/namespaces/default/configmaps", f"{view}/api/v1/namespaces/default/secrets"
    everywhere = f"{VIEW}/choosers/clusters/*/api/v1"
    for path, seen in (
        (maps, "shared"),
        (f"{everywhere}/configmaps", "shared"),
        (secrets, "token"),
        (f"{everywhere}/secrets", "token"),
    ):
        assert [item["metadata"]["name"] for item in olga.get(path).body["items"]] == [seen], path
        assert [item["metadata"]["name"] for item in olga.get(f"{path}?limit=1").body["items"]] == [seen], path
    assert olga.get(f"{maps}/shared").status == 200
    for path in (f"{maps}/private", f"{secrets}/other"):
        assert olga.get(path).status == 404
        assert olga.patch(path, {"metadata": {"labels": {"shared": "yes"}}}).status == 404
        assert olga.delete(path).status == 404
    assert olga.patch(f"{maps}/shared", {"metadata": {"labels": {"shared": None}}}).status == 403
    assert olga.post(maps, config_map("unlabelled")).status == 403
    assert olga.post(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}}).status == 403
    version = olga.get(maps).body["metadata"]["resourceVersion"]
    with olga.watch(maps, resourceVersion=version) as watch:
        assert olga.patch(f"{inside}/configmaps/private", {"data": {"a": "b"}}).status == 200
        assert olga.patch(f"{inside}/configmaps/shared", {"data": {"a": "b"}}).status == 200
        assert watch.take(1)[0]["object"]["metadata"]["name"] == "shared"
        gone = [{**labelled, "state": "Rejected"}, {**named, "state": "Accepted"}]
        bindings = f"{ORG}:choosers{APIS}/apibindings/choosers"
        assert olga.patch(bindings, {"spec": {"permissionClaims": gone}}).status == 200
        watch.until_end()
    assert olga.get(maps).status == 404
    assert olga.delete(secrets).status == 200
    assert [s["metadata"]["name"] for s in olga.get(f"{inside}/secrets").body["items"]] == ["other"]


def test_objects_of_a_locked_tenant_are_out_of_sight(people: dict[str, Caller], server: Server) -> None:
    """KC6, GW5."""
    olga = people["olga"]
    everywhere = f"{VIEW}/widgets/clusters/*/apis/example.org/v1/widgets"
    made(server.admin.post(f"{GLOBEX}{WIDGETS}", widget("closed-in")))

    def tenants() -> set[str]:
        return {item["metadata"]["tenant"] for item in olga.get(everywhere).body["items"]}

    assert "globex" in tenants()
    version = olga.get(everywhere).body["metadata"]["resourceVersion"]
    with olga.watch(everywhere, resourceVersion=version) as watch, server.locked("root:globex"):
        assert eventually(lambda: "globex" not in tenants())
        one = f"{VIEW}/widgets/clusters/root:globex/apis/example.org/v1/namespaces/default/widgets/closed-in"
        assert olga.get(one).status == 403
        watch.until_end()
    assert eventually(lambda: "globex" in tenants())
