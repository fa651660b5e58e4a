"""The quota of a tenant, over all its namespaces and workspaces, whichever way an object is written (AD1 to AD4, P8)."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, another, start
from tests.gateway.test_isolation import SAMPLES
from tests.gateway.test_quotas import pod, quota

KIND = "/apis/tenancy.tenantry.io/v1alpha1/tenantquotas"
ONE = f"{KIND}/quota"
ROUNDS = int(os.environ.get("TENANT_QUOTA_ROUNDS", "4"))
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / "v1.36.0-local"


def bound(server: Server, tenant: str, hard: dict[str, str]) -> Any:
    """The operator's change of the quota."""
    answer = server.admin.patch(f"/clusters/root:{tenant}{ONE}", {"spec": {"hard": {"pods": None, **hard}}})
    assert answer.status == 200, answer.body
    return answer


def used(caller: Caller) -> dict[str, str]:
    return dict(caller.get(ONE).body["status"]["used"])


def made_namespace(caller: Caller, name: str) -> str:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert caller.post("/api/v1/namespaces", body).status == 201
    return f"/api/v1/namespaces/{name}"


def test_every_tenant_has_one_that_operators_change_and_nobody_removes(
    server: Server, tenant: str, owner: Caller
) -> None:
    assert [each["metadata"]["name"] for each in owner.get(KIND).body["items"]] == ["quota"]
    assert owner.get(ONE).body["spec"]["hard"]["pods"] == "10000"
    assert eventually(lambda: used(owner).get("pods") == "0")
    body = {"apiVersion": "tenancy.tenantry.io/v1alpha1", "kind": "TenantQuota", "metadata": {"name": "quota"}}
    for caller, at in ((owner, ""), (server.admin, f"/clusters/root:{tenant}")):
        assert caller.delete(f"{at}{ONE}").status == 403
        assert caller.delete(f"{at}{KIND}").status == 403
        assert caller.post(f"{at}{KIND}", {**body, "metadata": {"name": "second"}}).status == 403
    for change in ({"spec": {"hard": {"pods": "9"}}}, {"metadata": {"labels": {"a": "b"}}}):
        assert owner.patch(ONE, change).status == 403
        assert owner.patch(f"{ONE}/status", {"status": {"used": {"pods": "0"}}}).status == 403
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "update", "group": "tenancy.tenantry.io", "resource": "tenantquotas"}},
    }
    answer = owner.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).body["status"]
    assert answer["allowed"] is False
    wrong = server.admin.patch(f"/clusters/root:{tenant}{ONE}", {"spec": {"hard": {"pods": "-1", "no name": "1"}}})
    assert wrong.status == 422
    assert bound(server, tenant, {"pods": "3"}).body["status"] == {
        "hard": {**owner.get(ONE).body["spec"]["hard"]},
        "used": {"persistentvolumeclaims": "0", "pods": "0", "services.loadbalancers": "0", "services.nodeports": "0"},
    }


def test_a_write_passes_only_if_neither_quota_is_exceeded_and_a_refusal_names_the_amounts_of_both(
    server: Server, tenant: str, owner: Caller
) -> None:
    bound(server, tenant, {"requests.cpu": "4"})
    first, second = made_namespace(owner, "first"), made_namespace(owner, "second")
    for namespace in (first, second):
        assert owner.post(f"{namespace}/resourcequotas", quota({"requests.cpu": "3"})).status == 201
    assert owner.post(f"{first}/pods", pod("a", "3")).status == 201
    own = owner.post(f"{first}/pods", pod("b", "1"))
    assert own.body["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=3, limited: requests.cpu=3; '
        "requests.cpu: asked 1, 3 of 3 used in the namespace, 3 of 4 in the tenant"
    )
    refused = owner.post(f"{second}/pods", pod("b", "2"))
    assert refused.status == 403
    assert refused.body["message"] == (
        f'pods "b" is forbidden: exceeded quota: tenant {tenant}, requested: requests.cpu=2, used: requests.cpu=3, '
        "limited: requests.cpu=4; requests.cpu: asked 2, 0 of 3 used in the namespace, 3 of 4 in the tenant"
    )
    cause = {"reason": "QuotaExceeded", "field": "requests.cpu"}
    for answer, said in (
        (own, "asked 1, 3 of 3 used in the namespace, 3 of 4 in the tenant"),
        (refused, "asked 2, 0 of 3 used in the namespace, 3 of 4 in the tenant"),
    ):
        assert answer.body["details"]["causes"] == [{**cause, "message": said}]
    assert owner.post(f"{second}/pods", pod("b", "1")).status == 201
    assert used(owner)["requests.cpu"] == "4"
    assert owner.delete(f"{first}/pods/a").status == 200
    assert used(owner)["requests.cpu"] == "1"


