"""Objects of the system space that tenants get too: they follow, nobody there changes them, and they go again (AZ8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import migrated
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server, completed, start, stop, tenant_named

PUBLISHED = "multi-tenancy.k8s.io/published"
TO = "multi-tenancy.k8s.io/published-to"
SECRET = "multi-tenancy.k8s.io/published-secret"
REPORT = "multi-tenancy.k8s.io/publication"
ORIGIN = "multi-tenancy.k8s.io/published-from"
MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Publisher(Caller):
    """An operator who can take back all that it made."""

    def __init__(self, server: Server) -> None:
        pki = server.folder / "pki"
        super().__init__(server.url, pki / "ca.crt", certificate=pki / "admin.crt", key=pki / "admin.key")
        self._made: list[str] = []

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None, **query: object) -> Answer:
        answer = super().post(path, body, headers, **query)
        if answer.status == 201 and "dryRun" not in query:
            self._made.append(f"{path}/{answer.body['metadata']['name']}")
        return answer

    def withdraw(self) -> None:
        for path in reversed(self._made):
            assert self.delete(path).status in {200, 404}


@pytest.fixture
def admin(server: Server) -> Iterator[Caller]:
    """What stays published would come to the tenants of every later test on this server."""
    publisher = Publisher(server)
    yield publisher
    publisher.withdraw()


@pytest.fixture
def name() -> str:
    return f"p-{uuid4().hex[:8]}"


def published(name: str, data: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    return config_map(name, data, annotations={PUBLISHED: "true", **annotations})


def made(answer: Answer) -> Answer:
    assert answer.status == 201, answer.body
    return answer


def appears(caller: Caller, path: str, holds: Callable[[Any], bool] = lambda _: True) -> Any:
    """The object, once it is there and as it must be."""

    def there() -> bool:
        answer = caller.get(path)
        return answer.status == 200 and holds(answer.body)

    assert eventually(there), caller.get(path).body
    return caller.get(path).body


def disappears(caller: Caller, path: str) -> bool:
    return eventually(lambda: caller.get(path).status == 404)


def report(admin: Caller, path: str, holds: Callable[[Any], bool]) -> Any:
    def told() -> Any:
        return json.loads(admin.get(path).body["metadata"].get("annotations", {}).get(REPORT, "{}"))

    assert eventually(lambda: holds(told())), told()
    return told()


def labelled(admin: Caller, tenant: str, **labels: str | None) -> None:
    answer = admin.patch(f"/api/v1/tenants/{tenant}", {"metadata": {"labels": labels}})
    assert answer.status == 200, answer.body


def test_an_object_comes_to_every_tenant_follows_its_source_and_goes_with_it(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    at = f"{MAPS}/{name}"
    source = made(admin.post(MAPS, published(name, {"a": "1"}, other="kept"))).body["metadata"]
    copy = appears(owner, at)
    assert copy["data"] == {"a": "1"}
    assert copy["metadata"]["labels"] == {ORIGIN: source["uid"]}
    assert copy["metadata"]["annotations"] == {"other": "kept"}
    assert copy["metadata"]["tenant"] == tenant
    assert copy["metadata"]["uid"] != source["uid"]
    later = tenant_named(server, f"t-{uuid4().hex[:8]}")
    assert appears(server.user(later, "ludo", "tenantry:owner"), at)["data"] == {"a": "1"}
    assert admin.patch(at, {"data": {"a": "2"}, "metadata": {"labels": {"b": "c"}}}).status == 200
    changed = appears(owner, at, lambda body: body["data"] == {"a": "2"})
    assert changed["metadata"]["labels"] == {ORIGIN: source["uid"], "b": "c"}
    assert changed["metadata"]["uid"] == copy["metadata"]["uid"]
    assert admin.patch(at, {"metadata": {"annotations": {PUBLISHED: None}}}).status == 200
    assert disappears(owner, at)
    assert eventually(lambda: REPORT not in admin.get(at).body["metadata"].get("annotations", {}))
    assert admin.patch(at, {"metadata": {"annotations": {PUBLISHED: "true"}}}).status == 200
    appears(owner, at)
    assert admin.delete(at).status == 200
    assert disappears(owner, at)


def test_of_a_namesake_nothing_is_inherited(admin: Caller, owner: Caller, name: str) -> None:
    """A source that is made anew is another one: its copies are other objects."""
    at = f"{MAPS}/{name}"
    made(admin.post(MAPS, published(name)))
    first = appears(owner, at)
    assert admin.delete(at).status == 200
    second = made(admin.post(MAPS, published(name))).body
    copy = appears(owner, at, lambda body: body["metadata"]["labels"][ORIGIN] == second["metadata"]["uid"])
    assert copy["metadata"]["uid"] != first["metadata"]["uid"]


def test_tenants_are_chosen_by_their_labels_and_a_tenant_that_is_not_meant_any_more_loses_it(
    admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    at = f"{MAPS}/{name}"
    made(admin.post(MAPS, published(name, **{TO: "tier in (gold,silver),!beta"})))
    everybody = f"{name}-all"
    made(admin.post(MAPS, published(everybody)))
    appears(owner, f"{MAPS}/{everybody}")
    assert owner.get(at).status == 404
    labelled(admin, tenant, tier="gold")
    appears(owner, at)
    labelled(admin, tenant, beta="yes")
    assert disappears(owner, at)
    labelled(admin, tenant, beta=None)
    appears(owner, at)
    assert admin.patch(at, {"metadata": {"annotations": {TO: "tier=bronze"}}}).status == 200
    assert disappears(owner, at)
    wrong = admin.patch(at, {"metadata": {"annotations": {TO: "tier in"}}})
    assert wrong.status == 422
    assert f"metadata.annotations[{TO}]" in wrong.body["details"]["causes"][0]["field"]


def test_nobody_in_a_tenant_space_changes_a_copy_by_any_way(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    """Not its owner, nor an operator: what the source says holds."""
    at = f"{MAPS}/{name}"
    made(admin.post(MAPS, published(name)))
    copy = appears(owner, at)
    operator = f"/clusters/root:{tenant}"
    ways = [
        lambda who, to: who.put(to, {**copy, "data": {"a": "9"}}),
        lambda who, to: who.patch(to, {"data": {"a": "9"}}),
        lambda who, to: who.patch(to, {"data": {"a": "9"}}, "strategic-merge"),
        lambda who, to: who.patch(to, [{"op": "remove", "path": "/data/a"}], "json"),
        lambda who, to: who.patch(
            to, {**config_map(name), "data": {"a": "9"}}, "apply", fieldManager="me", force="true"
        ),
        lambda who, to: who.patch(to, {"metadata": {"labels": {ORIGIN: None}}}),
        lambda who, to: who.patch(to, {"metadata": {"finalizers": ["mine/held"]}}),
        lambda who, to: who.patch(
            to,
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "y"}]}},
        ),
        lambda who, to: who.delete(to),
        lambda who, to: who.delete(to, {"propagationPolicy": "Foreground"}),
        lambda who, to: who.delete(to, gracePeriodSeconds=0),
        lambda who, to: who.delete(to.rpartition("/")[0], labelSelector=ORIGIN),
    ]
    for number, way in enumerate(ways):
        for who, prefix in ((owner, ""), (admin, operator)):
            answer = way(who, f"{prefix}{at}")
            assert answer.status == 403, (number, answer.body)
            assert "published by the operators" in answer.body["message"]
    assert owner.get(at).body == copy


def test_status_and_other_parts_of_a_copy_are_closed_as_well(admin: Caller, owner: Caller, name: str) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod}
    metadata = {"name": name, "annotations": {PUBLISHED: "true"}}
    made(admin.post(deployments, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}))
    copy = appears(owner, f"{deployments}/{name}")
    assert copy["metadata"]["generation"] == 1
    assert owner.patch(f"{deployments}/{name}/status", {"status": {"replicas": 5}}).status == 403
    assert owner.patch(f"{deployments}/{name}/scale", {"spec": {"replicas": 5}}).status == 403
    assert owner.get(f"{deployments}/{name}").body == copy
    assert admin.patch(f"{deployments}/{name}/scale", {"spec": {"replicas": 3}}).status == 200
    followed = appears(owner, f"{deployments}/{name}", lambda body: body["spec"]["replicas"] == 3)
    assert followed["metadata"]["generation"] == 2
    assert admin.delete(f"{deployments}/{name}").status == 200


def test_tenants_neither_publish_nor_forge_a_copy(owner: Caller, name: str) -> None:
    for asked in ({PUBLISHED: "true"}, {TO: "a=b"}, {SECRET: "true"}, {REPORT: "{}"}):
        refused = owner.post(MAPS, config_map(name, annotations=asked))
        assert refused.status == 403
        assert "only objects of the system space are published" in refused.body["message"]
    made(owner.post(MAPS, config_map(name)))
    assert owner.patch(f"{MAPS}/{name}", {"metadata": {"annotations": {PUBLISHED: "true"}}}).status == 403
    forged = owner.patch(f"{MAPS}/{name}", {"metadata": {"labels": {ORIGIN: str(uuid4())}}})
    assert forged.status == 403
    assert "marks copies of published objects" in forged.body["message"]
    assert owner.post(MAPS, config_map(f"{name}-2", labels={ORIGIN: ""})).status == 201


def test_a_name_that_a_tenant_has_is_not_overwritten_and_the_source_says_so(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    at = f"{MAPS}/{name}"
    made(owner.post(MAPS, config_map(name, {"mine": "yes"})))
    labelled(admin, tenant, only=name)
    made(admin.post(MAPS, published(name, **{TO: f"only={name}"})))
    told = report(admin, at, lambda told: told.get("missing") == 1)
    assert told["tenants"] == 1
    assert told["reasons"]["NameTaken"]["first"] == [tenant]
    assert "not overwritten" in told["reasons"]["NameTaken"]["message"]
    assert owner.get(at).body["data"] == {"mine": "yes"}
    assert owner.patch(at, {"data": {"still": "mine"}}).status == 200
    assert owner.delete(at).status == 200
    appears(owner, at, lambda body: body["data"] == {"a": "1"})
    report(admin, at, lambda told: told == {"tenants": 1, "missing": 0, "reasons": {}})


def test_secrets_are_published_only_when_the_operator_says_so_twice_and_credentials_never(
    admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    labelled(admin, tenant, only=name)

    def secret(name_: str, type_: str = "Opaque", **annotations: str) -> dict[str, Any]:
        metadata = {"name": name_, "annotations": {PUBLISHED: "true", TO: f"only={name}", **annotations}}
        return {"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": metadata, "stringData": {"a": "b"}}

    first = made(admin.post(secrets, secret(name)))
    assert SECRET in first.headers["warning"]
    report(admin, f"{secrets}/{name}", lambda told: "SecretNotConfirmed" in told.get("reasons", {}))
    assert owner.get(f"{secrets}/{name}").status == 404
    assert admin.patch(f"{secrets}/{name}", {"metadata": {"annotations": {SECRET: "true"}}}).status == 200
    appears(owner, f"{secrets}/{name}")
    token = secret(f"{name}-token", "bootstrap.kubernetes.io/token", **{SECRET: "true"})
    made(admin.post(secrets, token))
    report(admin, f"{secrets}/{name}-token", lambda told: "Credential" in told.get("reasons", {}))
    assert owner.get(f"{secrets}/{name}-token").status == 404


def test_a_published_role_rules_in_every_tenants_space(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    """Objects without a namespace are published as well; what RBAC reads of them counts at once."""
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    metadata = {"name": name, "annotations": {PUBLISHED: "true"}}
    kind = "rbac.authorization.k8s.io/v1"
    auditor = server.user(tenant, "audrey")
    assert auditor.get(f"{MAPS}/nothing").status == 403
    made(
        admin.post(
            f"{RBAC}/clusterroles", {"apiVersion": kind, "kind": "ClusterRole", "metadata": metadata, "rules": rules}
        )
    )
    binding = {
        "apiVersion": kind,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "audrey"}],
    }
    made(admin.post(f"{RBAC}/clusterrolebindings", binding))
    assert eventually(lambda: auditor.get(f"{MAPS}/nothing").status == 404)
    assert owner.delete(f"{RBAC}/clusterrolebindings/{name}").status == 403
    assert admin.delete(f"{RBAC}/clusterrolebindings/{name}").status == 200
    assert eventually(lambda: auditor.get(f"{MAPS}/nothing").status == 403)
    assert admin.delete(f"{RBAC}/clusterroles/{name}").status == 200


def test_a_namespace_is_published_with_what_is_in_it_and_a_tenants_own_work_in_it_is_kept(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    """When it is published no more it goes where the tenant has nothing in it, and else is the tenant's own."""
    inside = f"/api/v1/namespaces/{name}/configmaps"
    other = server.user(tenant_named(server, f"t-{uuid4().hex[:8]}"), "otto", "tenantry:owner")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made(admin.post("/api/v1/namespaces", namespace))
    made(admin.post(inside, published("rules")))
    report(admin, f"{inside}/rules", lambda told: "NamespaceNotFound" in told.get("reasons", {}))
    assert admin.patch(f"/api/v1/namespaces/{name}", {"metadata": {"annotations": {PUBLISHED: "true"}}}).status == 200
    for caller in (owner, other):
        appears(caller, f"{inside}/rules")
        appears(caller, f"/api/v1/namespaces/{name}/serviceaccounts/default")
        assert caller.delete(f"/api/v1/namespaces/{name}").status == 403
    made(owner.post(inside, config_map("mine")))
    assert admin.patch(f"/api/v1/namespaces/{name}", {"metadata": {"annotations": {PUBLISHED: None}}}).status == 200
    assert disappears(other, f"/api/v1/namespaces/{name}")
    kept = appears(owner, f"/api/v1/namespaces/{name}", lambda body: ORIGIN not in body["metadata"]["labels"])
    assert kept["status"]["phase"] == "Active"
    assert owner.get(f"{inside}/mine").status == 200
    assert owner.get(f"{inside}/rules").status == 200


