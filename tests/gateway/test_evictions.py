"""Evictions ask PodDisruptionBudgets, and what a budget allows is counted with the end of the pod (TS15).

``tests/conformance/script/evictions.py`` puts every case to a real kube-apiserver too.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.gateway.callers import Answer, Caller

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def running(caller: Caller, name: str, app: str, **metadata: Any) -> None:
    """A pod that runs and is ready."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": name, "labels": {"app": app}, **metadata}, "spec": spec}
    assert caller.post(PODS, body).status == 201
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert caller.patch(f"{PODS}/{name}/status", {"status": status}).status == 200


def budget(caller: Caller, app: str, allowed: int, **status: Any) -> str:
    """A budget that its controller has looked at."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    assert caller.post(BUDGETS, {"metadata": {"name": app}, "spec": spec}).status == 201
    seen = {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1}
    assert caller.patch(f"{BUDGETS}/{app}/status", {"status": {**seen, "expectedPods": 1, **status}}).status == 200
    return f"{BUDGETS}/{app}"


def evict(caller: Caller, name: str, **options: Any) -> Answer:
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return caller.post(f"{PODS}/{name}/eviction", {**body, "deleteOptions": options} if options else body)


def test_a_pod_stays_that_its_budget_needs(alice: Caller) -> None:
    running(alice, "needed", "needed")
    guarding = budget(alice, "needed", 0)
    before = alice.get(guarding).body
    refused = evict(alice, "needed")
    assert (refused.status, refused.reason, refused.body["message"]) == (429, "TooManyRequests", REFUSED)
    message = "The disruption budget needed needs 1 healthy pods and has 1 currently"
    assert refused.body["details"] == {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    assert alice.get(f"{PODS}/needed").body["metadata"].get("deletionTimestamp") is None
    assert alice.get(guarding).body == before
    alice.patch(guarding, {"spec": {"minAvailable": 2}})
    unseen = evict(alice, "needed")
    assert (unseen.status, unseen.headers["retry-after"]) == (429, "10")
    assert unseen.body["details"]["causes"][0]["message"].endswith("is still being processed by the server.")
    # Whoever may delete it may: a budget is about evictions.
    assert alice.delete(f"{PODS}/needed").status == 200
    alice.delete(guarding)


def test_evictions_at_one_time_take_what_is_allowed_and_no_more(alice: Caller) -> None:
    names = [f"many-{number}" for number in range(12)]
    for name in names:
        running(alice, name, "many")
    guarding = budget(alice, "many", 5)
    with ThreadPoolExecutor(len(names)) as threads:
        answers = dict(zip(names, threads.map(lambda name: evict(alice, name), names), strict=True))
    assert Counter(answer.status for answer in answers.values()) == {201: 5, 429: 7}
    status = alice.get(guarding).body["status"]
    gone = {name for name, answer in answers.items() if answer.status == 201}
    assert (status["disruptionsAllowed"], set(status["disruptedPods"])) == (0, gone)
    assert {name for name in names if alice.get(f"{PODS}/{name}").status == 404} == gone
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )
    for name in names:
        alice.delete(f"{PODS}/{name}")
    alice.delete(guarding)


def test_who_watches_sees_why_a_pod_goes_and_what_was_counted(alice: Caller) -> None:
    running(alice, "watched", "watched", finalizers=["example.org/hold"])
    guarding = budget(alice, "watched", 1)
    since = alice.get(PODS).body["metadata"]["resourceVersion"]
    named = {"resourceVersion": since, "fieldSelector": "metadata.name=watched"}
    with alice.watch(PODS, **named) as pods, alice.watch(BUDGETS, **named) as budgets:
        assert evict(alice, "watched").status == 201
        (going,), (counted,) = pods.take(1), budgets.take(1)
        # Whoever asks again is not counted again.
        assert evict(alice, "watched").status == 201
    conditions = {condition["type"]: condition for condition in going["object"]["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "EvictionByEvictionAPI"
    assert going["object"]["metadata"]["deletionTimestamp"]
    assert (counted["type"], list(counted["object"]["status"]["disruptedPods"])) == ("MODIFIED", ["watched"])
    assert alice.get(guarding).body == counted["object"]
    alice.patch(f"{PODS}/watched", {"metadata": {"finalizers": None}})
    alice.delete(guarding)


@pytest.mark.parametrize("options", [{"dryRun": ["All"]}, {"preconditions": {"uid": "another"}}], ids=str)
def test_what_evicts_nothing_counts_nothing(alice: Caller, options: dict[str, Any]) -> None:
    running(alice, "kept", "kept")
    guarding = budget(alice, "kept", 1)
    before = alice.get(guarding).body
    assert evict(alice, "kept", **options).status == (201 if "dryRun" in options else 409)
    assert alice.get(guarding).body == before
    assert alice.get(f"{PODS}/kept").status == 200
    alice.delete(f"{PODS}/kept")
    alice.delete(guarding)


def test_a_budget_of_another_namespace_or_tenant_says_nothing(alice: Caller, gina: Caller) -> None:
    """TS3."""
    namespace = {"metadata": {"name": "budgets"}}
    assert alice.post("/api/v1/namespaces", namespace).status == 201
    elsewhere = BUDGETS.replace("/default/", "/budgets/")
    for caller, place in ((alice, elsewhere), (gina, BUDGETS)):
        body = {"metadata": {"name": "foreign"}, "spec": {"minAvailable": 1, "selector": {}}}
        assert caller.post(place, body).status == 201
    running(alice, "foreign", "foreign")
    assert evict(alice, "foreign").status == 201
    gina.delete(f"{BUDGETS}/foreign")
    alice.delete("/api/v1/namespaces/budgets")


def test_whose_budget_is_full_of_what_nobody_counts_is_told_so(alice: Caller) -> None:
    running(alice, "full", "full")
    names = {f"gone-{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    guarding = budget(alice, "full", 1, disruptedPods=names)
    refused = evict(alice, "full")
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "too many evictions not confirmed by PDB controller" in refused.body["message"]
    alice.delete(f"{PODS}/full")
    alice.delete(guarding)
