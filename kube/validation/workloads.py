"""Controllers of pods: selectors that find their own templates, counts that are counts."""

from __future__ import annotations

from typing import Any, Final

from kube import names
from kube.status import Cause
from kube.validation.causes import immutable, invalid, not_supported, required
from kube.validation.metadata import selector_causes
from kube.validation.pods import template_causes

_STRATEGIES: Final = {
    "Deployment": ("strategy", ("Recreate", "RollingUpdate")),
    "StatefulSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
    "DaemonSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
}
_JOB_RESTARTS: Final = ("Never", "OnFailure")


def controller_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    spec, kind = body.get("spec", {}), str(body.get("kind", ""))
    selector = spec.get("selector")
    causes = counts(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        causes += selector_causes(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind.lower()}"))
            selector = None
    if "template" in spec:
        causes += template_causes(spec["template"], "spec.template", selector=selector)
    field, choices = _STRATEGIES.get(kind, ("", ()))
    chosen = spec.get(field, {}).get("type")
    if field and chosen not in (None, *choices):
        causes.append(not_supported(f"spec.{field}.type", chosen, choices))
    if kind == "Deployment" and "progressDeadlineSeconds" in spec:
        seconds = spec["progressDeadlineSeconds"]
        if 0 <= seconds <= spec.get("minReadySeconds", 0):
            causes.append(invalid("spec.progressDeadlineSeconds", seconds, "must be greater than minReadySeconds"))
    return causes


def replication_controller_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ReplicationController, whose selector is a plain map."""
    spec = body.get("spec", {})
    causes = counts(spec, "spec", "replicas", "minReadySeconds")
    selector = spec.get("selector", {})
    if not selector:
        causes.append(required("spec.selector"))
    if "template" not in spec:
        causes.append(required("spec.template"))
    else:
        causes += template_causes(spec["template"], "spec.template", selector={"matchLabels": selector})
    return causes


def job_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Job."""
    return job_spec_causes(body.get("spec", {}), "spec")


def job_spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a job's spec, in a Job or a CronJob."""
    causes = counts(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    )
    if "selector" in spec:
        causes += selector_causes(spec["selector"], f"{path}.selector")
    mode = spec.get("completionMode")
    if mode not in (None, "Indexed", "NonIndexed"):
        causes.append(not_supported(f"{path}.completionMode", mode, ("Indexed", "NonIndexed")))
    if mode == "Indexed" and "completions" not in spec:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if "template" in spec:
        template = spec["template"]
        causes += template_causes(template, f"{path}.template", restarts=_JOB_RESTARTS, selector=spec.get("selector"))
    return causes


def job_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What an update of a Job may not change; a suspended one's scheduling hints are open."""
    after, before = new.get("spec", {}), old.get("spec", {})
    fields = [
        "selector",
        "completionMode",
        "template",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ]
    if after.get("completionMode") != "Indexed" or after.get("completions") != after.get("parallelism"):
        fields.append("completions")
    suspended = before.get("suspend") and not old.get("status", {}).get("startTime")
    return [
        immutable(f"spec.{field}", after.get(field))
        for field in fields
        if (_open(after) if suspended and field == "template" else after.get(field))
        != (_open(before) if suspended and field == "template" else before.get(field))
    ]


def _open(spec: dict[str, Any]) -> dict[str, Any]:
    """A suspended job's template without what may still change: placement and metadata."""
    mutable = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    pod = {key: value for key, value in spec.get("template", {}).get("spec", {}).items() if key not in mutable}
    pod["containers"] = [{k: v for k, v in c.items() if k != "resources"} for c in pod.get("containers", ())]
    return pod


def cron_job_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a CronJob."""
    spec = body.get("spec", {})
    causes = counts(spec, "spec", "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    schedule = spec.get("schedule", "")
    if not schedule:
        causes.append(required("spec.schedule"))
    elif "TZ" in schedule:
        causes.append(
            invalid("spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        )
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        detail = f"expected exactly 5 fields, found {len(schedule.split())}: [{schedule}]"
        causes.append(invalid("spec.schedule", schedule, detail))
    policy = spec.get("concurrencyPolicy")
    choices = ("Allow", "Forbid", "Replace")
    if policy not in (None, *choices):
        causes.append(not_supported("spec.concurrencyPolicy", policy, choices))
    name = body.get("metadata", {}).get("name", "")
    if len(name) > 52:
        causes.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    return causes + job_spec_causes(spec.get("jobTemplate", {}).get("spec", {}), "spec.jobTemplate.spec")


def autoscaler_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a HorizontalPodAutoscaler."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        causes.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < 1:
        causes.append(invalid("spec.maxReplicas", most, "must be greater than 0"))
    if most < least:
        causes.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef", {})
    for field in ("kind", "name"):
        value = target.get(field, "")
        if not value:
            causes.append(required(f"spec.scaleTargetRef.{field}"))
        else:
            here = f"spec.scaleTargetRef.{field}"
            causes += [invalid(here, value, reason) for reason in names.path_segment(value)]
    return causes


def disruption_budget_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PodDisruptionBudget."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {key: spec[key] for key in ("minAvailable", "maxUnavailable")}
        causes.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            causes += share_causes(spec[field], f"spec.{field}")
    return causes + selector_causes(spec.get("selector", {}), "spec.selector")


def pod_template_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PodTemplate."""
    return template_causes(body.get("template", {}), "template", selector=None)


def share_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with a count or a percentage."""
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if not value.endswith("%") or not (digits.isascii() and digits.isdigit()):
            detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%', "
            return [invalid(path, value, detail + "regex used for validation is '[0-9]+%')")]
        return []
    return [] if value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]


def counts(spec: dict[str, Any], path: str, *fields: str) -> list[Cause]:
    """The fields that are negative and may not be."""
    detail = "must be greater than or equal to 0"
    return [invalid(f"{path}.{field}", spec[field], detail) for field in fields if spec.get(field, 0) < 0]