def test_copies_go_with_a_tenants_namespace_and_come_back_with_it(admin: Caller, owner: Caller, name: str) -> None:
    """A namespace is its tenant's to delete; what is published stays published to one of the name."""
    inside = f"/api/v1/namespaces/{name}/configmaps"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for caller in (admin, owner):
        made(caller.post("/api/v1/namespaces", namespace))
    made(admin.post(inside, published("rules")))
    first = appears(owner, f"{inside}/rules")
    assert owner.delete(f"/api/v1/namespaces/{name}").status == 200
    assert disappears(owner, f"/api/v1/namespaces/{name}")
    made(owner.post("/api/v1/namespaces", namespace))
    assert appears(owner, f"{inside}/rules")["metadata"]["uid"] != first["metadata"]["uid"]


def test_what_is_published_to_a_tenant_takes_nothing_of_its_quota(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    quotas = "/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"
    path = f"/clusters/root:{tenant}{quotas}"
    labelled(admin, tenant, only=name)
    namespaces = owner.get("/api/v1/namespaces").body["items"]
    for namespace in namespaces:
        completed(owner, namespace["metadata"]["name"])
    own = len(namespaces)
    assert admin.patch(path, {"spec": {"hard": {"count/configmaps": str(own + 1)}}}).status == 200
    for number in range(3):
        made(admin.post(MAPS, published(f"{name}-{number}", **{TO: f"only={name}"})))
        appears(owner, f"{MAPS}/{name}-{number}")
    made(owner.post(MAPS, config_map("mine")))
    assert owner.post(MAPS, config_map("more")).status == 403
    assert owner.get(quotas).body["status"]["used"]["count/configmaps"] == str(own + 1)
    hard = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"configmaps": "5"}}}
    own = {"metadata": {"name": f"{name}-q", "annotations": {PUBLISHED: "true", TO: f"only={name}"}}}
    bounds = "/api/v1/namespaces/default/resourcequotas"
    made(admin.post(bounds, {**hard, **own}))
    at = f"{bounds}/{name}-q"
    appears(owner, at, lambda body: body.get("status", {}).get("used") == {"configmaps": "2"})
    assert admin.patch(at, {"spec": {"hard": {"configmaps": "1"}}}).status == 200
    appears(owner, at, lambda body: body["status"]["hard"] == {"configmaps": "1"})
    assert admin.delete(at).status == 200