def scoped(hard: dict[str, str | None], **scopes: Any) -> dict[str, Any]:
    """A change of the quota to what is in scopes, which bounds nothing else any more."""
    others = dict.fromkeys(("persistentvolumeclaims", "services.loadbalancers", "services.nodeports"))
    return {"spec": {"hard": {**others, **hard}, **scopes}}


def test_with_scopes_it_counts_and_bounds_what_is_in_them_alone(server: Server, tenant: str, owner: Caller) -> None:
    """AD3: as in a ResourceQuota; an update may bring an object into them."""
    one, path = f"/clusters/root:{tenant}{ONE}", "/api/v1/namespaces/default/pods"

    def ending(name: str) -> dict[str, Any]:
        body = pod(name)
        return {**body, "spec": {**body["spec"], "activeDeadlineSeconds": 3600}}

    wrong = server.admin.patch(one, {"spec": {"scopes": ["Terminating"]}})
    assert wrong.status == 422 and "unsupported scope applied to resource" in wrong.body["message"]
    assert server.admin.patch(one, scoped({"pods": "1"}, scopes=["Terminating"])).status == 200
    for name in "ab":
        assert owner.post(path, pod(name)).status == 201
    assert owner.post(path, ending("c")).status == 201
    assert used(owner) == {"pods": "1"}
    assert "used: pods=1, limited: pods=1" in owner.post(path, ending("d")).body["message"]
    assert owner.patch(f"{path}/a", {"spec": {"activeDeadlineSeconds": 3600}}).status == 403
    assert owner.delete(f"{path}/c").status == 200
    assert owner.patch(f"{path}/a", {"spec": {"activeDeadlineSeconds": 3600}}).status == 200
    assert used(owner) == {"pods": "1"}
    for name, many in (("NotBestEffort", "2"), ("BestEffort", "0")):
        selector = {"matchExpressions": [{"scopeName": name, "operator": "Exists"}]}
        assert server.admin.patch(one, scoped({"pods": "9"}, scopes=None, scopeSelector=selector)).status == 200
        assert used(owner) == {"pods": many}


def test_below_what_is_used_nothing_is_taken_away_and_nothing_more_admitted(
    server: Server, tenant: str, owner: Caller
) -> None:
    path = "/api/v1/namespaces/default/pods"
    for name in "abc":
        assert owner.post(path, pod(name)).status == 201
    lowered = bound(server, tenant, {"pods": "1"})
    assert "pods: 3 used, 1 allowed" in lowered.headers["warning"]
    assert "used: pods=3, limited: pods=1" in owner.post(path, pod("d")).body["message"]
    assert owner.patch(f"{path}/a", {"metadata": {"labels": {"still": "changes"}}}).status == 200
    for name in "abc":
        assert owner.delete(f"{path}/{name}").status == 200
    assert owner.post(path, pod("d")).status == 201


def test_forty_creations_at_once_in_four_processes_are_never_one_too_many(
    server: Server, tenant: str, owner: Caller, tmp_path: Path
) -> None:
    """TENANT_QUOTA_ROUNDS rounds, four unless it says otherwise."""
    namespaces = [made_namespace(owner, f"n{number}") for number in range(4)]
    bound(server, tenant, {"pods": "7", "requests.cpu": "6500m"})
    with another(server, tmp_path / "data", "--workers", "4") as four, ThreadPoolExecutor(20) as pool:
        caller = four.user(tenant, "olga", "tenantry:owner")
        for _ in range(ROUNDS):
            made = [f"{namespaces[number % 4]}/pods/p{number}" for number in range(40)]
            answers = list(
                pool.map(lambda at: caller.post(at.rpartition("/")[0], pod(at.rpartition("/")[2])).status, made)
            )
            assert (answers.count(201), answers.count(403)) == (6, 34), answers
            assert used(owner) == {**used(owner), "pods": "6", "requests.cpu": "6"}
            gone = [at for at, status in zip(made, answers, strict=True) if status == 201]
            assert [answer.status for answer in pool.map(caller.delete, gone)] == [200] * 6
            assert used(owner) == {**used(owner), "pods": "0", "requests.cpu": "0"}


