"""Who may do what, over HTTP (AZ1, AZ2, AZ10, TS3, TS13)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import Server

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
REVIEWS = "/apis/authorization.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def users(server: Server, alice: Caller, gina: Caller) -> dict[str, Caller]:
    return {
        "owner": alice,
        "viewer": server.user("acme", "victor", "tenantry:viewer"),
        "masters": server.user("acme", "mona"),
        "stranger": server.user("nowhere", "sam"),
        "operator": server.user("system", "oscar"),
        "admin": server.admin,
        "nobody": server.nobody,
    }


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case['who']} {case['do']}")
def test_decision_table(users: dict[str, Caller], case: dict[str, Any], alice: Caller) -> None:
    if case["who"] == "masters":
        bind(alice, "monas", "cluster-admin", user="mona")
    method, path = case["do"].split()
    assert users[case["who"]].call(method, path).status == case["gives"]


def bind(caller: Caller, name: str, role: str, *, user: str) -> None:
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert caller.post(f"{RBAC}/clusterrolebindings", body).status in (201, 409)


def test_refusal_is_in_the_words_that_kubectl_users_know(server: Server, acme: str) -> None:
    refused = server.user(acme, "walter").get("/api/v1/namespaces/default/pods")
    assert refused.body["message"] == (
        'pods is forbidden: User "walter" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    assert refused.body["details"] == {"kind": "pods"}


def test_equal_names_in_two_tenants_never_meet(alice: Caller, gina: Caller, admin: Caller) -> None:
    """TS3."""
    path = "/api/v1/namespaces/default/configmaps"
    for caller, value in ((alice, "acme"), (gina, "globex"), (admin, "system")):
        assert caller.post(path, config_map("same", {"whose": value})).status == 201
    for caller, value in ((alice, "acme"), (gina, "globex"), (admin, "system")):
        assert caller.get(f"{path}/same").body["data"] == {"whose": value}
        listed = caller.get("/api/v1/configmaps", fieldSelector="metadata.name=same").body["items"]
        assert [item["data"]["whose"] for item in listed] == [value]
    everywhere = admin.get("/api/v1/tenants/*/configmaps", fieldSelector="metadata.name=same").body["items"]
    assert {item["metadata"].get("tenant", "system") for item in everywhere} == {"acme", "globex", "system"}
    assert gina.delete(f"{path}/same").status == 200
    assert alice.get(f"{path}/same").body["data"] == {"whose": "acme"}


def test_service_account_of_one_tenant_is_nobody_in_another(server: Server, alice: Caller, gina: Caller) -> None:
    """AZ1, KC9."""
    for caller in (alice, gina):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "twin"}}
        caller.post("/api/v1/namespaces/default/serviceaccounts", account)
        bind(caller, "twins", "view", user="system:serviceaccount:default:twin")
    made = alice.post("/api/v1/namespaces/default/serviceaccounts/twin/token", {"spec": {}})
    twin = server.bearer(made.body["status"]["token"])
    assert twin.get("/api/v1/namespaces/default/configmaps").status == 200
    assert twin.get("/api/v1/tenants/globex/namespaces/default/configmaps").status == 403
    assert twin.get("/clusters/root/api/v1/namespaces/default/configmaps").status == 403


def review(caller: Caller, kind: str, spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = caller.post(f"{prefix}{REVIEWS}/{kind.lower()}s", body)
    assert answer.status == 201, answer.body
    return dict(answer.body["status"])


def attributes(verb: str, resource: str, namespace: str = "default") -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}}


def test_reviews_decide_as_requests_are_decided(server: Server, alice: Caller, gina: Caller) -> None:
    """AZ10."""
    viewer = server.user("acme", "victor", "tenantry:viewer")
    assert review(viewer, "SelfSubjectAccessReview", attributes("list", "configmaps"))["allowed"]
    assert not review(viewer, "SelfSubjectAccessReview", attributes("list", "secrets"))["allowed"]
    asked = {**attributes("list", "configmaps"), "user": "victor", "groups": ["tenantry:viewer"]}
    allowed = review(alice, "SubjectAccessReview", asked)
    assert allowed["allowed"]
    assert "tenantry:viewer" in allowed["reason"]
    assert not review(alice, "SubjectAccessReview", {**asked, "groups": []})["allowed"]
    # The same names mean another tenant's users in another tenant's space.
    foreign = {**asked, "extra": {"multi-tenancy.k8s.io/tenant": ["globex"]}}
    denied = review(server.admin, "SubjectAccessReview", foreign, prefix="/clusters/root:acme")
    assert denied["denied"]
    assert denied["reason"].startswith("tenant-isolation")
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": foreign}
    assert alice.post(f"{REVIEWS}/subjectaccessreviews", body).status == 403


def test_rules_review_names_what_the_caller_holds(server: Server, acme: str) -> None:
    """AZ10."""
    viewer = server.user(acme, "victor", "tenantry:viewer")
    status = review(viewer, "SelfSubjectRulesReview", {"namespace": "default"})
    assert any("configmaps" in rule["resources"] and "list" in rule["verbs"] for rule in status["resourceRules"])
    assert not any("secrets" in rule["resources"] for rule in status["resourceRules"])


def test_who_am_i_names_the_tenant(server: Server, acme: str) -> None:
    """AZ10."""
    viewer = server.user(acme, "victor", "tenantry:viewer")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    info = viewer.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body).body["status"]["userInfo"]
    assert info["username"] == "victor"
    assert info["groups"] == ["tenantry:viewer", "system:authenticated"]
    assert info["extra"]["multi-tenancy.k8s.io/tenant"] == ["acme"]


def test_nobody_gives_away_what_they_do_not_hold(server: Server, alice: Caller) -> None:
    """AZ2: escalation and binding."""
    editor = server.user("acme", "eve", "tenantry:admin")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "more", "namespace": "default"},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    }
    refused = editor.post(f"{RBAC}/namespaces/default/roles", role)
    assert refused.status == 403
    assert "is attempting to grant RBAC permissions not currently held" in refused.body["message"]
    held = {**role, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]}
    assert editor.post(f"{RBAC}/namespaces/default/roles", held).status == 201
    assert editor.patch(f"{RBAC}/namespaces/default/roles/more", {"rules": role["rules"]}).status == 403
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "mine", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    }
    assert editor.post(f"{RBAC}/namespaces/default/rolebindings", binding).status == 403
    missing = {**binding, "roleRef": {**binding["roleRef"], "name": "made-up-later"}}
    assert editor.post(f"{RBAC}/namespaces/default/rolebindings", missing).status == 404
    assert alice.post(f"{RBAC}/namespaces/default/rolebindings", binding).status == 201
    alice.delete(f"{RBAC}/namespaces/default/rolebindings/mine")


SECRETS = [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]
GROUP = "rbac.authorization.k8s.io"


def role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}


def role_binding(name: str, of: str, *users: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": of},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user} for user in users],
    }


@pytest.fixture
def scribe(server: Server, alice: Caller, namespace: str) -> Caller:
    """Somebody who writes roles and bindings, may escalate one role and bind one, and holds nothing else."""
    verbs = ["get", "create", "update", "patch", "delete"]
    rules = [
        {"verbs": verbs, "apiGroups": [GROUP], "resources": ["roles", "rolebindings"]},
        {"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["special"]},
        {"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["special"]},
    ]
    assert alice.post(f"{RBAC}/namespaces/{namespace}/roles", role("scribe", rules)).status == 201
    made = role_binding("scribe", "scribe", "sam")
    assert alice.post(f"{RBAC}/namespaces/{namespace}/rolebindings", made).status == 201
    return server.user("acme", "sam")


def written(who: Caller, way: str, path: str, body: dict[str, Any]) -> int:
    """The same object by each of the ways in which an object comes to be what it is; the status."""
    name = body["metadata"]["name"]
    changed = {field: body[field] for field in body if field in ("rules", "subjects", "roleRef")}
    match way:
        case "post":
            return who.post(path, body).status
        case "put":
            return who.put(f"{path}/{name}", body).status
        case "json":
            operations = [{"op": "add", "path": f"/{field}", "value": value} for field, value in changed.items()]
            return who.patch(f"{path}/{name}", operations, "json").status
        case "apply":
            return who.patch(f"{path}/{name}", body, "apply", fieldManager="tests", force="true").status
    return who.patch(f"{path}/{name}", changed, way).status


UPDATES = ["put", "merge", "strategic-merge", "json", "apply"]


def test_no_way_of_writing_gives_away_what_its_author_does_not_hold(
    alice: Caller, scribe: Caller, namespace: str
) -> None:
    """AZ2: rules added to a role, subjects added to a binding, and both made by writing to a name that is free."""
    roles, bindings = (f"{RBAC}/namespaces/{namespace}/{plural}" for plural in ("roles", "rolebindings"))
    assert scribe.post(roles, role("empty", [])).status == 201
    assert alice.post(roles, role("secretive", SECRETS)).status == 201
    assert alice.post(bindings, role_binding("theirs", "secretive", "bob")).status == 201
    for way in ("post", "put", "apply"):
        assert (way, written(scribe, way, roles, role("new", SECRETS))) == (way, 403)
        assert (way, written(scribe, way, bindings, role_binding("new", "secretive", "sam"))) == (way, 403)
    for way in UPDATES:
        assert (way, written(scribe, way, roles, role("empty", SECRETS))) == (way, 403)
        assert (way, written(scribe, way, bindings, role_binding("theirs", "secretive", "bob", "sam"))) == (way, 403)
        # Whoever holds it may, and a binding never refers to another role than at first.
        assert (way, written(alice, way, bindings, role_binding("theirs", "empty", "bob"))) == (way, 422)
    assert scribe.get(f"/api/v1/namespaces/{namespace}/secrets/x").status == 403
    assert scribe.delete(f"{bindings}/theirs").status == 200


@pytest.mark.parametrize("way", UPDATES)
def test_escalate_and_bind_by_name_are_for_that_name_alone(
    alice: Caller, scribe: Caller, namespace: str, way: str
) -> None:
    """AZ2: resourceNames; a name that begins alike is another one."""
    roles, bindings = (f"{RBAC}/namespaces/{namespace}/{plural}" for plural in ("roles", "rolebindings"))
    for name, status in (("special-2", 403), ("special", 200)):
        assert scribe.post(roles, role(name, [])).status == 201
        assert (name, written(scribe, way, roles, role(name, SECRETS))) == (name, status)
    assert scribe.post(roles, {**role("", SECRETS), "metadata": {"generateName": "special"}}).status == 403
    assert alice.put(f"{roles}/special-2", role("special-2", SECRETS)).status == 200
    for name, status in (("special-2", 403), ("special", 200)):
        assert alice.post(bindings, role_binding(name, name, "bob")).status == 201
        assert (name, written(scribe, way, bindings, role_binding(name, name, "bob", "zoe"))) == (name, status)


def test_impersonation_headers_are_never_ignored(alice: Caller) -> None:
    """HDR-01."""
    headers = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
    assert alice.get("/api/v1/namespaces", headers=headers).status == 403


def test_masters_of_the_system_tenant_come_from_our_own_authority_alone(server: Server, acme: str) -> None:
    """X509-11: a tenant's certificate never names masters."""
    assert server.user(acme, "m1", "system:masters").get("/api/v1/namespaces").status == 401