def test_kinds_that_tenants_do_not_have_are_told_of_and_definitions_are_shared_not_copied(
    admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    labelled(admin, tenant, only=name)
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {PUBLISHED: "true", TO: f"only={name}"}},
    }
    made(admin.post("/api/v1/nodes", node))
    report(
        admin,
        f"/api/v1/nodes/{name}",
        lambda told: told.get("reasons", {}).get("KindNotServed", {}).get("first") == [tenant],
    )
    group = f"{name}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rules.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made(admin.post(crds, definition))
    rules = f"/apis/{group}/v1/rules"
    assert eventually(lambda: admin.get(rules).status == 200)
    rule = {
        "apiVersion": f"{group}/v1",
        "kind": "Rule",
        "metadata": {"name": "a", "annotations": {PUBLISHED: "true"}},
        "spec": {"x": 1},
    }
    made(admin.post(rules, rule))
    report(admin, f"{rules}/a", lambda told: "KindNotServed" in told.get("reasons", {}))
    chosen = {"metadata": {"annotations": {PUBLISHED: "true", TO: "a=b"}}}
    assert admin.patch(f"{crds}/rules.{group}", chosen).status == 422
    assert admin.patch(f"{crds}/rules.{group}", {"metadata": {"annotations": {PUBLISHED: "true"}}}).status == 200
    assert appears(owner, f"{rules}/a")["spec"] == {"x": 1}
    assert owner.get(f"{crds}/rules.{group}").status == 404
    assert owner.patch(f"{rules}/a", {"spec": {"x": 2}}).status == 403
    assert admin.patch(f"{crds}/rules.{group}", {"metadata": {"annotations": {PUBLISHED: None}}}).status == 200
    assert disappears(owner, f"{rules}/a")