def test_a_server_that_dies_in_between_loses_nothing_of_it(
    server: Server, tenant: str, owner: Caller, tmp_path: Path
) -> None:
    bound(server, tenant, {"pods": "30"})
    dying = start(tmp_path / "data", server.database)
    caller = dying.user(tenant, "olga", "tenantry:owner")

    def create(number: int) -> None:
        if number == 15:
            dying.process.kill()
        with suppress(OSError):
            caller.post("/api/v1/namespaces/default/pods", pod(f"p{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(30)))
    dying.process.wait()

    def there() -> int:
        return len(owner.get("/api/v1/namespaces/default/pods").body["items"])

    # What the database was still at when who had asked died is there a moment later, and counted with it.
    rest = [owner.post("/api/v1/namespaces/default/pods", pod(f"q{number}")).status for number in range(31)]
    assert 403 in rest
    assert eventually(lambda: there() == int(used(owner)["pods"]) == there())
    assert there() == 30


def test_what_controllers_make_and_collect_and_what_workspaces_hold_counts(
    server: Server, tenant: str, owner: Caller
) -> None:
    bound(server, tenant, {"count/secrets": "3", "count/namespaces": "20", "count/serviceaccounts": "50"})
    accounts = int(used(owner)["count/serviceaccounts"])
    namespace = made_namespace(owner, "counted")
    assert used(owner)["count/serviceaccounts"] == str(accounts + 1)
    keeper = owner.post(f"{namespace}/configmaps", config_map("keeper")).body["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": keeper["uid"]}
    for name in ("one", "two"):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": [reference]}}
        assert owner.post(f"{namespace}/secrets", body).status == 201
    assert used(owner)["count/secrets"] == "2"
    assert owner.delete(f"{namespace}/configmaps/keeper").status == 200
    assert eventually(lambda: used(owner)["count/secrets"] == "0")
    before = int(used(owner)["count/namespaces"])
    below = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "below"}}
    assert owner.post("/apis/tenancy.kcp.io/v1alpha1/workspaces", below).status == 201
    assert eventually(lambda: int(used(owner)["count/namespaces"]) > before)
    inside = f"/clusters/root:{tenant}:below/api/v1/namespaces/default/secrets"
    secrets = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}} for name in "abcd"]
    assert eventually(lambda: owner.post(inside, secrets[0]).status == 201)
    assert [owner.post(inside, secret).status for secret in secrets[1:]] == [201, 201, 403]


def test_usage_rules_count_what_kubernetes_does_not_and_more_kinds_are_refused_where_configured(
    server: Server, tenant: str, owner: Caller, tmp_path: Path
) -> None:
    rules = [
        {"name": "example.com/bandwidth", "resource": "pods", "annotation": "kubernetes.io/egress-bandwidth"},
        {
            "name": "example.com/rules",
            "apiGroup": "networking.k8s.io",
            "resource": "ingresses",
            "field": "spec.defaultBackend.service.port.number",
        },
    ]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    told = {
        "apiVersion": "tenancy.tenantry.io/v1alpha1",
        "kind": "TenantQuotaConfiguration",
        "hard": {"pods": "5"},
        "usage": rules,
    }
    scope = {
        "apiVersion": "tenancy.tenantry.io/v1alpha1",
        "kind": "TenantScopeConfiguration",
        "refused": ["nodes", "daemonsets.apps", "jobs.batch", "secrets"],
    }
    plugins = [{"name": "TenantQuota", "configuration": told}, {"name": "TenantScope", "configuration": scope}]
    file = tmp_path / "admission.yaml"
    file.write_text(yaml.safe_dump({**kind, "plugins": plugins}))
    # The other server knows no such rules: it has counted before the quota names them.
    assert eventually(lambda: used(owner).get("pods") == "0")
    with another(server, tmp_path / "data", f"--admission-control-config-file={file}") as second:
        hard = {"example.com/bandwidth": "100M", "example.com/rules": "100"}
        assert bound(second, tenant, hard).status == 200
        caller = second.user(tenant, "olga", "tenantry:owner")
        wide = pod("wide")
        wide["metadata"]["annotations"] = {"kubernetes.io/egress-bandwidth": "60M"}
        path = "/api/v1/namespaces/default/pods"
        assert caller.post(path, wide).status == 201
        wide["metadata"]["name"] = "wider"
        refused = caller.post(path, wide)
        assert refused.status == 403
        assert "requested: example.com/bandwidth=60M, used: example.com/bandwidth=60M" in refused.body["message"]
        assert caller.post(path, pod("narrow")).status == 201
        for wanted, status in (("100G", 403), ("41M", 403), ("40M", 200)):
            annotations = {"annotations": {"kubernetes.io/egress-bandwidth": wanted}}
            told = {"metadata": annotations, "status": {"phase": "Running"}}
            assert caller.patch(f"{path}/narrow/status", told).status == status, wanted
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "refused-elsewhere"}}
        assert caller.post("/api/v1/namespaces/default/secrets", secret).status == 403
        assert second.admin.post("/api/v1/namespaces/default/secrets", secret).status == 201
        backend = {"service": {"name": "s", "port": {"number": 90}}}
        ingress = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "i"},
            "spec": {"defaultBackend": backend},
        }
        ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
        assert caller.post(ingresses, ingress).status == 201
        backend["service"]["port"]["number"] = 11
        assert caller.post(ingresses, {**ingress, "metadata": {"name": "j"}}).status == 403


