"""What a controller's status may say: how many of its pods there are, of which some are further than others."""

from __future__ import annotations

from typing import Any, Final

from kube.requests.fielderrors import forbidden, invalid
from kube.requests.status import Cause

_REPLICAS: Final = "cannot be greater than status.replicas"
_COUNTS: Final[dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    ("", "ReplicationController"): (
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("apps", "DaemonSet"): (
        (
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ),
        (),
    ),
    ("apps", "Deployment"): (
        (
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "collisionCount",
        ),
        ("updatedReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("apps", "ReplicaSet"): (
        ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("batch", "Job"): (("active", "succeeded", "failed", "ready"), ()),
    ("apps", "StatefulSet"): (
        (
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ),
        ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
    ),
}
"""(group, kind) → the counts in the order in which they are judged, and which of them count part of ``replicas``."""


def status_causes(key: tuple[str, str], body: dict[str, Any]) -> list[Cause]:
    """What is wrong with the counts in the status of a built-in controller."""
    counts = _COUNTS.get(key)
    status = body.get("status")
    if counts is None or not status:
        return []
    every, parts = counts
    detail = "must be greater than or equal to 0"
    causes = [invalid(f"status.{name}", status[name], detail) for name in every if status.get(name, 0) < 0]
    total = status.get("replicas", 0)
    causes += [
        invalid(f"status.{name}", status.get(name, 0), _REPLICAS) for name in parts if status.get(name, 0) > total
    ]
    if key == ("batch", "Job") and status.get("ready", 0) > status.get("active", 0):
        causes.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
    available = status.get("availableReplicas", 0)
    if "availableReplicas" in parts and available > status.get("readyReplicas", 0):
        causes.append(invalid("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    return causes


def balancer_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Only a service of that type has a load balancer."""
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if not ingress or new.get("status") == old.get("status") or new.get("spec", {}).get("type") == "LoadBalancer":
        return []
    return [forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")]
