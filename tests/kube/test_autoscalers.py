"""The two versions of an autoscaler say the same."""

from __future__ import annotations

from typing import Any

import pytest

from kube.autoscalers import convert

CPU: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
}
MEMORY: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
}


def autoscaler(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": {"mine": "kept"}},
        "spec": {"maxReplicas": 2, **spec},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    }


def test_the_use_of_the_processor_is_a_field_of_its_own_in_v1() -> None:
    """TS15."""
    shown = convert(autoscaler(metrics=[CPU]), "autoscaling/v1")
    assert shown["apiVersion"] == "autoscaling/v1"
    assert shown["spec"] == {"maxReplicas": 2, "targetCPUUtilizationPercentage": 70}
    assert shown["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    assert shown["metadata"]["annotations"] == {"mine": "kept"}


@pytest.mark.parametrize("metrics", [[CPU], [MEMORY], [CPU, MEMORY]])
@pytest.mark.parametrize("behavior", [None, {"scaleDown": {"stabilizationWindowSeconds": 60}}])
def test_nothing_is_lost_on_the_way_to_v1_and_back(metrics: list[Any], behavior: Any) -> None:
    before = autoscaler(metrics=metrics, **({"behavior": behavior} if behavior else {}))
    after = convert(convert(before, "autoscaling/v1"), "autoscaling/v2")
    assert after["spec"] == before["spec"]
    assert after["metadata"] == before["metadata"]


@pytest.mark.parametrize("text", ["{", "5", "[1]", "null"])
def test_what_a_client_writes_into_the_annotations_does_no_harm(text: str) -> None:
    body = convert(autoscaler(), "autoscaling/v1")
    body["metadata"]["annotations"] |= {
        f"autoscaling.alpha.kubernetes.io/{name}": text for name in ("metrics", "behavior")
    }
    assert convert(body, "autoscaling/v2")["spec"] == {"maxReplicas": 2}
