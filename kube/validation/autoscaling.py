"""HorizontalPodAutoscalers."""

from __future__ import annotations

from typing import Any, Final

from kube.kinds.resources import parse_api_version
from kube.requests import names
from kube.requests.fielderrors import choice_causes, forbidden, invalid, not_supported, reason_causes, required
from kube.requests.status import Cause
from kube.validation.quantities import amount
from kube.validation.resourcelists import container_resource_causes

_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS: Final = ("Utilization", "Value", "AverageValue")
_STABLE_MAX: Final = 3600
_PERIOD_MAX: Final = 1800
_RAW_AND_SHARE: Final = "may not set both a target raw value and a target utilization"


def autoscaler_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a HorizontalPodAutoscaler of either version."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        causes.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most == 0:
        causes.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif most < 1:
        causes.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    if most < least:
        causes.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    causes += _target_causes(spec.get("scaleTargetRef", {}), "spec.scaleTargetRef")
    metrics = spec.get("metrics", ())
    share = spec.get("targetCPUUtilizationPercentage")
    if share is not None and share < 1:
        here = "spec.metrics[0].resource.target.averageUtilization"
        causes.append(invalid(here, share, "must be greater than 0"))
    for index, metric in enumerate(metrics):
        causes += _metric_causes(metric, f"spec.metrics[{index}]")
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", detail))
    for field in ("scaleUp", "scaleDown"):
        if field in spec.get("behavior", {}):
            causes += _rule_causes(spec["behavior"][field], f"spec.behavior.{field}")
    return causes


def _target_causes(target: dict[str, Any], path: str) -> list[Cause]:
    causes = _object_causes(target, path)
    # Of the group without a name, only replication controllers can be scaled.
    if target.get("kind") != "ReplicationController" and _group(target) == "":
        detail = "apiVersion must specify API group"
        causes.append(invalid(f"{path}.apiVersion", target.get("apiVersion", ""), detail))
    return causes


def _group(reference: dict[str, Any]) -> str | None:
    """The group that an object's ``apiVersion`` names; ``None`` when it cannot be read."""
    version = reference.get("apiVersion", "")
    try:
        return parse_api_version(version)[0] if version else ""
    except ValueError:
        return None


def _object_causes(reference: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("kind", "name"):
        value, here = reference.get(field, ""), f"{path}.{field}"
        causes += reason_causes(here, value, names.path_segment(value)) if value else [required(here)]
    if _group(reference) is None:
        version = reference["apiVersion"]
        causes.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    return causes


def _metric_causes(metric: dict[str, Any], path: str) -> list[Cause]:
    kind, here = metric.get("type", ""), f"{path}.type"
    causes = [] if kind else [required(here, "must specify a metric source type")]
    if kind not in _SOURCES:
        causes.append(not_supported(here, kind, _SOURCES))
    judges = {
        "object": _described_causes,
        "external": _external_causes,
        "pods": _pods_causes,
        "resource": _resource_causes,
        "containerResource": _container_causes,
    }
    present = [field for field in judges if field in metric]
    for field in present:
        causes += judges[field](metric[field], f"{path}.{field}")
    expected = _SOURCES.get(kind)
    if expected is None:
        return [*causes, not_supported(here, kind, _SOURCES)]
    if expected not in present:
        detail = "must populate information for the given metric source"
        causes.append(required(f"{path}.{expected}", detail))
    if len(present) != 1:
        detail = "must populate the given metric source only"
        causes += [forbidden(f"{path}.{field}", detail) for field in present if field != expected]
    return causes


def _measure_causes(target: dict[str, Any], path: str) -> list[Cause]:
    kind = target.get("type", "")
    causes = [] if kind else [required(f"{path}.type", "must specify a metric target type")]
    if kind not in _TARGETS:
        causes.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for field in ("value", "averageValue"):
        given = amount(target.get(field))
        if given is not None and given.nanos <= 0:
            causes.append(invalid(f"{path}.{field}", target[field], "must be positive"))
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        causes.append(invalid(f"{path}.averageUtilization", share, "must be greater than 0"))
    return causes


def _named_causes(source: dict[str, Any], path: str) -> list[Cause]:
    name, here = source.get("metric", {}).get("name", ""), f"{path}.metric.name"
    return (
        reason_causes(here, name, names.path_segment(name)) if name else [required(here, "must specify a metric name")]
    )


def _described_causes(source: dict[str, Any], path: str) -> list[Cause]:
    target = source.get("target", {})
    causes = _object_causes(source.get("describedObject", {}), f"{path}.describedObject")
    causes += _named_causes(source, path) + _measure_causes(target, f"{path}.target")
    if "value" not in target and "averageValue" not in target:
        detail = "must set either a target value or averageValue"
        causes.append(required(f"{path}.target.averageValue", detail))
    return causes


def _external_causes(source: dict[str, Any], path: str) -> list[Cause]:
    target = source.get("target", {})
    causes = _named_causes(source, path) + _measure_causes(target, f"{path}.target")
    given = [field for field in ("value", "averageValue") if field in target]
    if not given:
        detail = "must set either a target value for metric or a per-pod target"
        causes.append(required(f"{path}.target.averageValue", detail))
    elif len(given) == 2:
        detail = "may not set both a target value for metric and a per-pod target"
        causes.append(forbidden(f"{path}.target.value", detail))
    return causes


def _pods_causes(source: dict[str, Any], path: str) -> list[Cause]:
    target = source.get("target", {})
    causes = _named_causes(source, path) + _measure_causes(target, f"{path}.target")
    if "averageValue" not in target:
        causes.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))
    return causes