def counted_of(version: str, kind: str) -> str | None:
    """A number in the status of a built-in kind."""
    group, _, name = version.rpartition("/")
    for schema in RAW.values():
        served = schema.get("x-kubernetes-group-version-kind", ())
        if {"group": group, "version": name, "kind": kind} in served:
            reference = schema.get("properties", {}).get("status", {}).get("$ref", "")
            properties = RAW.get(reference.rpartition("/")[2], {}).get("properties", {})
            # An optional one may be null as well.
            numbers = [field for field, each in properties.items() if "integer" in each.get("type", ())]
            return "observedGeneration" if "observedGeneration" in numbers else next(iter(numbers), None)
    return None


RAW: dict[str, Any] = json.loads((SCHEMAS / "_definitions.json").read_bytes())["$defs"]


def test_a_status_is_counted_and_never_refused(server: Server, tenant: str, owner: Caller, tmp_path: Path) -> None:
    """It tells what is so, as in Kubernetes, but that a pod runs again: of every kind that has one, by every verb, where nothing more is admitted."""
    kinds = {(body["apiVersion"], body["kind"]): body for body in reversed(SAMPLES) if "system" not in body}
    found = []
    for version in sorted({version for version, _ in kinds}):
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resources = owner.get(root).body.get("resources", ())
        parts = {resource["name"] for resource in resources}
        for resource in resources:
            body = kinds.get((version, resource["kind"]))
            if body is not None and f"{resource['name']}/status" in parts and "create" in resource["verbs"]:
                place = "/namespaces/default" if resource["namespaced"] else ""
                found.append((f"{root}{place}/{resource['name']}", resource["name"], body))
    rules = [
        {
            "name": f"example.com/{plural}",
            **({"apiGroup": body["apiVersion"].partition("/")[0]} if "/" in body["apiVersion"] else {}),
            "resource": plural,
            "field": f"status.{field}",
        }
        for _, plural, body in found
        if (field := counted_of(body["apiVersion"], body["kind"])) is not None
    ]
    assert len(rules) >= 8, rules
    plugin = {
        "apiVersion": "tenancy.tenantry.io/v1alpha1",
        "kind": "TenantQuotaConfiguration",
        "hard": {"pods": "50"},
        "usage": rules,
    }
    file = tmp_path / "admission.yaml"
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "plugins": [{"name": "TenantQuota", "configuration": plugin}]}))
    assert eventually(lambda: used(owner).get("pods") == "0")
    with another(server, tmp_path / "data", f"--admission-control-config-file={file}") as second:
        caller = second.user(tenant, "olga", "tenantry:owner")
        made = []
        for path, plural, body in found:
            group = body["apiVersion"].rpartition("/")[0]
            answer = caller.post(path, {**body, "metadata": {**body["metadata"], "name": "told"}})
            if answer.status == 201:
                made.append((f"{path}/told/status", plural, group, body))
        assert len(made) >= 12, [plural for _, plural, _, _ in made]
        names = {f"count/{plural}.{group}".removesuffix(".") for _, plural, group, _ in made}
        names |= {rule["name"] for rule in rules} | {"pods"}
        assert bound(second, tenant, dict.fromkeys(names, "0")).status == 200
        told = 0
        for path, plural, _, body in made:
            field = counted_of(body["apiVersion"], body["kind"])
            change = {} if field is None else {field: 3}
            conditions = {"status": {"conditions": [], **change}} if plural != "namespaces" else {"status": change}
            for answer in (
                caller.patch(path, {"status": change}),
                caller.patch(path, conditions, "strategic-merge"),
                caller.put(path, caller.get(path).body),
            ):
                assert answer.status == 200, (path, answer.body)
            told += int(field is not None and caller.get(path).body["status"].get(field) == 3)
        assert told >= 8, "it is kept"
        more = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "more"}, "spec": {"ports": [{"port": 80}]}}
        assert caller.post("/api/v1/namespaces/default/services", more).status == 403


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
@pytest.mark.parametrize("method", ["merge", "strategic-merge", "json", "apply", "put"])
def test_what_has_ended_runs_again_only_where_the_quota_has_room(
    server: Server, tenant: str, owner: Caller, ended: str, method: str
) -> None:
    """AD1: else whoever says that pods have ended, and then that they have not, has as many as it likes."""
    path = "/api/v1/namespaces/default/pods"

    def told(name: str, phase: str) -> Any:
        at = f"{path}/{name}/status"
        if method == "put":
            return owner.put(at, {**owner.get(at).body, "status": {"phase": phase}})
        if method == "json":
            return owner.patch(at, [{"op": "add", "path": "/status/phase", "value": phase}], "json")
        if method == "apply":
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": {"phase": phase}}
            return owner.patch(at, body, "apply", fieldManager="test", force="true")
        return owner.patch(at, {"status": {"phase": phase}}, method)

    bound(server, tenant, {"pods": "1", "count/pods": "9"})
    for name in ("a", "b"):
        assert owner.post(path, pod(name)).status == 201
        assert told(name, ended).status == 200
    assert told("a", "Running").status == 200
    for phase in ("Running", "Pending", "Unknown"):
        refused = told("b", phase)
        assert refused.status == 403, (phase, refused.body)
        assert "pods: asked 1, 1 of 1 used in the tenant" in refused.body["message"]
    assert owner.get(f"{path}/b").body["status"]["phase"] == ended
    assert (used(owner)["pods"], used(owner)["count/pods"]) == ("1", "2")
    # What else is told of it, and of what runs though there is no room for it, is so.
    assert told("b", "Failed").status == 200
    bound(server, tenant, {"pods": "0"})
    assert told("a", "Pending").status == 200
    assert told("a", ended).status == 200
    bound(server, tenant, {"pods": "1"})
    assert told("b", "Running").status == 200


