"""Quotas and limit ranges: exact under concurrency, whichever way an object is written (AD2, P8)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from access.admission.rulesinforce import ENTRIES_MAX, POLICIES_MAX, RULES_MAX
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, another


def quota(hard: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}


def pod(name: str, cpu: str = "1") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def used(caller: Caller, namespace: str) -> dict[str, str]:
    return dict(caller.get(f"/api/v1/namespaces/{namespace}/resourcequotas/q").body["status"]["used"])


def test_quota_shows_at_once_what_is_there_already(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/configmaps", config_map("one"))
    status = alice.post(f"{path}/resourcequotas", quota({"configmaps": "3", "requests.cpu": "4"})).body["status"]
    assert status["hard"] == {"configmaps": "3", "requests.cpu": "4"}
    # The other is that of the server's certificates.
    assert status["used"] == {"configmaps": "2", "requests.cpu": "0"}


def test_devices_are_counted_by_their_class(alice: Caller, namespace: str) -> None:
    """AD2, AD3: of claims that are made, changed by nobody, and deleted."""
    path, name = f"/api/v1/namespaces/{namespace}", "gpu.deviceclass.resource.k8s.io/devices"
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"

    def claim(called: str, **exactly: Any) -> dict[str, Any]:
        requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": called},
            "spec": {"devices": {"requests": requests}},
        }

    assert alice.post(f"{path}/resourcequotas", quota({name: "3"})).status == 201
    assert alice.post(claims, claim("two", count=2)).status == 201
    assert used(alice, namespace) == {name: "2"}
    for refused in (claim("more", count=2), claim("all", allocationMode="All")):
        answer = alice.post(claims, refused)
        assert answer.status == 403 and f"used: {name}=2, limited: {name}=3" in answer.body["message"], answer.body
    assert alice.post(claims, claim("one")).status == 201
    assert alice.delete(f"{claims}/two").status == 200
    assert used(alice, namespace) == {name: "1"}


def test_a_namespace_has_no_more_of_them_than_each_write_may_be_counted_in(alice: Caller, namespace: str) -> None:
    """DOS-03: every write reads, counts in and stores each of them, in one statement that others wait for."""
    path, bounds = f"/api/v1/namespaces/{namespace}", {"limits": [{"type": "Container", "max": {"cpu": "4"}}]}
    wide = quota({f"count/widgets.x{number}.example.org": "1" for number in range(ENTRIES_MAX + 1)})
    assert alice.post(f"{path}/resourcequotas", wide).status == 403
    long = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "long"}, "spec": {"limits": []}}
    long["spec"] = {"limits": [{"type": "Container", "max": {"cpu": "4"}}] * (ENTRIES_MAX + 1)}
    assert alice.post(f"{path}/limitranges", long).status == 403
    made = {
        "resourcequotas": {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "7"}}},
        "limitranges": {"apiVersion": "v1", "kind": "LimitRange", "spec": bounds},
    }
    for plural, body in made.items():
        answers = [
            alice.post(f"{path}/{plural}", {**body, "metadata": {"name": f"x{n}"}}) for n in range(RULES_MAX + 1)
        ]
        assert [answer.status for answer in answers] == [201] * RULES_MAX + [403]
        assert f"at most {RULES_MAX} {plural}" in answers[-1].body["message"]
    assert alice.post(f"{path}/pods", pod("fits")).status == 201


def test_a_space_has_no_more_policies_than_each_knock_may_ask(gina: Caller) -> None:
    path = "/apis/abac.authorization.kubernetes.io/v1beta1/policies"
    spec = {"tenant": "acme", "user": "pat", "resource": "configmaps", "apiGroup": "", "namespace": "*"}
    body = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}
    there = len(gina.get(path).body["items"])
    answers = [gina.post(path, {**body, "metadata": {"name": f"x{n}"}}) for n in range(POLICIES_MAX - there + 1)]
    assert {answer.status for answer in answers[:-1]} == {201}
    assert (answers[-1].status, f"at most {POLICIES_MAX} policies" in answers[-1].body["message"]) == (403, True)
    for number in range(len(answers) - 1):
        gina.delete(f"{path}/x{number}")


def test_forty_parallel_creations_never_pass_the_quota(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"pods": "7", "requests.cpu": "100"}))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: alice.post(f"{path}/pods", pod(f"p{i}")), range(40)))
    statuses = [answer.status for answer in answers]
    assert (statuses.count(201), statuses.count(403)) == (7, 33)
    refused = next(answer for answer in answers if answer.status == 403)
    assert "exceeded quota: q, requested: pods=1, used: pods=7, limited: pods=7" in refused.body["message"]
    assert len(alice.get(f"{path}/pods").body["items"]) == 7
    assert used(alice, namespace) == {"pods": "7", "requests.cpu": "7"}


def test_two_servers_share_one_quota(server: Server, alice: Caller, namespace: str, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"pods": "5"}))
    with another(server, tmp_path / "data") as second:
        admin = second.admin
        there = f"/api/v1/tenants/acme/namespaces/{namespace}/pods"
        with ThreadPoolExecutor(16) as pool:
            answers = list(
                pool.map(
                    lambda i: (
                        (alice.post(f"{path}/pods", pod(f"p{i}")) if i % 2 else admin.post(there, pod(f"p{i}"))).status
                    ),
                    range(24),
                )
            )
    assert (answers.count(201), answers.count(403)) == (5, 19)
    assert used(alice, namespace) == {"pods": "5"}


def test_deletions_give_back_what_they_took(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"pods": "2", "requests.cpu": "3"}))
    assert alice.post(f"{path}/pods", pod("a", "2")).status == 201
    assert alice.post(f"{path}/pods", pod("b", "2")).status == 403
    assert alice.delete(f"{path}/pods/a").status == 200
    assert used(alice, namespace) == {"pods": "0", "requests.cpu": "0"}
    assert alice.post(f"{path}/pods", pod("b", "2")).status == 201


def test_collected_dependents_give_back_what_they_took(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"secrets": "5"}))
    owner = alice.post(f"{path}/configmaps", config_map("owner")).body["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "ownerReferences": [reference]}}
    assert alice.post(f"{path}/secrets", secret).status == 201
    assert used(alice, namespace) == {"secrets": "1"}
    alice.delete(f"{path}/configmaps/owner")
    assert eventually(lambda: used(alice, namespace) == {"secrets": "0"})


def test_dry_run_and_refused_writes_take_nothing(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"configmaps": "2"}))
    assert alice.post(f"{path}/configmaps", config_map("a"), dryRun="All").status == 201
    assert used(alice, namespace) == {"configmaps": "1"}
    assert alice.post(f"{path}/configmaps", config_map("a")).status == 201
    assert alice.post(f"{path}/configmaps", config_map("b"), dryRun="All").status == 403
    assert alice.post(f"{path}/configmaps", config_map("a")).status in (403, 409)
    assert used(alice, namespace) == {"configmaps": "2"}


def test_pod_without_requests_is_told_what_the_quota_wants(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    alice.post(f"{path}/resourcequotas", quota({"limits.memory": "1Gi"}))
    refused = alice.post(f"{path}/pods", pod("plain"))
    assert refused.status == 403
    assert "must specify limits.memory" in refused.body["message"]
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "256Mi"}, "max": {"memory": "512Mi"}}]},
    }
    assert alice.post(f"{path}/limitranges", limit_range).status == 201
    made = alice.post(f"{path}/pods", pod("plain"))
    assert made.status == 201
    assert made.body["spec"]["containers"][0]["resources"]["limits"] == {"memory": "256Mi"}
    assert used(alice, namespace) == {"limits.memory": "256Mi"}
    large = pod("large")
    large["spec"]["containers"][0]["resources"]["limits"] = {"memory": "768Mi"}
    refused = alice.post(f"{path}/pods", large)
    assert (refused.status, "maximum memory usage per Container is 512Mi" in refused.body["message"]) == (403, True)


def test_a_limit_range_holds_nobody_who_goes(alice: Caller, namespace: str) -> None:
    """AD1: who ends what holds a claim writes it, however large it is."""
    path = f"/api/v1/namespaces/{namespace}"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    claim = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}, "spec": spec}
    assert alice.post(f"{path}/persistentvolumeclaims", claim).status == 201
    bounds = {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}
    assert alice.post(f"{path}/limitranges", {"metadata": {"name": "small"}, "spec": bounds}).status == 201
    let_go = {"metadata": {"finalizers": None}}
    assert alice.patch(f"{path}/persistentvolumeclaims/c", let_go).status == 403
    assert alice.delete(f"{path}/persistentvolumeclaims/c").body["metadata"]["deletionTimestamp"]
    assert alice.patch(f"{path}/persistentvolumeclaims/c", let_go).status == 200
    assert alice.get(f"{path}/persistentvolumeclaims/c").status == 404


def test_tenant_cannot_write_what_is_used(alice: Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    alice.post(path, quota({"configmaps": "1"}))
    alice.patch(f"{path}/q/status", {"status": {"used": {"configmaps": "-100"}}})
    assert used(alice, namespace) == {"configmaps": "1"}