@pytest.fixture
def clerk(server: Server, alice: Caller) -> Iterator[Caller]:
    """Somebody who may write roles and bindings, and holds next to nothing else."""
    verbs = ["get", "create", "update", "patch", "delete"]
    rules = [
        {"verbs": verbs, "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]},
        {"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"]},
    ]
    assert alice.post(f"{RBAC}/clusterroles", {"metadata": {"name": "clerk"}, "rules": rules}).status == 201
    assert alice.post(f"{RBAC}/clusterrolebindings", bound("clerk", "clerk", "carla")).status == 201
    yield server.user("acme", "carla")
    alice.delete(f"{RBAC}/clusterrolebindings/clerk")
    alice.delete(f"{RBAC}/clusterroles/clerk")


def bound(name: str, role: str, user: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def gathering(name: str, **labels: str) -> dict[str, Any]:
    rule = {"clusterRoleSelectors": [{"matchLabels": labels}]}
    return {"metadata": {"name": name}, "aggregationRule": rule, "rules": []}


def test_a_role_that_gathers_others_is_for_whoever_holds_everything(alice: Caller, clerk: Caller) -> None:
    """AZ-10: bound while it is empty, it would fill with what others write later."""
    refused = clerk.post(f"{RBAC}/clusterroles", gathering("net", caught="true"))
    assert refused.status == 403
    assert refused.body["message"] == (
        'clusterroles.rbac.authorization.k8s.io "net" is forbidden: '
        "must have cluster-admin privileges to use the aggregationRule"
    )
    assert alice.post(f"{RBAC}/clusterroles", gathering("net", caught="true")).status == 201
    assert clerk.patch(f"{RBAC}/clusterroles/net", gathering("net", all="true")).status == 403
    assert clerk.patch(f"{RBAC}/clusterroles/net", {"aggregationRule": None}).status == 403
    assert alice.delete(f"{RBAC}/clusterroles/net").status == 200


def test_one_takes_the_place_of_one_of_the_bootstrap_policy_for_whoever_may_update_that(
    server: Server, alice: Caller, globex: str
) -> None:
    """AZ-11, KC7: created by somebody who holds nothing, it would take from everybody what the bootstrap role gives."""
    rules = [{"verbs": ["create", "get"], "apiGroups": [GROUP], "resources": ["clusterroles", "clusterrolebindings"]}]
    assert alice.post(f"{RBAC}/clusterroles", {"metadata": {"name": "adder"}, "rules": rules}).status == 201
    assert alice.post(f"{RBAC}/clusterrolebindings", bound("adder", "adder", "ada")).status == 201
    ada = server.user("acme", "ada")
    for name in ("cluster-admin", "view", "system:discovery"):
        refused = ada.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": []})
        assert (refused.status, "bootstrap policy" in refused.body["message"]) == (403, True)
    closing = {**bound("system:discovery", "system:discovery", "nobody"), "subjects": []}
    refused = ada.post(f"{RBAC}/clusterrolebindings", closing)
    assert (refused.status, "bootstrap policy" in refused.body["message"]) == (403, True)
    renamed = {**closing, "metadata": {"name": "discovering"}}
    assert ada.post(f"{RBAC}/clusterrolebindings", renamed, dryRun="All").status == 201
    assert ada.post(f"{RBAC}/clusterroles", {"metadata": {"name": "viewing"}, "rules": []}).status == 201
    viewer, elsewhere = (server.user(tenant, "vi", "tenantry:viewer") for tenant in ("acme", globex))
    maps = "/api/v1/namespaces/default/configmaps"
    assert alice.post(f"{RBAC}/clusterroles", {"metadata": {"name": "view"}, "rules": []}).status == 201
    assert (viewer.get(maps).status, elsewhere.get(maps).status) == (403, 200)
    assert alice.delete(f"{RBAC}/clusterroles/view").status == 200
    assert (viewer.get(maps).status, elsewhere.get(maps).status) == (200, 200)
    for name in ("adder", "viewing"):
        alice.delete(f"{RBAC}/clusterroles/{name}")
    alice.delete(f"{RBAC}/clusterrolebindings/adder")


def test_somebody_acts_as_another_for_one_verb_on_one_kind(server: Server, alice: Caller, admin: Caller) -> None:
    """HDR-01: constrained impersonation; and a node that is acted as is one of the nodes."""
    rules = [
        {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["configmaps"]},
        {
            "verbs": ["impersonate:user-info"],
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["users"],
            "resourceNames": ["vic"],
        },
    ]
    assert alice.post(f"{RBAC}/clusterroles", {"metadata": {"name": "acts"}, "rules": rules}).status == 201
    for name, role, who in (("acts", "acts", "ivy"), ("sees", "view", "vic"), ("looks", "view", "wes")):
        assert alice.post(f"{RBAC}/clusterrolebindings", bound(name, role, who)).status == 201
    ivy, maps = server.user("acme", "ivy"), "/api/v1/namespaces/default/configmaps"
    vic = {"Impersonate-User": "vic"}
    assert (ivy.get(maps).status, ivy.get(maps, vic).status) == (403, 200)
    for path, headers in (
        (f"{maps}/kube-root-ca.crt", vic),
        ("/api/v1/namespaces/default/pods", vic),
        (maps, {"Impersonate-User": "wes"}),
        (maps, {**vic, "Impersonate-Group": "dev"}),
    ):
        refused = ivy.get(path, headers)
        assert (refused.status, 'cannot impersonate resource "' in refused.body["message"]) == (403, True)
    for name in ("acts", "sees", "looks"):
        alice.delete(f"{RBAC}/clusterrolebindings/{name}")
    alice.delete(f"{RBAC}/clusterroles/acts")
    reviews, node = "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"Impersonate-User": "system:node:n1"}
    said = admin.call("POST", reviews, {}, node).body["status"]["userInfo"]
    assert said["groups"] == ["system:nodes", "system:authenticated"]


def test_a_label_that_makes_a_role_flow_into_another_needs_its_rules(alice: Caller, clerk: Caller) -> None:
    """AZ2: whoever has the gathering role would get the rules with the label."""
    secret = {"metadata": {"name": "vault"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]}
    assert alice.post(f"{RBAC}/clusterroles", secret).status == 201
    label = {"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}
    assert clerk.patch(f"{RBAC}/clusterroles/vault", label).status == 403
    assert clerk.patch(f"{RBAC}/clusterroles/vault", {"metadata": {"finalizers": ["example.com/x"]}}).status == 200
    assert (
        alice.patch(f"{RBAC}/clusterroles/vault", {"metadata": {"finalizers": None, **label["metadata"]}}).status == 200
    )
    assert alice.delete(f"{RBAC}/clusterroles/vault").status == 200


@pytest.mark.parametrize("at", ["/clusters/root:nowhere/api/v1", "/api/v1/tenants/nowhere"])
def test_nothing_comes_into_the_space_of_a_tenant_that_is_not_there(admin: Caller, at: str) -> None:
    """TS1: a later tenant of the name would find it."""
    made = admin.post(f"{at}/namespaces", {"metadata": {"name": "planted"}})
    assert (made.status, made.body["message"]) == (404, 'tenants "nowhere" not found')
    applied = admin.patch(
        f"{at}/namespaces/planted",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "planted"}},
        "apply",
        fieldManager="t",
    )
    assert applied.status == 404


def test_a_certificate_request_says_who_asked_whatever_it_claims(alice: Caller) -> None:
    """CT-16: whoever signs goes by it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .sign(ec.generate_private_key(ec.SECP256R1()), SHA256())
    )
    claimed = {"username": "admin", "groups": ["system:masters"], "uid": "7", "extra": {"a": ["b"]}}
    spec = {
        "request": base64.b64encode(signed.public_bytes(Encoding.PEM)).decode(),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
    }
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    made = alice.post(requests, {"metadata": {"name": "claimed"}, "spec": {**spec, **claimed}})
    assert made.status == 201, made.body
    said = made.body["spec"]
    assert (said["username"], said["groups"]) == ("alice", ["tenantry:owner", "system:authenticated"])
    assert "uid" not in said
    assert said["extra"]["multi-tenancy.k8s.io/tenant"] == ["acme"]
    assert "a" not in said["extra"]
    alice.delete(f"{requests}/claimed")