def test_another_process_goes_on_where_one_was_killed(tmp_path: Path, name: str) -> None:
    """The first to come leads; whoever leads next finds what is due from the objects."""
    with migrated("takeover") as database:
        first, second = (start(tmp_path / each, database) for each in ("first", "second"))
        try:
            tenant_named(second, "acme")
            owner = second.user("acme", "olga", "tenantry:owner")
            made(second.admin.post(MAPS, published(name)))
            appears(owner, f"{MAPS}/{name}")
            made(second.admin.post(MAPS, published(f"{name}-late")))
            first.process.kill()
            first.process.wait()
            appears(owner, f"{MAPS}/{name}-late")
            assert second.admin.delete(f"{MAPS}/{name}").status == 200
            assert disappears(owner, f"{MAPS}/{name}")
        finally:
            stop(second)


def test_a_suspended_tenants_space_is_kept_as_it_must_be(
    server: Server, admin: Caller, tenant: str, owner: Caller, name: str
) -> None:
    """Its people are shut out; when they come back, they find what is published now and nothing that is not."""
    at = f"{MAPS}/{name}"
    old = f"{name}-old"
    labelled(admin, tenant, only=name)
    made(admin.post(MAPS, published(old, **{TO: f"only={name}"})))
    appears(owner, f"{MAPS}/{old}")
    with server.locked(f"root:{tenant}"):
        assert eventually(lambda: owner.get(f"{MAPS}/{old}").status == 403)
        assert admin.delete(f"{MAPS}/{old}").status == 200
        made(admin.post(MAPS, published(name, **{TO: f"only={name}"})))
        report(admin, at, lambda told: told == {"tenants": 1, "missing": 0, "reasons": {}})
    assert eventually(lambda: owner.get(at).status == 200)
    assert disappears(owner, f"{MAPS}/{old}")
