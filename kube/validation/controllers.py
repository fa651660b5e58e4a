"""Controllers of pods that run until they are told to stop."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    count_causes,
    forbidden,
    invalid,
    not_supported,
    reason_causes,
    required,
)
from kube.requests.status import Cause
from kube.validation.intorpercent import is_nothing, share_causes, whole_causes
from kube.validation.metadata import selector_causes
from kube.validation.pods import template_causes
from kube.validation.selectors import (
    controller_selector_causes,
    is_selective,
    long_running_causes,
    mismatch_causes,
)
from kube.validation.volumeclaims import claim_spec_causes

_SPEC: Final = "spec"
_TEMPLATE: Final = "spec.template"
_BAD: Final = "invalid label selector"


def deployment_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Deployment."""
    spec = body.get("spec", {})
    causes = count_causes(spec, _SPEC, "replicas")
    causes += _replicated_causes(spec, "deployment")
    causes += _deployment_strategy_causes(spec.get("strategy", {}), "spec.strategy")
    causes += count_causes(spec, _SPEC, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    seconds = spec.get("progressDeadlineSeconds")
    if seconds is not None and seconds <= spec.get("minReadySeconds", 0):
        causes.append(invalid("spec.progressDeadlineSeconds", seconds, "must be greater than minReadySeconds"))
    return causes


def replica_set_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ReplicaSet."""
    spec = body.get("spec", {})
    return count_causes(spec, _SPEC, "replicas", "minReadySeconds") + _replicated_causes(spec, "deployment")


def _replicated_causes(spec: dict[str, Any], kind: str) -> list[Cause]:
    selector, template = spec.get("selector"), spec.get("template", {})
    causes = controller_selector_causes(selector, "spec.selector", kind)
    if selector is not None and selector_causes(selector, ""):
        return [*causes, invalid("spec.selector", selector, _BAD)]
    causes += mismatch_causes(selector, template, _TEMPLATE)
    return causes + long_running_causes(template, _TEMPLATE, "ReplicaSet")


def replication_controller_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ReplicationController, whose selector is a plain map."""
    spec = body.get("spec", {})
    selector = spec.get("selector", {})
    causes = count_causes(spec, _SPEC, "minReadySeconds")
    causes += [] if selector else [required("spec.selector")]
    causes += count_causes(spec, _SPEC, "replicas")
    if "template" not in spec:
        return [*causes, required(_TEMPLATE)]
    causes += mismatch_causes({"matchLabels": selector}, spec["template"], _TEMPLATE)
    return causes + long_running_causes(spec["template"], _TEMPLATE, "ReplicationController")


def _deployment_strategy_causes(strategy: dict[str, Any], path: str) -> list[Cause]:
    kind, rolling, here = strategy.get("type", ""), strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if kind == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden(here, detail)]
    if kind != "RollingUpdate":
        shown = {"Type": kind, "RollingUpdate": _bounds(rolling)}
        return [not_supported(path, shown, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required(here, "this should be defaulted and never be nil")]
    away, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    causes = share_causes(away, f"{here}.maxUnavailable") + share_causes(surge, f"{here}.maxSurge")
    if is_nothing(away) and is_nothing(surge):
        causes.append(invalid(f"{here}.maxUnavailable", away, "may not be 0 when `maxSurge` is 0"))
    return causes + whole_causes(away, f"{here}.maxUnavailable")


def _bounds(rolling: dict[str, Any] | None) -> dict[str, Any] | None:
    """The bounds of a rolling update as Go shows them."""
    if rolling is None:
        return None
    return {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}


def daemon_set_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a DaemonSet."""
    spec = body.get("spec", {})
    selector, template = spec.get("selector"), spec.get("template", {})
    causes = selector_causes(selector or {}, "spec.selector")
    if not causes:
        causes += mismatch_causes(selector, template, _TEMPLATE)
    if selector is not None and not is_selective(selector):
        causes.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    causes += long_running_causes(template, _TEMPLATE, "DaemonSet")
    causes += count_causes(spec, _SPEC, "minReadySeconds")
    causes += _daemon_strategy_causes(spec.get("updateStrategy", {}), "spec.updateStrategy")
    return causes + count_causes(spec, _SPEC, "revisionHistoryLimit")


def _daemon_strategy_causes(strategy: dict[str, Any], path: str) -> list[Cause]:
    kind, rolling, here = strategy.get("type", ""), strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        shown = {"Type": kind, "RollingUpdate": _bounds(rolling)}
        return [not_supported(path, shown, ("RollingUpdate", "OnDelete"))]
    if rolling is None:
        return [required(here)]
    causes: list[Cause] = []
    away, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    for field, value in (("maxUnavailable", away), ("maxSurge", surge)):
        causes += share_causes(value, f"{here}.{field}") + whole_causes(value, f"{here}.{field}")
    if not is_nothing(away) and not is_nothing(surge):
        causes.append(invalid(f"{here}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    if is_nothing(away) and is_nothing(surge):
        causes.append(required(f"{here}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


def new_stateful_set_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new StatefulSet; its claims stay as they were made."""
    return stateful_set_causes(body, claims_judged=True)


def stateful_set_causes(body: dict[str, Any], *, claims_judged: bool = False) -> list[Cause]:
    """What is wrong with a StatefulSet."""
    spec = body.get("spec", {})
    policy = spec.get("podManagementPolicy", "")
    causes: list[Cause] = []
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    causes += _stateful_strategy_causes(spec.get("updateStrategy", {}), "spec.updateStrategy")
    retention = "persistentVolumeClaimRetentionPolicy"
    for field in ("whenDeleted", "whenScaled"):
        causes += choice_causes(spec.get(retention, {}), field, ("Retain", "Delete"), f"spec.{retention}")
    claims = spec.get("volumeClaimTemplates", ())
    for index, claim in enumerate(claims if claims_judged else ()):
        causes += claim_spec_causes(claim.get("spec", {}), f"spec.volumeClaimTemplates[{index}].spec")
    causes += count_causes(spec, _SPEC, "replicas", "minReadySeconds")
    causes += count_causes(spec.get("ordinals", {}), "spec.ordinals", "start")
    service = spec.get("serviceName", "")
    causes += reason_causes("spec.serviceName", service, names.dns_label(service)) if service else []
    selector, template = spec.get("selector"), spec.get("template", {})
    causes += controller_selector_causes(selector, "spec.selector", "statefulset")
    if selector is not None and selector_causes(selector, ""):
        return [*causes, invalid("spec.selector", selector, "")]
    causes += mismatch_causes(selector, template, _TEMPLATE)
    return causes + long_running_causes(_with_claims(template, claims), _TEMPLATE, "StatefulSet")


def _with_claims(template: dict[str, Any], claims: Any) -> dict[str, Any]:
    """The template with a volume for every claim that each pod will get, which stands before one of that name."""
    claimed = [str(claim.get("metadata", {}).get("name", "")) for claim in claims]
    if not claimed:
        return template
    spec = template.get("spec", {})
    own = [volume for volume in spec.get("volumes", ()) if volume.get("name") not in claimed]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claimed)]
    return {**template, "spec": {**spec, "volumes": [*own, *made]}}


