"""One object in the words of another version of its kind.

Two built-in kinds are served in two versions: events (core and ``events.k8s.io``, one storage) and horizontal pod
autoscalers. Objects are kept in the storage version and converted on the way in and out. Versions of custom
resources without a conversion webhook differ in ``apiVersion`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

Body = dict[str, Any]

_CORE_EVENT: Final = "v1"
_NEW_EVENT: Final = "events.k8s.io/v1"
_OLD_SCALER: Final = "autoscaling/v1"
_SCALER: Final = "autoscaling/v2"

# core → events.k8s.io
_EVENT_FIELDS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_FIELDS_BACK: Final = {new: old for old, new in _EVENT_FIELDS.items()}

_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
_BEHAVIOR: Final = "autoscaling.alpha.kubernetes.io/behavior"
_CURRENT_METRICS: Final = "autoscaling.alpha.kubernetes.io/current-metrics"
_CONDITIONS: Final = "autoscaling.alpha.kubernetes.io/conditions"
# annotation → (part of the object, field) that version 1 has no words for
_CARRIED: Final = {
    _METRICS: ("spec", "metrics"),
    _BEHAVIOR: ("spec", "behavior"),
    _CURRENT_METRICS: ("status", "currentMetrics"),
    _CONDITIONS: ("status", "conditions"),
}


def converted(body: Body, api_version: str) -> Body:
    """The object in another version of its kind; the object itself is not changed.

    Nothing is lost: what the older autoscaler has no field for travels in annotations. These are a client's words,
    so decode the result by the schema of its version before keeping it.
    """
    source = body.get("apiVersion", "")
    if source == api_version:
        return body
    convert = _CONVERSIONS.get((body.get("kind", ""), source, api_version))
    changed = body if convert is None else convert(body)
    return {**changed, "apiVersion": api_version}


def _renamed(body: Body, names: Mapping[str, str]) -> Body:
    return {names.get(field, field): value for field, value in body.items()}


def _to_new_event(body: Body) -> Body:
    """Core events always say who reports, if only that nobody does; the others leave it out."""
    filled = {name: value for name, value in body.items() if value != "" or not name.startswith("reporting")}
    return {"deprecatedSource": {}, **_renamed(filled, _EVENT_FIELDS)}


def _to_core_event(body: Body) -> Body:
    empty = {"source": {}, "reportingComponent": "", "reportingInstance": ""}
    return empty | _renamed(body, _EVENT_FIELDS_BACK)


def _to_old_scaler(body: Body) -> Body:
    spec, status = dict(body.get("spec") or {}), dict(body.get("status") or {})
    cpu, others = _split(spec.get("metrics") or (), "target")
    current, other_currents = _split(status.get("currentMetrics") or (), "current")
    parts: dict[str, Body] = {"spec": spec, "status": status}
    _set(spec, "metrics", others)
    _set(status, "currentMetrics", other_currents)
    annotations = dict(body.get("metadata", {}).get("annotations") or {})
    for annotation, (part, field) in _CARRIED.items():
        value = parts[part].pop(field, None)
        if value:
            annotations[annotation] = orjson.dumps(value).decode()
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu
    if current is not None:
        status["currentCPUUtilizationPercentage"] = current
    if "status" in body:
        status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return _assembled(body, spec, status, annotations)


def _to_scaler(body: Body) -> Body:
    spec, status = dict(body.get("spec") or {}), dict(body.get("status") or {})
    annotations = dict(body.get("metadata", {}).get("annotations") or {})
    parts: dict[str, Body] = {"spec": spec, "status": status}
    for annotation, (part, field) in _CARRIED.items():
        value = _decoded(annotations.pop(annotation, None))
        if value and isinstance(value, dict) is (field == "behavior"):
            parts[part][field] = value
    wanted = spec.pop("targetCPUUtilizationPercentage", None)
    if wanted is not None:
        target = {"type": "Utilization", "averageUtilization": wanted}
        spec["metrics"] = [*(spec.get("metrics") or ()), _cpu("target", target)]
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    measured = status.pop("currentCPUUtilizationPercentage", None)
    if measured is not None:
        current = {"averageUtilization": measured}
        status["currentMetrics"] = [*(status.get("currentMetrics") or ()), _cpu("current", current)]
    return _assembled(body, spec, status, annotations)


def _cpu(word: str, value: Body) -> Body:
    return {"type": "Resource", "resource": {"name": "cpu", word: value}}


def _split(metrics: Any, word: str) -> tuple[int | None, list[Any]]:
    """The cpu utilization among metrics, and the other metrics."""
    cpu: int | None = None
    others: list[Any] = []
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        value = resource.get(word) or {}
        plain = resource.get("name") == "cpu" and set(value) <= {"type", "averageUtilization"}
        if cpu is None and metric.get("type") == "Resource" and plain and "averageUtilization" in value:
            cpu = value["averageUtilization"]
        else:
            others.append(metric)
    return cpu, others


def _set(body: Body, field: str, value: list[Any]) -> None:
    if value:
        body[field] = value
    else:
        body.pop(field, None)


def _decoded(text: str | None) -> Any:
    """What an annotation carries; a client may have written anything there."""
    try:
        value = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, list | dict) else None


def _assembled(body: Body, spec: Body, status: Body, annotations: dict[str, str]) -> Body:
    metadata = {key: value for key, value in body.get("metadata", {}).items() if key != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    changed = {**body, "metadata": metadata, "spec": spec}
    if "status" in body or status:
        changed["status"] = status
    return changed


_CONVERSIONS: Final[dict[tuple[str, str, str], Callable[[Body], Body]]] = {
    ("Event", _CORE_EVENT, _NEW_EVENT): _to_new_event,
    ("Event", _NEW_EVENT, _CORE_EVENT): _to_core_event,
    ("HorizontalPodAutoscaler", _SCALER, _OLD_SCALER): _to_old_scaler,
    ("HorizontalPodAutoscaler", _OLD_SCALER, _SCALER): _to_scaler,
}
