"""The decision tables: every requirement about rights, for and against, asked over the HTTP API."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from kube.authorization.rbac import Attributes, rules_from
from tests.access.authorization.apiservers import TENANT, Client

TABLES = yaml.safe_load((Path(__file__).parent / "decisions.yaml").read_text())
_ASKED = re.compile(
    r"(?P<verb>\w+) (?P<resource>[\w-]+)(?:\.(?P<group>[\w.]+))?(?:/(?P<subresource>\w+))?(?::(?P<name>.+))?"
)


def person(text: str) -> dict[str, Any]:
    name, tenant, *groups = text.split("/")
    return {"name": name, "tenant": tenant, "groups": [*groups, "system:authenticated"]}


def attributes(asked: str, namespace: str) -> dict[str, str]:
    if " /" in asked:
        verb, _, path = asked.partition(" ")
        return {"verb": verb, "path": path}
    found = _ASKED.fullmatch(asked)
    assert found is not None, asked
    fields = {key: value for key, value in found.groupdict().items() if value}
    return fields if namespace == "-" else fields | {"namespace": namespace}


@pytest.mark.parametrize("table", TABLES)
def test_decisions_are_those_of_the_table(world: Client, table: str) -> None:
    """AZ1 to AZ7, AZ9, KC12; the reason of a review names the deciding step."""
    wrong = []
    for who, asked, where, answer, step in TABLES[table]:
        namespace, _, cluster = where.partition("@")
        status = world.review(person(who), cluster, attributes(asked, namespace))
        found = "allow" if status["allowed"] else "deny"
        if found != answer or (step and not status.get("reason", "").startswith(step)):
            wrong.append(f"{who}: {asked} in {where}: {found}, {status.get('reason')}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("who", "what", "given", "status"),
    yaml.safe_load((Path(__file__).parent / "writes.yaml").read_text()),
    ids=lambda part: str(part),
)
def test_nobody_gives_away_what_it_does_not_hold(world: Client, who: str, what: str, given: str, status: int) -> None:
    """AZ2: escalation prevention."""
    author = {"name": who, "tenant": "acme", "groups": ["system:authenticated"]}
    if what == "impersonate":
        found = [
            world.review(author, "root:acme", {"verb": "impersonate", "resource": "users", "name": given})["allowed"]
        ]
        assert found == [status == 200]
        return
    group = "rbac.authorization.k8s.io"
    body: dict[str, Any] = {"apiVersion": f"{group}/v1", "metadata": {"generateName": "made-", "namespace": "team"}}
    if what == "role":
        verb, _, resource = given.partition(" ")
        body |= {"kind": "Role", "rules": [{"verbs": [verb], "apiGroups": [""], "resources": [resource]}]}
    else:
        body |= {"kind": "RoleBinding", "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": given}}
        body["subjects"] = [{"apiGroup": group, "kind": "User", "name": "somebody"}]
    path = f"/clusters/root:acme/apis/{group}/v1/namespaces/team/{what.replace('binding', 'rolebinding')}s?dryRun=All"
    found_status, answer = world.request("POST", path, body, who=author)
    assert found_status == status, answer


def test_a_review_without_a_tenant_is_about_a_user_of_the_space(world: Client) -> None:
    """Contract: only the system tenant asks about users of others."""
    spec = {"user": "carol", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "team"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    boss = {"name": "boss", "tenant": "acme"}
    assert world.ok("POST", path, body, who=boss)["status"]["allowed"] is True
    assert world.ok("POST", path, body)["status"]["allowed"] is False
    foreign = {**body, "spec": {**spec, "extra": {TENANT: ["globex"]}}}
    status, answer = world.request("POST", path, foreign, who=boss)
    assert (status, answer["reason"]) == (403, "Forbidden")


def test_a_refusal_gives_the_reason_of_every_mode_that_has_one(world: Client) -> None:
    """AZ11: a line each, in Kubernetes' words; and a rules review says which roles are not there."""
    group, lena = "rbac.authorization.k8s.io", {"name": "lena", "tenant": "acme"}
    world.ok(
        "POST",
        f"/clusters/root:acme/apis/{group}/v1/clusterrolebindings",
        {
            "metadata": {"name": "lost"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "nope"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "lena"}],
        },
    )
    missing = f'clusterrole.{group} "nope" not found'
    reasons = f"No policy matched.\nRBAC: {missing}\nask the guard"
    at = "/clusters/root:acme"
    status, refused = world.request("GET", f"{at}/api/v1/namespaces/team/configmaps/unsure", who=lena)
    assert status == 403
    assert refused["message"].partition('in the namespace "team"')[2] == f": {reasons}"
    asked = {"verb": "get", "resource": "configmaps", "namespace": "team", "name": "unsure"}
    assert world.review(lena, "root:acme", asked) == {"allowed": False, "reason": f"ABAC: {reasons}"}
    reviews = f"{at}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    found = world.ok("POST", reviews, {"spec": {"namespace": "team"}}, who=lena)["status"]
    assert found["evaluationError"].startswith(f"{missing}; ")


