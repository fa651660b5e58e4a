"""What a controller's status may say: how many of its pods there are, of which some are further than others."""

from __future__ import annotations

from typing import Any, Final

from kube.requests.fielderrors import invalid
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
            "terminatingReplicas",
            "collisionCount",
        ),
        ("updatedReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("apps", "ReplicaSet"): (
        (
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "terminatingReplicas",
            "observedGeneration",
        ),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (("currentReplicas", "desiredReplicas"), ()),
    ("policy", "PodDisruptionBudget"): (
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
        (),
    ),
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


def status_causes(key: tuple[str, str], body: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with the counts in the status of a built-in controller, and what of them is taken back."""
    counts = _COUNTS.get(key)
    status = body.get("status")
    if counts is None or not status or status == old.get("status"):
        return []
    every, parts = counts
    detail = "must be greater than or equal to 0"
    causes = [invalid(f"status.{name}", status[name], detail) for name in every if status.get(name, 0) < 0]
    total = status.get("replicas", 0)
    causes += [
        invalid(f"status.{name}", status.get(name, 0), _REPLICAS) for name in parts if status.get(name, 0) > total
    ]
    available = status.get("availableReplicas", 0)
    if "availableReplicas" in parts and available > status.get("readyReplicas", 0):
        ready = "status.readyReplicas" if key[1] == "StatefulSet" else "readyReplicas"
        causes.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))
    collisions, was = (each.get("collisionCount") for each in (status, old.get("status") or {}))
    if was is not None and (collisions or 0) < was and "collisionCount" in every:
        causes.append(invalid("status.collisionCount", collisions or 0, "cannot be decremented"))
    return causes
