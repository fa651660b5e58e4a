"""One storage, two versions: nothing is lost on the way there and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.kinds.schemas import Definitions
from kube.objects.conversion import converted
from kube.objects.fieldvalidation import decode_fields

EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "n"},
    "involvedObject": {"kind": "Pod", "name": "p"},
    "message": "m",
    "reason": "R",
    "source": {"component": "c"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "count": 2,
    "reportingComponent": "c",
    "reportingInstance": "i",
    "type": "Normal",
}
SCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "h", "annotations": {"a": "b"}},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "d"},
        "maxReplicas": 3,
        "behavior": {"scaleDown": {"selectPolicy": "Max"}},
        "metrics": [
            {
                "type": "Pods",
                "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            },
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
            },
        ],
    },
    "status": {
        "conditions": [{"type": "AbleToScale", "status": "True"}],
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}}],
        "currentReplicas": 1,
        "desiredReplicas": 1,
    },
}


@pytest.mark.parametrize(("body", "other"), [(EVENT, "events.k8s.io/v1"), (SCALER, "autoscaling/v1")])
def test_a_conversion_and_its_inverse_lose_nothing(body: dict[str, Any], other: str, definitions: Definitions) -> None:
    before = copy.deepcopy(body)
    there = converted(body, other)
    group, _, version = other.rpartition("/")
    schema = definitions.schema(group, version, body["kind"])
    assert schema is not None
    assert decode_fields(there, schema, kind=body["kind"], version=version).unknown == ()
    assert converted(there, body["apiVersion"]) == before
    assert body == before


def test_the_older_autoscaler_shows_the_cpu_target() -> None:
    old = converted(SCALER, "autoscaling/v1")
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert old["status"]["currentCPUUtilizationPercentage"] == 40
    assert "metrics" not in old["spec"]


@pytest.mark.parametrize("text", ["", "{", "1", "[1", '"x"'])
def test_a_strange_annotation_is_not_taken_for_metrics(text: str) -> None:
    body = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": text}},
        "spec": {"maxReplicas": 1},
    }
    assert "metrics" not in converted(body, "autoscaling/v2")["spec"]


def test_other_versions_differ_in_their_name_alone() -> None:
    body = {"apiVersion": "x.io/v1", "kind": "X", "spec": {"a": 1}}
    assert converted(body, "x.io/v2") == {**body, "apiVersion": "x.io/v2"}
    assert converted(body, "x.io/v1") is body


def test_an_autoscaler_as_it_is_made_is_shown_in_both_versions() -> None:
    """A new one has ``currentMetrics: null``, as kube-apiserver shows it."""
    body = {**SCALER, "status": {"currentMetrics": None, "desiredReplicas": 0}}
    old = converted(body, "autoscaling/v1")
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert old["status"]["desiredReplicas"] == 0
    again = converted({**old, "status": None}, "autoscaling/v2")
    assert again["spec"]["metrics"] == SCALER["spec"]["metrics"]


def test_an_event_of_either_group_is_shown_in_the_words_of_the_other() -> None:
    new = converted({**EVENT, "reportingComponent": "", "reportingInstance": ""}, "events.k8s.io/v1")
    assert new["note"] == "m"
    assert new["regarding"] == EVENT["involvedObject"]
    assert "reportingController" not in new
    old = converted({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n"}, "v1")
    assert old["message"] == "n"
    assert (old["source"], old["reportingComponent"], old["reportingInstance"]) == ({}, "", "")