def test_every_kind_of_review_is_served_in_every_space(world: Client) -> None:
    """AZ10."""
    group = "/apis/authorization.k8s.io/v1"
    asks = {"verb": "get", "resource": "pods", "namespace": "team"}
    for who in ({"name": "root", "tenant": "system", "groups": ["system:masters"]}, {"name": "boss", "tenant": "acme"}):

        def post(path: str, kind: str, spec: dict[str, Any], api: str = "authorization.k8s.io", who: Any = who) -> Any:
            return world.ok("POST", path, {"apiVersion": f"{api}/v1", "kind": kind, "spec": spec}, who=who)["status"]

        assert post(f"{group}/selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": asks})[
            "allowed"
        ]
        spec = {"user": who["name"], "groups": who.get("groups", []), "resourceAttributes": asks}
        assert post(f"{group}/subjectaccessreviews", "SubjectAccessReview", spec)["allowed"]
        assert post(f"{group}/namespaces/team/localsubjectaccessreviews", "LocalSubjectAccessReview", spec)["allowed"]
        rules = post(f"{group}/selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "team"})
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        assert everything in rules["resourceRules"]
        assert rules["incomplete"] is True, "a webhook cannot list what it would allow"
        me = post("/apis/authentication.k8s.io/v1/selfsubjectreviews", "SelfSubjectReview", {}, "authentication.k8s.io")
        assert me["userInfo"]["extra"][TENANT] == [who["tenant"]]
        token = post(
            "/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview", {"token": "x"}, "authentication.k8s.io"
        )
        assert token.get("authenticated", False) is False


@pytest.mark.parametrize("table", TABLES)
def test_a_rules_review_holds_what_the_table_allows_and_nothing_that_it_denies(world: Client, table: str) -> None:
    """AZ10: completeness, where what is allowed can be listed at all; who is from elsewhere may not ask."""
    wrong = []
    for who, asked, where, answer, step in TABLES[table]:
        namespace, _, cluster = where.partition("@")
        author = person(who)
        path = f"/clusters/{cluster}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        body = {"spec": {"namespace": "default" if namespace == "-" else namespace}}
        status, review = world.request("POST", path, body, who=author)
        if status != 201 or (answer == "allow" and step not in ("RBAC", "ABAC", "system-masters")):
            assert status in (201, 403), review
            continue
        wanted = attributes(asked, namespace)
        if answer == "deny" and namespace == "-" and "path" not in wanted:
            continue  # A rules review is about a namespace, and what is asked is about all of them.
        said = [rule for kind in ("resourceRules", "nonResourceRules") for rule in review["status"][kind]]
        question = of_question(wanted)
        if step == "ABAC" and question.subresource:
            # RBAC has no word for all subresources of one resource.
            question = question._replace(resource=f"{wanted['resource']}/*")
        found = any(rule.allows(question) for rule in rules_from(said))
        if found is not (answer == "allow") and step != "Node":
            wrong.append(f"{who}: {asked} in {where}: {answer}, listed: {found}")
    assert not wrong, "\n".join(wrong)


def of_question(wanted: dict[str, str]) -> Attributes:
    if "path" in wanted:
        return Attributes(wanted["verb"], path=wanted["path"], is_resource=False)
    part = wanted.get("subresource", "")
    resource = f"{wanted['resource']}/{part}" if part else wanted["resource"]
    return Attributes(
        wanted["verb"],
        wanted.get("group", ""),
        resource,
        part,
        wanted.get("namespace", ""),
        wanted.get("name", ""),
    )


def test_rules_of_a_let_in_user_are_those_of_the_grant_alone(world: Client) -> None:
    """AZ7, AZ10."""
    path = "/clusters/root:acme/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "team"}}
    status, _ = world.request("POST", path, body, who={"name": "partner", "tenant": "globex"})
    assert status == 403, "a grant for pods does not open reviews"


def test_the_webhook_is_told_the_tenant_of_the_user(world: Client, oracle: Any) -> None:
    """AZ5: two tenants' users of one name are two users, in the question and in what is remembered."""
    asks = {"verb": "get", "resource": "oracles", "name": "tenants"}
    for tenant in ("acme", "globex"):
        assert world.review({"name": "twin", "tenant": tenant}, f"root:{tenant}", asks)["allowed"]
        assert world.review({"name": "twin", "tenant": tenant}, f"root:{tenant}", asks)["allowed"]
    asked = [spec["extra"][TENANT] for spec in oracle.asked if spec["user"] == "twin"]
    assert asked == [["acme"], ["globex"]]


def test_the_webhook_is_told_what_a_request_and_a_review_are_limited_to(world: Client, oracle: Any) -> None:
    """AZ5: it may allow a part of what it would not allow whole."""
    who = {"name": "chooser", "tenant": "acme", "groups": ["system:authenticated"]}
    named = {"requirements": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}
    labelled = {"requirements": [{"key": "team", "operator": "Exists"}]}
    path = "/apis/example.com/v1/namespaces/team/oracles?fieldSelector=metadata.name!%3Dx&labelSelector=team"
    assert world.request("GET", path, who=who)[0] == 404, "it is allowed, and not there"
    asks = {"verb": "list", "group": "example.com", "version": "v1", "resource": "oracles", "namespace": "team"}
    for selectors in (
        {"fieldSelector": {"rawSelector": "metadata.name!=x"}, "labelSelector": {"rawSelector": "team"}},
        {"fieldSelector": named, "labelSelector": labelled},
    ):
        # The answer to the request is remembered, for it is the same question.
        assert world.review(who, "root:acme", {**asks, **selectors})["allowed"]
    assert world.review(who, "root:acme", asks)["allowed"]
    asked = [spec["resourceAttributes"] for spec in oracle.asked if spec["user"] == "chooser"]
    assert asked == [{**asks, "fieldSelector": named, "labelSelector": labelled}, asks]


def test_a_denied_request_leaves_its_trace_in_the_audit(world: Client, authorization_database: str) -> None:
    """AZ11: each step that was asked, in order, with what it said; the last one decided."""
    who = {"name": "mallory", "tenant": "acme", "groups": ["system:authenticated"]}
    for path in ("/api/v1/namespaces/team/secrets", "/clusters/root:globex/api/v1/namespaces/team/secrets"):
        assert world.request("GET", path, who=who)[0] == 403
    steps: dict[str, list[str]] = {}
    deadline = time.monotonic() + 300
    while len(steps) < 2 and time.monotonic() < deadline:
        with psycopg.connect(authorization_database) as connection:
            rows = connection.execute(
                "SELECT space, trace FROM api_requests WHERE actor LIKE '%%mallory' AND NOT allowed"
            ).fetchall()
        steps = {space: [f"{said['step']}: {said['decision']}" for said in trace] for space, trace in rows}
        time.sleep(0.1)
    gates = ["suspension: no opinion", "credential-scope: no opinion", "server-owned: no opinion"]
    passed = ("tenant-isolation", "placed-namespaces", "maximal-permission-policy")
    silent = [*gates, *(f"{step}: no opinion" for step in passed)]
    modes = ["ABAC: no opinion", "RBAC: no opinion", "Webhook: no opinion"]
    assert steps == {"root:acme": silent + modes, "root:globex": [*gates, "tenant-isolation: deny"]}