def _stateful_strategy_causes(strategy: dict[str, Any], path: str) -> list[Cause]:
    kind, rolling, here = strategy.get("type", ""), strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    shown = None if rolling is None else {"Partition": rolling.get("partition", 0), "MaxUnavailable": None}
    if shown is not None and rolling is not None:
        shown["MaxUnavailable"] = rolling.get("maxUnavailable")
    if not kind:
        return [required(path)]
    if kind == "OnDelete":
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        return [] if rolling is None else [invalid(here, shown, detail)]
    if kind != "RollingUpdate":
        return [invalid(path, {"Type": kind, "RollingUpdate": shown}, "must be 'RollingUpdate' or 'OnDelete'")]
    return count_causes(rolling or {}, here, "partition")


def disruption_budget_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PodDisruptionBudget."""
    spec = body.get("spec", {})
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    causes: list[Cause] = []
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            causes += share_causes(value, f"spec.{field}") + whole_causes(value, f"spec.{field}")
    causes += choice_causes(spec, "unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"), "spec")
    return causes + selector_causes(spec.get("selector", {}), "spec.selector")


def revision_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ControllerRevision."""
    revision = body.get("revision", 0)
    wrong = [] if revision >= 0 else [invalid("revision", revision, "must be greater than or equal to 0")]
    return wrong if "data" in body else [*wrong, required("data", "data is mandatory")]


def pod_template_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PodTemplate."""
    return template_causes(body.get("template", {}), "template")