def test_the_namespaces_own_quota_refuses_no_status(owner: Caller) -> None:
    """As in Kubernetes, whose ResourceQuota does not look at statuses."""
    path = "/api/v1/namespaces/default/pods"
    for name in ("a", "b"):
        assert owner.post(path, pod(name)).status == 201
        assert owner.patch(f"{path}/{name}/status", {"status": {"phase": "Succeeded"}}).status == 200
    assert owner.post("/api/v1/namespaces/default/resourcequotas", quota({"pods": "1"})).status == 201
    for name in ("a", "b"):
        assert owner.patch(f"{path}/{name}/status", {"status": {"phase": "Running"}}).status == 200


@pytest.mark.parametrize("method", ["merge", "strategic-merge", "apply", "put"])
@pytest.mark.parametrize("of", ["tenant", "namespace"])
def test_what_is_written_beside_a_status_is_a_wish_like_any_other(
    server: Server, tenant: str, owner: Caller, of: str, method: str
) -> None:
    """AD1, AD2: metadata goes along with a status, and says how much a claim takes, and of what."""
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": claim}
    assert owner.post(path, body).status == 201
    gold = {f"gold.storageclass.storage.k8s.io/{name}": "0" for name in ("persistentvolumeclaims", "requests.storage")}
    if of == "tenant":
        bound(server, tenant, gold)
    else:
        assert owner.post("/api/v1/namespaces/default/resourcequotas", quota(gold)).status == 201

    def told(annotations: dict[str, str], status: dict[str, Any]) -> Any:
        at, metadata = f"{path}/a/status", {"name": "a", "annotations": annotations}
        if method == "put":
            return owner.put(at, {**owner.get(at).body, "metadata": metadata, "status": status})
        if method == "apply":
            applied = {**body, "metadata": metadata, "status": status}
            applied.pop("spec")
            return owner.patch(at, applied, "apply", fieldManager="test", force="true")
        return owner.patch(at, {"metadata": metadata, "status": status}, method)

    refused = told({"volume.beta.kubernetes.io/storage-class": "gold"}, {"phase": "Bound"})
    assert (refused.status, "exceeded quota" in refused.body["message"]) == (403, True), refused.body
    # What a status tells, and a word beside it that nobody counts, is so.
    assert told({"a": "b"}, {"phase": "Bound", "allocatedResources": {"storage": "9Gi"}}).status == 200
