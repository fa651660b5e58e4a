"""Pods and what makes them."""

from __future__ import annotations

from typing import Any, Final

from kube.objects.columns.base import (
    TableConvertor,
    age_of,
    at,
    condition_of,
    containers_of,
    convertor,
    format_selector,
    labels_text,
    limited,
    name_of,
    simple,
)
from kube.objects.columns.pods import pod_cells
from kube.requests.durations import age, human_duration, parse_time


def _deployment(item: dict[str, Any], now: float) -> list[Any]:
    ready, wanted = at(item, "status", "readyReplicas", default=0), at(item, "spec", "replicas", default=0)
    return [
        name_of(item),
        f"{ready}/{wanted}",
        at(item, "status", "updatedReplicas", default=0),
        at(item, "status", "availableReplicas", default=0),
        age_of(item, now),
        *containers_of(at(item, "spec", "template", "spec")),
        format_selector(at(item, "spec", "selector"), ""),
    ]


def _replicas(item: dict[str, Any], now: float) -> list[Any]:
    selector = at(item, "spec", "selector")
    plain = item.get("kind") == "ReplicationController"
    return [
        name_of(item),
        at(item, "spec", "replicas", default=0),
        at(item, "status", "replicas", default=0),
        at(item, "status", "readyReplicas", default=0),
        age_of(item, now),
        *containers_of(at(item, "spec", "template", "spec")),
        labels_text(selector) if plain else format_selector(selector),
    ]


def _daemon_set(item: dict[str, Any], now: float) -> list[Any]:
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(item),
        *(at(item, "status", count, default=0) for count in counts),
        labels_text(at(item, "spec", "template", "spec", "nodeSelector")),
        age_of(item, now),
        *containers_of(at(item, "spec", "template", "spec")),
        format_selector(at(item, "spec", "selector")),
    ]


def _stateful_set(item: dict[str, Any], now: float) -> list[Any]:
    ready, wanted = at(item, "status", "readyReplicas", default=0), at(item, "spec", "replicas", default=0)
    return [
        name_of(item),
        f"{ready}/{wanted}",
        age_of(item, now),
        *containers_of(at(item, "spec", "template", "spec")),
    ]


def _job(item: dict[str, Any], now: float) -> list[Any]:
    succeeded = at(item, "status", "succeeded", default=0)
    completions, parallelism = at(item, "spec", "completions"), at(item, "spec", "parallelism", default=0)
    if completions is not None:
        progress = f"{succeeded}/{completions}"
    else:
        progress = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started = parse_time(at(item, "status", "startTime"))
    ended = parse_time(at(item, "status", "completionTime"))
    lasted = "" if started is None else human_duration((now if ended is None else ended) - started)
    return [
        name_of(item),
        _job_status(item),
        progress,
        lasted,
        age_of(item, now),
        *containers_of(at(item, "spec", "template", "spec")),
        format_selector(at(item, "spec", "selector")),
    ]


def _job_status(item: dict[str, Any]) -> str:
    def holds(type_: str) -> bool:
        return bool(at(condition_of(item, type_), "status") == "True")

    for type_, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if holds(type_):
            return shown
    if at(item, "metadata", "deletionTimestamp"):
        return "Terminating"
    for type_ in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if holds(type_):
            return type_
    return "Running"


def _cron_job(item: dict[str, Any], now: float) -> list[Any]:
    last = at(item, "status", "lastScheduleTime")
    template = at(item, "spec", "jobTemplate", "spec")
    return [
        name_of(item),
        at(item, "spec", "schedule", default=""),
        at(item, "spec", "timeZone", default="<none>"),
        str(bool(at(item, "spec", "suspend"))),
        len(at(item, "status", "active", default=())),
        "<none>" if last is None else age(last, now),
        age_of(item, now),
        *containers_of(at(template, "template", "spec")),
        format_selector(at(template, "selector")),
    ]


def _pod_template(item: dict[str, Any], _now: float) -> list[Any]:
    names, images = containers_of(at(item, "template", "spec"))
    return [name_of(item), names, images, labels_text(at(item, "template", "metadata", "labels"))]


def _controller_revision(item: dict[str, Any], now: float) -> list[Any]:
    owners = at(item, "metadata", "ownerReferences", default=())
    owner = next((o for o in owners if at(o, "controller")), None)
    shown = "<none>"
    if owner is not None:
        group = str(at(owner, "apiVersion", default="")).rpartition("/")[0]
        kind = str(at(owner, "kind", default="")).lower()
        shown = f"{kind}{'.' + group if group else ''}/{at(owner, 'name', default='')}"
    return [name_of(item), shown, at(item, "revision", default=0), age_of(item, now)]