def _resource_causes(source: dict[str, Any], path: str) -> list[Cause]:
    target = source.get("target", {})
    causes = [] if source.get("name") else [required(f"{path}.name", "must specify a resource name")]
    causes += _measure_causes(target, f"{path}.target")
    if "averageUtilization" not in target and "averageValue" not in target:
        detail = "must set either a target raw value or a target utilization"
        causes.append(required(f"{path}.target.averageUtilization", detail))
    elif "averageUtilization" in target and "averageValue" in target:
        causes.append(forbidden(f"{path}.target.averageValue", _RAW_AND_SHARE))
    return causes


def _container_causes(source: dict[str, Any], path: str) -> list[Cause]:
    name, container = source.get("name", ""), source.get("container", "")
    here, place = f"{path}.name", f"{path}.container"
    named = container_resource_causes(name, here) if name else [required(here, "must specify a resource name")]
    held = (
        reason_causes(place, container, names.dns_label(container))
        if container
        else [required(place, "must specify a container")]
    )
    return named + held + _resource_causes({**source, "name": "x"}, path)


def _rule_causes(rules: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    stable, here = rules.get("stabilizationWindowSeconds"), f"{path}.stabilizationWindowSeconds"
    if stable is not None and stable < 0:
        causes.append(invalid(here, stable, "must be greater than or equal to zero"))
    if stable is not None and stable > _STABLE_MAX:
        causes.append(invalid(here, stable, f"must be less than or equal to {_STABLE_MAX}"))
    causes += choice_causes(rules, "selectPolicy", ("Disabled", "Max", "Min"), path)
    policies = rules.get("policies", ())
    if not policies:
        causes.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(policies):
        place = f"{path}.policies[{index}]"
        if policy.get("type") not in ("Percent", "Pods"):
            causes.append(not_supported(f"{place}.type", policy.get("type", ""), ("Percent", "Pods")))
        for field in ("value", "periodSeconds"):
            if policy.get(field, 0) <= 0:
                causes.append(invalid(f"{place}.{field}", policy.get(field, 0), "must be greater than zero"))
        if policy.get("periodSeconds", 0) > _PERIOD_MAX:
            detail = f"must be less than or equal to {_PERIOD_MAX}"
            causes.append(invalid(f"{place}.periodSeconds", policy["periodSeconds"], detail))
    tolerance = amount(rules.get("tolerance"))
    if tolerance is not None and tolerance.nanos < 0:
        detail = "must be greater than or equal to 0"
        causes.append(invalid(f"{path}.tolerance", rules["tolerance"], detail))
    return causes
