"""The policy that every space falls back on, as people see it in theirs (KC7)."""

from __future__ import annotations

import pytest

from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, tenant_named

GROUP = "rbac.authorization.k8s.io"
ROLES = f"/apis/{GROUP}/v1/clusterroles"
BINDINGS = f"/apis/{GROUP}/v1/clusterrolebindings"


@pytest.fixture
def olga(server: Server, request: pytest.FixtureRequest) -> Caller:
    """The owner of a tenant of her own."""
    return server.user(tenant_named(server, f"policy-{abs(hash(request.node.name)) % 10**8}"), "olga", "tenantry:owner")


def names(caller: Caller, path: str, **query: str) -> list[str]:
    return [item["metadata"]["name"] for item in caller.get(path, **query).body["items"]]


def test_every_space_shows_what_can_be_bound_there(olga: Caller, admin: Caller) -> None:
    for caller in (olga, admin):
        role = caller.get(f"{ROLES}/view")
        assert (role.status, role.body["kind"], role.body["metadata"]["resourceVersion"]) == (200, "ClusterRole", "1")
        assert any("pods" in rule.get("resources", ()) for rule in role.body["rules"])
        found = names(caller, ROLES)
        assert found == sorted(found)
        assert {"cluster-admin", "admin", "edit", "view", "system:discovery"} <= set(found)
        assert {"cluster-admin", "system:basic-user"} <= set(names(caller, BINDINGS))
    assert all("scopeType" not in rule for rule in olga.get(f"{ROLES}/cluster-admin").body["rules"])
    assert names(olga, ROLES, fieldSelector="metadata.name=edit") == ["edit"]
    assert "view" in names(olga, ROLES, labelSelector="kubernetes.io/bootstrapping=rbac-defaults")
    assert names(olga, ROLES, labelSelector="a=b") == []


def test_a_watch_begins_with_them(olga: Caller) -> None:
    with olga.watch(ROLES) as watch:
        assert "cluster-admin" in {event["object"]["metadata"]["name"] for event in watch.take(10)}


def test_pages_bring_each_of_them_once(olga: Caller) -> None:
    own = [f"a-{number}" for number in range(3)]
    for name in own:
        assert olga.post(ROLES, {"metadata": {"name": name}}).status == 201
    found: list[str] = []
    token = ""
    while True:
        body = olga.get(ROLES, limit="2", **({"continue": token} if token else {})).body
        page = [item["metadata"]["name"] for item in body["items"]]
        assert len(page) == 2 or "continue" not in body["metadata"]
        found += page
        token = body["metadata"].get("continue", "")
        if not token:
            break
    assert found == names(olga, ROLES)
    assert len(found) == len(set(found))
    assert {*own, "view"} <= set(found)


def test_a_changed_role_is_the_spaces_own_and_of_no_other(olga: Caller, alice: Caller) -> None:
    path = f"{ROLES}/system:node-proxier"
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
    before = alice.get(path).body
    assert olga.patch(path, {"rules": rules}, dryRun="All").status == 200
    assert olga.get(path).body["metadata"]["resourceVersion"] == "1"
    changed = olga.patch(path, {"rules": rules})
    assert changed.status == 200
    assert changed.body["rules"] == rules
    assert int(changed.body["metadata"]["resourceVersion"]) > 1
    assert olga.get(path).body["rules"] == rules
    assert names(olga, ROLES).count("system:node-proxier") == 1
    assert alice.get(path).body == before


