"""Defaults and bounds of LimitRanges, in the real server's words (AD1, AD2)."""

from __future__ import annotations

from typing import Any

import pytest

from kube.quota.limitranges import ANNOTATION, violations, with_defaults


def limit_range(kind: str = "Container", **bounds: Any) -> dict[str, Any]:
    return {"spec": {"limits": [{"type": kind, **bounds}]}}


def pod(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def test_containers_that_state_nothing_get_the_defaults_and_the_pod_says_so() -> None:
    limits = limit_range(default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
    item = pod(limits={"memory": "2Gi"})
    item["spec"]["initContainers"] = [{"name": "i"}]
    filled = with_defaults(limits, item)
    assert filled["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m"},
        "limits": {"memory": "2Gi", "cpu": "1"},
    }
    assert filled["metadata"]["annotations"][ANNOTATION] == (
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c; "
        "cpu request for init container i; cpu, memory limit for init container i"
    )
    assert "annotations" not in item["metadata"]
    assert with_defaults(limits, filled) == filled


CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (limit_range(min={"cpu": "100m"}), pod({"cpu": "100m"}), ""),
    (limit_range(min={"cpu": "100m"}), pod(), "minimum cpu usage per Container is 100m.  No request is specified"),
    (
        limit_range(min={"cpu": "100m"}),
        pod({"cpu": "50m"}),
        "minimum cpu usage per Container is 100m, but request is 50m",
    ),
    (
        limit_range(min={"cpu": "1"}),
        pod({"cpu": "1"}, {"cpu": "500m"}),
        "minimum cpu usage per Container is 1, but limit is 500m",
    ),
    (limit_range(max={"cpu": "1"}), pod(), "maximum cpu usage per Container is 1.  No limit is specified"),
    (limit_range(max={"cpu": "1"}), pod({}, {"cpu": "2"}), "maximum cpu usage per Container is 1, but limit is 2"),
    (
        limit_range(max={"cpu": "1"}),
        pod({"cpu": "2"}, {"cpu": "1"}),
        "maximum cpu usage per Container is 1, but request is 2",
    ),
    (limit_range(maxLimitRequestRatio={"cpu": "2"}), pod({"cpu": "1"}, {"cpu": "2"}), ""),
    (
        limit_range(maxLimitRequestRatio={"cpu": "2"}),
        pod({"cpu": "1"}, {"cpu": "3"}),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
    ),
    (
        limit_range(maxLimitRequestRatio={"cpu": "2"}),
        pod({}, {"cpu": "3"}),
        "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
    ),
    (
        limit_range(maxLimitRequestRatio={"cpu": "2"}),
        pod({"cpu": "1"}),
        "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
    ),
    (
        limit_range("Pod", max={"cpu": "1", "memory": "1Gi"}),
        pod({}, {"cpu": "2"}),
        "[maximum cpu usage per Pod is 1, but limit is 2, maximum memory usage per Pod is 1Gi.  No limit is specified]",
    ),
    (limit_range("PersistentVolumeClaim", max={"storage": "1Gi"}), pod(), ""),
]


@pytest.mark.parametrize(("limits", "item", "expected"), CASES)
def test_a_pod_is_held_against_the_bounds(limits: dict[str, Any], item: dict[str, Any], expected: str) -> None:
    assert violations(limits, "pods", item) == expected


PER_CLAIM = "storage usage per PersistentVolumeClaim is"
CLAIMS: list[tuple[str | None, str]] = [
    ("1Gi", ""),
    ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
    (None, f"[minimum {PER_CLAIM} 1Gi.  No request is specified, maximum {PER_CLAIM} 2Gi.  No request is specified]"),
]


@pytest.mark.parametrize(("size", "expected"), CLAIMS)
def test_a_claim_is_held_against_the_bounds(size: str | None, expected: str) -> None:
    limits = limit_range("PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})
    claim = {"spec": {"resources": {"requests": {"storage": size} if size else {}}}}
    assert violations(limits, "persistentvolumeclaims", claim) == expected


def test_other_kinds_have_no_bounds() -> None:
    assert violations(limit_range(min={"cpu": "1"}), "services", {}) == ""
