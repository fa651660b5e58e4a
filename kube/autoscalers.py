"""The two versions of a HorizontalPodAutoscaler: ``autoscaling/v1`` knows but the use of the processor (TS15).

What ``v1`` has no fields for goes into annotations and comes back from there, so that nothing is lost on the way.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

KIND: Final = ("autoscaling", "HorizontalPodAutoscaler")
_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_BEYOND_V1: Final = {"metrics": "spec", "behavior": "spec", "current-metrics": "status", "conditions": "status"}
"""What annotations hold for ``v1``, and the part of the object that it belongs to."""

Body = dict[str, Any]


def convert(body: Body, api_version: str) -> Body:
    """The autoscaler in the other version; ``body`` is left alone."""
    if body.get("apiVersion") == api_version:
        return body
    return _to_v1(body) if api_version == "autoscaling/v1" else _to_v2(body)


def _to_v1(body: Body) -> Body:
    spec, status = dict(body.get("spec") or {}), dict(body.get("status") or {})
    metrics, current = list(spec.pop("metrics", None) or ()), list(status.pop("currentMetrics", None) or ())
    use = next((metric for metric in metrics if _is_use(metric, "target")), None)
    if use is not None:
        metrics.remove(use)
        spec["targetCPUUtilizationPercentage"] = use["resource"]["target"]["averageUtilization"]
    used = next((metric for metric in current if _is_use(metric, "current")), None)
    if used is not None:
        current.remove(used)
        status["currentCPUUtilizationPercentage"] = used["resource"]["current"]["averageUtilization"]
    beyond = {
        "metrics": metrics,
        "behavior": spec.pop("behavior", None),
        "current-metrics": current,
        "conditions": status.pop("conditions", None),
    }
    texts = {_PREFIX + name: orjson.dumps(value).decode() for name, value in beyond.items() if value}
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    metadata = body["metadata"]
    if texts:
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **texts}}
    return {**body, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _to_v2(body: Body) -> Body:
    metadata, parts = dict(body["metadata"]), {part: dict(body.get(part) or {}) for part in ("spec", "status")}
    annotations = dict(metadata.get("annotations") or {})
    held = {name: _read(annotations.pop(_PREFIX + name, None)) for name in _BEYOND_V1}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    spec, status = parts["spec"], parts["status"]
    target = spec.pop("targetCPUUtilizationPercentage", None)
    current = status.pop("currentCPUUtilizationPercentage", None)
    metrics = _list(held["metrics"])
    if target is not None:
        metrics.insert(0, _use("target", {"type": "Utilization", "averageUtilization": target}))
    if metrics:
        spec["metrics"] = metrics
    if isinstance(held["behavior"], dict):
        spec["behavior"] = held["behavior"]
    seen = _list(held["current-metrics"])
    if current is not None:
        seen.insert(0, _use("current", {"averageUtilization": current, "averageValue": "0"}))
    status["currentMetrics"] = seen or None
    if conditions := _list(held["conditions"]):
        status["conditions"] = conditions
    return {**body, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _use(field: str, value: Body) -> Body:
    return {"type": "Resource", "resource": {"name": "cpu", field: value}}


def _is_use(metric: Any, field: str) -> bool:
    resource = metric.get("resource") if isinstance(metric, dict) and metric.get("type") == "Resource" else None
    return (
        isinstance(resource, dict)
        and resource.get("name") == "cpu"
        and isinstance(resource.get(field), dict)
        and resource[field].get("averageUtilization") is not None
    )


def _read(text: Any) -> Any:
    """What an annotation holds; nothing when a client has written something else into it."""
    try:
        return orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        return None


def _list(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
