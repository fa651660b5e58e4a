"""PodDisruptionBudgets as kube-apiserver asks them before it evicts a pod, and what it notes in them (TS15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kube.requests.labelselectors import from_object
from kube.requests.status import BadRequest, Cause, StatusError, TooManyRequests, forbidden_object

CAUSE: Final = "DisruptionBudget"
"""The reason in ``details.causes`` by which clients know that a budget has refused, and that asking again helps."""

DISRUPTED_MAX: Final = 2000
"""Evicted pods that a budget's controller has not counted yet."""

_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_ALLOWED: Final = "DisruptionAllowed"
_UNGUARDED: Final = ("Succeeded", "Failed", "Pending")

Body = dict[str, Any]


def is_guarded(pod: Mapping[str, Any]) -> bool:
    """Whether budgets are asked about a pod at all: one that has ended, ends or has not begun disrupts nothing."""
    return "deletionTimestamp" not in pod["metadata"] and (pod.get("status") or {}).get("phase") not in _UNGUARDED


def evicted(pod: Body, *, now: str) -> Body:
    """The pod with the condition that says why it is deleted."""
    condition = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    said = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    status = pod.get("status") or {}
    return {**pod, "status": {**status, "conditions": _with(status.get("conditions"), {**condition, **said})}}


def disrupted(budgets: Sequence[Body], pod: Mapping[str, Any], *, now: str) -> Body | None:
    """The budget of a pod with its eviction counted; ``None`` where none is to be counted.

    Raises ``TooManyRequests`` where the budget does not allow it, ``Forbidden`` where it cannot say, and a 500 where there are
    several.
    """
    guarding = [budget for budget in budgets if _guards(budget, pod)]
    if len(guarding) > 1:
        raise StatusError(_SEVERAL, reason="")
    if not guarding:
        return None
    (budget,) = guarding
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if not _is_ready(pod):
        healthy, needed = (int(status.get(field) or 0) for field in ("currentHealthy", "desiredHealthy"))
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= needed > 0:
            return None
    _require_allowed(budget, status, name)
    left = int(status["disruptionsAllowed"]) - 1
    counted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    status = {**status, "disruptionsAllowed": left, "disruptedPods": counted}
    if not left:
        status["conditions"] = _with(status.get("conditions"), _exhausted(status, now))
    return {**budget, "status": status}


def _guards(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    try:
        selector = from_object((budget.get("spec") or {}).get("selector"))
    except BadRequest:
        return False
    return selector.matches(pod["metadata"].get("labels") or {})


def _is_ready(pod: Mapping[str, Any]) -> bool:
    ready = _condition((pod.get("status") or {}).get("conditions"), "Ready")
    return ready is not None and ready.get("status") == "True"


def _require_allowed(budget: Mapping[str, Any], status: Mapping[str, Any], name: str) -> None:
    if int(status.get("observedGeneration") or 0) < int(budget["metadata"].get("generation") or 0):
        cause = Cause(CAUSE, f"The disruption budget {name} is still being processed by the server.")
        raise TooManyRequests(_REFUSED, causes=[cause], retry_after=10)
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed < 0:
        raise forbidden_object("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > DISRUPTED_MAX:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden_object("policy", "poddisruptionbudget", name, why)
    if not allowed:
        raise TooManyRequests(_REFUSED, causes=[Cause(CAUSE, f"The disruption budget {name} {_why_not(status)}")])


def _why_not(status: Mapping[str, Any]) -> str:
    healthy, needed = (int(status.get(field) or 0) for field in ("currentHealthy", "desiredHealthy"))
    condition = _condition(status.get("conditions"), _ALLOWED) or {}
    said = condition.get("message", "") if condition.get("status") == "False" else ""
    if said and condition.get("reason") == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {said}"
    if healthy <= needed:
        return f"needs {needed} healthy pods and has {healthy} currently"
    if said:
        return f"does not allow evicting pods currently ({condition.get('reason', '')}): {said}"
    return "does not allow evicting pods currently"


def _exhausted(status: Mapping[str, Any], now: str) -> Body:
    condition: Body = {"type": _ALLOWED, "status": "False", "lastTransitionTime": now}
    if status.get("observedGeneration"):
        condition["observedGeneration"] = status["observedGeneration"]
    return {**condition, "reason": "InsufficientPods", "message": ""}


def _condition(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> Mapping[str, Any] | None:
    return next((condition for condition in conditions or () if condition.get("type") == kind), None)


def _with(conditions: Sequence[Mapping[str, Any]] | None, condition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions with this one in the place of the one of its type, since when it has been so if it was so before."""
    before = _condition(conditions, condition["type"])
    if before is None:
        return [*(conditions or ()), condition]
    if before.get("status") == condition["status"]:
        condition = {**condition, "lastTransitionTime": before.get("lastTransitionTime")}
    return [condition if each is before else each for each in conditions or ()]