def _disruption_budget(item: dict[str, Any], now: float) -> list[Any]:
    return [
        name_of(item),
        str(at(item, "spec", "minAvailable", default="N/A")),
        str(at(item, "spec", "maxUnavailable", default="N/A")),
        at(item, "status", "disruptionsAllowed", default=0),
        age_of(item, now),
    ]


def _autoscaler(item: dict[str, Any], now: float) -> list[Any]:
    spec, target = at(item, "spec", default={}), at(item, "spec", "scaleTargetRef", default={})
    return [
        name_of(item),
        f"{at(target, 'kind', default='')}/{at(target, 'name', default='')}",
        _metrics(item),
        str(at(spec, "minReplicas", default="<unset>")),
        at(spec, "maxReplicas", default=0),
        at(item, "status", "currentReplicas", default=0),
        age_of(item, now),
    ]


def _metrics(item: dict[str, Any]) -> str:
    spec, status = at(item, "spec", default={}), at(item, "status", default={})
    if "targetCPUUtilizationPercentage" in spec:
        now = at(status, "currentCPUUtilizationPercentage")
        return f"cpu: {'<unknown>' if now is None else f'{now}%'}/{spec['targetCPUUtilizationPercentage']}%"
    measured = at(status, "currentMetrics", default=())
    shown = [
        _metric(metric, measured[index] if index < len(measured) else None)
        for index, metric in enumerate(at(spec, "metrics", default=()))
    ]
    return limited(shown, 2, ", ") or "<none>"


def _metric(metric: Any, measured: Any) -> str:
    type_ = str(at(metric, "type", default=""))
    field = type_[:1].lower() + type_[1:]
    target, current = at(metric, field, "target", default={}), at(measured, field, "current", default={})
    prefix = f"{at(metric, field, 'name', default='')}: " if field in ("resource", "containerResource") else ""
    if "averageValue" in target:
        suffix = " (avg)" if field in ("external", "object") else ""
        return f"{prefix}{at(current, 'averageValue', default='<unknown>')}/{target['averageValue']}{suffix}"
    if prefix:
        now, wanted = at(current, "averageUtilization"), at(target, "averageUtilization")
        return f"{prefix}{'<unknown>' if now is None else f'{now}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    return f"{at(current, 'value', default='<unknown>')}/{at(target, 'value', default='')}"


CONVERTORS: Final[dict[tuple[str, str], TableConvertor]] = {
    ("", "Pod"): convertor("Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates", pod_cells),
    ("", "PodTemplate"): convertor("Name|Containers|Images|Pod Labels", _pod_template),
    ("", "ReplicationController"): convertor(
        "Name|#Desired|#Current|#Ready|Age|+Containers|+Images|+Selector", _replicas
    ),
    ("apps", "ReplicaSet"): convertor("Name|#Desired|#Current|#Ready|Age|+Containers|+Images|+Selector", _replicas),
    ("apps", "Deployment"): convertor("Name|Ready|Up-to-date|Available|Age|+Containers|+Images|+Selector", _deployment),
    ("apps", "StatefulSet"): convertor("Name|Ready|Age|+Containers|+Images", _stateful_set),
    ("apps", "DaemonSet"): convertor(
        "Name|#Desired|#Current|#Ready|#Up-to-date|#Available|Node Selector|Age|+Containers|+Images|+Selector",
        _daemon_set,
    ),
    ("apps", "ControllerRevision"): convertor("Name|Controller|Revision|Age", _controller_revision),
    ("batch", "Job"): convertor("Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector", _job),
    ("batch", "CronJob"): convertor(
        "Name|Schedule|Timezone|?Suspend|#Active|Last Schedule|Age|+Containers|+Images|+Selector", _cron_job
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): convertor(
        "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age", _autoscaler
    ),
    ("autoscaling", "Scale"): convertor(
        "Name|#Desired|#Available|Age", simple("int:spec.replicas", "int:status.replicas")
    ),
    ("policy", "PodDisruptionBudget"): convertor(
        "Name|Min Available|Max Unavailable|#Allowed Disruptions|Age", _disruption_budget
    ),
}
"""(group, kind) → convertor."""