def test_a_role_that_joins_an_aggregated_one_is_read_in_it(olga: Caller, alice: Caller) -> None:
    """KC8: and what somebody writes into an aggregated one makes room for what it is made of."""
    rule = {"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["things"]}
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    before = alice.get(f"{ROLES}/view").body
    whole = [*before["rules"], rule]
    assert olga.post(ROLES, {"metadata": {"name": "z", "labels": label}, "rules": [rule]}).status == 201

    def shown() -> bool:
        rules = olga.get(f"{ROLES}/view").body["rules"]
        return rule in rules and len(rules) == len(whole)

    assert eventually(shown)
    assert olga.patch(f"{ROLES}/view", {"rules": [rule]}).status == 200
    assert eventually(shown)
    assert alice.get(f"{ROLES}/view").body == before


@pytest.mark.parametrize("way", ["put", "apply"])
def test_what_is_put_in_its_place_is_a_change_and_no_creation(olga: Caller, way: str) -> None:
    """A role that is there is changed by whoever may change roles, in whatever way."""
    role = olga.get(f"{ROLES}/edit").body
    role["rules"] = role["rules"][:1]
    if way == "put":
        changed = olga.put(f"{ROLES}/edit", role)
        assert olga.put(f"{ROLES}/edit", role).status == 409
    else:
        applied = {"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": {"labels": {"a": "b"}}}
        changed = olga.patch(f"{ROLES}/edit", applied, "apply", fieldManager="olga")
        assert changed.body["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
    assert changed.status == 200
    assert int(changed.body["metadata"]["resourceVersion"]) > 1


def test_a_subject_is_added_to_a_binding_of_the_policy(olga: Caller) -> None:
    """As ``kubectl set subject`` does."""
    subjects = [{"kind": "User", "name": "erika", "apiGroup": GROUP}]
    path = f"{BINDINGS}/system:discovery"
    assert olga.patch(path, {"subjects": subjects}).body["subjects"] == subjects
    assert olga.delete(path).status == 200
    assert olga.get(path).body["subjects"][0]["name"] == "system:authenticated"


def test_what_a_space_closes_is_closed_there_until_it_falls_back(server: Server, olga: Caller, alice: Caller) -> None:
    """KC7, KC8: what is shown is what counts, for bindings and for the roles that the policy itself binds."""
    mia = server.user(olga.get(f"{ROLES}/view").body["metadata"]["tenant"], "mia")
    path, question = f"{BINDINGS}/system:discovery", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    assert (mia.get("/apis").status, mia.post(question, asked).status) == (200, 201)
    assert olga.patch(path, {"subjects": []}).status == 200
    assert olga.patch(f"{ROLES}/system:basic-user", {"rules": []}).status == 200
    assert (mia.get("/apis").status, mia.post(question, asked).status) == (403, 403)
    assert mia.get("/version").status == 200, "public-info-viewer is as it was"
    assert (alice.get("/apis").status, alice.post(question, asked).status) == (200, 201)
    assert olga.delete(path).status == 200
    assert olga.delete(f"{ROLES}/system:basic-user").status == 200
    assert (mia.get("/apis").status, mia.post(question, asked).status) == (200, 201)


def test_what_a_space_closes_is_not_opened_again_by_whoever_lacks_it(server: Server, olga: Caller) -> None:
    """AZ2, KC7: what hides the policy goes, by deletion or with an owner, by whoever could write what is back then."""
    mia = server.user(olga.get(f"{ROLES}/view").body["metadata"]["tenant"], "mia")
    subjects = [{"kind": "User", "name": "mia", "apiGroup": GROUP}]
    verbs = ["get", "list", "update", "patch", "delete", "deletecollection"]
    keeper = {"verbs": verbs, "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]}
    assert olga.post(ROLES, {"metadata": {"name": "keeper"}, "rules": [keeper]}).status == 201
    for role in ("keeper", "system:node-proxier"):
        bound = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        made = olga.post(BINDINGS, {"metadata": {"name": f"mia-{role}"}, "roleRef": bound, "subjects": subjects})
        assert made.status == 201
    asked = {"spec": {"resourceAttributes": {"verb": "watch", "resource": "services"}}}

    def may() -> object:
        review = mia.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
        return review.body["status"]["allowed"]

    assert may() is True
    hiding, opening = f"{ROLES}/system:node-proxier", f"{BINDINGS}/system:discovery"
    assert olga.patch(hiding, {"rules": []}).status == 200
    assert olga.patch(opening, {"subjects": []}).status == 200
    assert may() is False
    dead = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "name": "none", "uid": "none"}
    for path in (hiding, opening):
        collection, _, name = path.rpartition("/")
        for refused in (
            mia.delete(path, dryRun="All"),
            mia.delete(path),
            mia.delete(collection, fieldSelector=f"metadata.name={name}"),
            mia.patch(path, {"metadata": {"ownerReferences": [dead]}}),
        ):
            assert refused.status == 403, refused.body
            assert "attempting to grant RBAC permissions not currently held" in refused.body["message"]
    assert may() is False
    assert mia.delete(f"{BINDINGS}/mia-keeper", dryRun="All").status == 200, "it hides nothing"
    assert olga.delete(hiding).status == 200
    assert olga.delete(opening).status == 200
    assert may() is True


def test_what_no_space_keeps_cannot_be_deleted(olga: Caller) -> None:
    refused = olga.delete(f"{ROLES}/view")
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "falls back on" in refused.body["message"]
    assert olga.delete(f"{ROLES}/nothing").status == 404


def test_who_may_not_look_sees_nothing_of_it(server: Server, olga: Caller) -> None:
    stranger = server.user("globex", "sam", "tenantry:owner")
    tenant = olga.get(f"{ROLES}/view").body["metadata"]["tenant"]
    assert stranger.get(f"/clusters/root:{tenant}{ROLES}/view").status == 403
    assert server.user(tenant, "nobody").get(f"{ROLES}/view").status == 403
