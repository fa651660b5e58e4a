"""Pods that are told to go while PodDisruptionBudgets want them to stay."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE

_EXHAUSTED: dict[str, Any] = {
    "observedGeneration": 1,
    "disruptionsAllowed": 0,
    "currentHealthy": 1,
    "desiredHealthy": 1,
    "expectedPods": 1,
}
_WEALTHY = {**_EXHAUSTED, "currentHealthy": 2, "expectedPods": 2}
_ALLOWING = {**_WEALTHY, "disruptionsAllowed": 1}
_SINCE = "2026-01-01T00:00:00Z"


def _refusing(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message}
    return {"conditions": [{**condition, "lastTransitionTime": _SINCE}]}


_ALLOWED = {"conditions": [{**_refusing("SufficientPods", "")["conditions"][0], "status": "True"}]}
_UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_ALWAYS = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}

# What a case is called, how its pod is, and the budgets that select it: each how it stands, and what its spec has besides.
_CASES: tuple[tuple[str, dict[str, Any], tuple[tuple[dict[str, Any], dict[str, Any]], ...]], ...] = (
    ("free", _READY, ()),
    ("unseen", _READY, (({}, {}),)),
    ("outdated", _READY, (({**_ALLOWING, "observedGeneration": 0}, {}),)),
    ("exhausted", _READY, ((_EXHAUSTED, {}),)),
    ("wealthy", _READY, ((_WEALTHY, {}),)),
    ("insufficient", _READY, (({**_WEALTHY, **_refusing("InsufficientPods", "")}, {}),)),
    ("explained", _READY, (({**_WEALTHY, **_refusing("InsufficientPods", "so it is")}, {}),)),
    ("failed-sync", _READY, (({**_EXHAUSTED, **_refusing("SyncFailed", "no scale")}, {}),)),
    ("allowing", _READY, ((_ALLOWING, {}),)),
    ("allowing-two", _READY, (({**_ALLOWING, "disruptionsAllowed": 2}, {}),)),
    ("allowing-said", _READY, (({**_ALLOWING, **_ALLOWED}, {}),)),
    ("allowing-known", _READY, (({**_ALLOWING, "disruptedPods": {"other": _SINCE}}, {}),)),
    ("several", _READY, ((_ALLOWING, {}), (_ALLOWING, {}))),
    ("pending", {"phase": "Pending"}, ((_EXHAUSTED, {}),)),
    ("succeeded", {"phase": "Succeeded"}, ((_EXHAUSTED, {}),)),
    ("failed", {"phase": "Failed"}, ((_EXHAUSTED, {}), (_EXHAUSTED, {}))),
    ("unknown", {"phase": "Unknown"}, ((_EXHAUSTED, {}),)),
    ("unready", _UNREADY, ((_EXHAUSTED, {}),)),
    ("unready-disrupted", _UNREADY, (({**_EXHAUSTED, "currentHealthy": 0}, {}),)),
    ("unready-unasked", _UNREADY, (({**_EXHAUSTED, "desiredHealthy": 0}, {}),)),
    ("unready-if-healthy", _UNREADY, ((_EXHAUSTED, {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}),)),
    ("unready-always", _UNREADY, (({**_EXHAUSTED, "currentHealthy": 0}, _ALWAYS),)),
    ("unready-unseen", _UNREADY, (({}, _ALWAYS),)),
    ("ready-always", _READY, ((_EXHAUSTED, _ALWAYS),)),
)


def evictions(say: Conversation) -> None:
    """Whom a budget protects, what it says, and what is counted in it."""
    say.set_up()
    pods, budgets = f"{say.core}/pods", f"/apis/policy/v1/namespaces/{say.namespace}/poddisruptionbudgets"

    def pod(name: str, status: dict[str, Any], **metadata: Any) -> None:
        spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
        body = {"metadata": {"name": name, "labels": {"case": name}, **metadata}, "spec": spec}
        say.speaker.send("POST", pods, body)
        say.speaker.send("PATCH", f"{pods}/{name}/status", {"status": status}, MERGE)

    def budget(name: str, status: dict[str, Any], **spec: Any) -> None:
        say.speaker.send("POST", budgets, {"metadata": {"name": name}, "spec": {"minAvailable": 1, **spec}})
        say.speaker.send("PATCH", f"{budgets}/{name}/status", {"status": status}, MERGE)

    def evict(name: str, query: str = "", **options: Any) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        say.say("POST", f"{pods}/{name}/eviction{query}", {**body, "deleteOptions": options} if options else body)

    for name, status, guarding in _CASES:
        pod(name, status)
        for number, (stands, spec) in enumerate(guarding):
            budget(f"{name}-{number}", stands, selector={"matchLabels": {"case": name}}, **spec)
        evict(name, "?dryRun=All")
        for number in range(len(guarding)):
            say.say("GET", f"{budgets}/{name}-{number}")
        evict(name)
        for number in range(len(guarding)):
            say.say("GET", f"{budgets}/{name}-{number}")
        say.part("GET", f"{pods}/{name}", None, lambda answer: {"reason": answer.body.get("reason")})
    # What they select: nothing without a selector, everything by an empty one.
    pod("selected", _READY)
    budget("none", _EXHAUSTED)
    evict("selected", "?dryRun=All")
    budget("all", _EXHAUSTED, selector={})
    evict("selected", "?dryRun=All")
    say.speaker.send("DELETE", f"{budgets}/all")
    # Preconditions, and dry runs by the options in the body.
    pod("held", _READY, finalizers=["example.org/hold"])
    budget("held", {**_ALLOWING, "disruptionsAllowed": 5}, selector={"matchLabels": {"case": "held"}})
    evict("held", preconditions={"uid": "another"})
    evict("held", preconditions={"resourceVersion": "1"})
    evict("held", dryRun=["All"])
    evict("held", "?dryRun=All", dryRun=["All"])
    evict("held")
    say.say("GET", f"{pods}/held")
    evict("held")
    say.say("GET", f"{pods}/held")
    say.say("GET", f"{budgets}/held")
    say.speaker.send("PATCH", f"{pods}/held", {"metadata": {"finalizers": None}}, MERGE)
