"""Jobs, and CronJobs that make them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from zoneinfo import available_timezones

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    count_causes,
    duplicate,
    immutable,
    invalid,
    key_path,
    not_supported,
    reason_causes,
    required,
    too_long,
    too_many,
    unshown,
)
from kube.requests.status import Cause
from kube.validation.indexes import count_indexes
from kube.validation.jobstatuses import job_status_causes
from kube.validation.metadata import selector_causes
from kube.validation.pods import template_causes
from kube.validation.schedules import schedule_reason
from kube.validation.selectors import mismatch_causes

_RESTARTS: Final = ("OnFailure", "Never")
_MODES: Final = ("NonIndexed", "Indexed")
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_MANAGED_BY_MAX: Final = 63
_INDEXED_MAX: Final = 100_000
_INDEXED_MANY_MAX: Final = 10_000
_INDEXES: Final = "error parsing succeededIndexes: "
_NAME_MAX: Final = 52
_RULES_MAX: Final = 20
_CODES_MAX: Final = 255


def job_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Job."""
    spec, name = body.get("spec", {}), body.get("metadata", {}).get("name", "")
    causes = _generated_causes(body) + whole_job_spec_causes(spec)
    if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
        host = f"{name}-{spec['completions'] - 1}"
        if names.dns_label(host):
            detail = f"will not able to create pod with invalid DNS label: {host}"
            causes.append(invalid("metadata.name", name, detail))
    return causes


def whole_job_spec_causes(spec: dict[str, Any]) -> list[Cause]:
    """What is wrong with the spec of a Job that has its selector."""
    causes = _job_spec_causes(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        causes += selector_causes(selector, "spec.selector")
    if selector is None or not selector_causes(selector, ""):
        causes += mismatch_causes(selector, spec.get("template", {}), "spec.template")
    return causes


def _generated_causes(body: dict[str, Any]) -> list[Cause]:
    """The labels that tell a job's pods are the server's to give, unless the author manages the selector."""
    spec, metadata = body.get("spec", {}), body.get("metadata", {})
    if spec.get("manualSelector") or "selector" not in spec:
        return []
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    causes: list[Cause] = []
    for key, wanted in (
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ):
        here = key_path("spec.template.metadata.labels", key)
        if key not in labels:
            causes.append(required(here, f"must be '{wanted}'"))
        elif labels[key] != wanted:
            causes.append(invalid(here, dict(sorted(labels.items())), f"must be '{wanted}'"))
    if spec["selector"] != {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}:
        causes.append(invalid("spec.selector", spec["selector"], "`selector` not auto-generated"))
    return causes


def _job_spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a job's spec but for its selector, in a Job or a CronJob."""
    causes = count_causes(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    causes += _manager_causes(spec, f"{path}.managedBy")
    causes += choice_causes(spec, "completionMode", _MODES, path)
    causes += _index_causes(spec, path)
    causes += _failure_causes(spec, f"{path}.podFailurePolicy")
    causes += _success_causes(spec, f"{path}.successPolicy")
    policies = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    causes += choice_causes(spec, "podReplacementPolicy", policies, path)
    template = spec.get("template", {})
    causes += template_causes(template, f"{path}.template")
    policy, here = template.get("spec", {}).get("restartPolicy", ""), f"{path}.template.spec.restartPolicy"
    if policy == "Always":
        causes.append(required(here, 'valid values: "OnFailure", "Never"'))
    elif policy not in _RESTARTS:
        causes.append(not_supported(here, policy, _RESTARTS))
    elif "podFailurePolicy" in spec and policy != "Never":
        causes.append(invalid(here, policy, 'only "Never" is supported when podFailurePolicy is specified'))
    return causes


def _manager_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    manager = spec.get("managedBy")
    if manager is None:
        return []
    causes = prefixed_path_causes(manager, path) if manager else [required(path)]
    return [*causes, too_long(path, _MANAGED_BY_MAX)] if len(manager) > _MANAGED_BY_MAX else causes


def prefixed_path_causes(text: str, path: str) -> list[Cause]:
    """What is wrong with a path that a domain stands before."""
    domain, _, rest = text.partition("/")
    if not domain or not rest:
        return [invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    causes = reason_causes(path, domain, names.dns_subdomain(domain))
    if not re.fullmatch(names.PATH_FORMAT, rest):
        detail = f"Invalid path (regex used for validation is '{names.PATH_FORMAT}')"
        causes.append(invalid(path, rest, detail))
    return causes


def _index_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What belongs to jobs whose completions are numbered, and how large these may be."""
    causes: list[Cause] = []
    per_index = ("backoffLimitPerIndex", "maxFailedIndexes")
    if spec.get("completionMode", "NonIndexed") not in _MODES:
        return []
    if spec.get("completionMode") != "Indexed":
        return [
            invalid(f"{path}.{field}", spec[field], "requires indexed completion mode")
            for field in per_index
            if field in spec
        ]
    if "completions" not in spec:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    if parallelism > _INDEXED_MAX:
        detail = f"must be less than or equal to {_INDEXED_MAX} when completion mode is Indexed"
        causes.append(invalid(f"{path}.parallelism", parallelism, detail))
    failed, here = spec.get("maxFailedIndexes"), f"{path}.maxFailedIndexes"
    if failed is not None and completions is not None and failed > completions:
        causes.append(invalid(here, failed, "must be less than or equal to completions"))
    if failed is not None and failed > _INDEXED_MAX:
        causes.append(invalid(here, failed, f"must be less than or equal to {_INDEXED_MAX}"))
    if completions is not None and completions > _INDEXED_MAX and "backoffLimitPerIndex" in spec:
        many = f"when completions are above {_INDEXED_MAX} and used with backoff limit per index"
        if failed is None:
            causes.append(required(here, f"must be specified when completions is above {_INDEXED_MAX}"))
        if parallelism > _INDEXED_MANY_MAX:
            detail = f"must be less than or equal to {_INDEXED_MANY_MAX} {many}"
            causes.append(invalid(f"{path}.parallelism", parallelism, detail))
        if failed is not None and failed > _INDEXED_MANY_MAX:
            causes.append(invalid(here, failed, f"must be less than or equal to {_INDEXED_MANY_MAX} {many}"))
    return causes


def _failure_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    pod = spec.get("template", {}).get("spec", {})
    containers = {c.get("name") for field in ("containers", "initContainers") for c in pod.get(field, ())}
    causes: list[Cause] = []
    rules = spec.get("podFailurePolicy", {}).get("rules", ())
    if len(rules) > _RULES_MAX:
        return [too_many(f"{path}.rules", len(rules), _RULES_MAX)]
    for index, rule in enumerate(rules):
        here, action = f"{path}.rules[{index}]", rule.get("action", "")
        if not action:
            causes.append(required(f"{here}.action", _choice(_ACTIONS)))
        elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            causes.append(invalid(f"{here}.action", action, "requires the backoffLimitPerIndex to be set"))
        elif action not in _ACTIONS:
            causes.append(not_supported(f"{here}.action", action, _ACTIONS))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            causes += _exit_code_causes(codes, f"{here}.onExitCodes", containers)
        if conditions and len(conditions) > _RULES_MAX:
            causes.append(too_many(f"{here}.onPodConditions", len(conditions), _RULES_MAX))
            conditions = conditions[:0]
        for position, condition in enumerate(conditions or ()):
            kind, place = condition.get("type", ""), f"{here}.onPodConditions[{position}]"
            causes += reason_causes(f"{place}.type", kind, names.qualified_name(kind))
            causes += choice_causes(condition, "status", ("False", "True", "Unknown"), place)
        if codes is not None and conditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            causes.append(unshown(here, detail))
        if codes is None and not conditions:
            causes.append(unshown(here, "specifying one of OnExitCodes and OnPodConditions is required"))
    return causes


def _choice(words: tuple[str, ...]) -> str:
    shown = " ".join(f'"{word}"' for word in words)
    return f"valid values: [{shown}]"


def _exit_code_causes(codes: dict[str, Any], path: str, containers: set[Any]) -> list[Cause]:
    operator, values, container = codes.get("operator", ""), codes.get("values", []), codes.get("containerName")
    causes: list[Cause] = []
    if not operator:
        causes.append(required(f"{path}.operator", _choice(("In", "NotIn"))))
    elif operator not in ("In", "NotIn"):
        causes.append(not_supported(f"{path}.operator", operator, ("In", "NotIn")))
    if container is not None and container not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", container, detail))
    if not values:
        causes.append(invalid(f"{path}.values", codes.get("values"), "at least one value is required"))
    if len(values) > _CODES_MAX:
        causes.append(too_many(f"{path}.values", len(values), _CODES_MAX))
    seen: set[int] = set()
    for index, value in enumerate(values):
        here = f"{path}.values[{index}]"
        if value in seen:
            causes.append(duplicate(here, value))
        seen.add(value)
        if operator == "In" and value == 0:
            causes.append(invalid(here, value, "must not be 0 for the In operator"))
    if any(after < before for before, after in pairwise(values)):
        causes.append(invalid(f"{path}.values", values, "must be ordered"))
    return causes


def _success_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    policy = spec.get("successPolicy")
    if policy is None:
        return []
    rules = policy.get("rules", [])
    if spec.get("completionMode") != "Indexed":
        return [invalid(path, _shown(policy), "requires indexed completion mode")]
    causes = (
        []
        if rules
        else [required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")]
    )
    if len(rules) > _RULES_MAX:
        causes.append(too_many(f"{path}.rules", len(rules), _RULES_MAX))
    completions = spec.get("completions", 0)
    for index, rule in enumerate(rules):
        here, indexes, count = f"{path}.rules[{index}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(here, detail))
        total, reason = (0, "") if indexes is None else count_indexes(indexes, completions)
        if indexes is not None and reason:
            causes.append(invalid(f"{here}.succeededIndexes", indexes, f"{_INDEXES}{reason}"))
        if count is None:
            continue
        place = f"{here}.succeededCount"
        causes += count_causes(rule, here, "succeededCount")
        if count > completions:
            words = f"{completions} (the number of specified completions)"
            causes.append(invalid(place, count, f"must be less than or equal to {words}"))
        if indexes is not None and count > total:
            words = f"{total} (the number of indexes in the specified succeededIndexes field)"
            causes.append(invalid(place, count, f"must be less than or equal to {words}"))
    return causes


def job_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What an update of a Job or of its status may not change; where a suspended one runs, and with how much, is open."""
    after, before = new.get("spec", {}), old.get("spec", {})
    causes = _completions_causes(after, before)
    for field in (
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ):
        value = after.get(field)
        if field == "template":
            causes += _template_causes(after, old)
        elif value != before.get(field):
            causes.append(immutable(f"spec.{field}", _shown(value) if field == "successPolicy" else value))
    return causes + job_status_causes(new, old)


def _completions_causes(after: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    wanted = after.get("completions")
    if wanted == before.get("completions"):
        return []
    if after.get("completionMode") != "Indexed":
        return [immutable("spec.completions", wanted)]
    if wanted is None or wanted == after.get("parallelism"):
        return []
    return [invalid("spec.completions", wanted, "can only be modified in tandem with spec.parallelism")]


def _template_causes(after: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    before, status = old.get("spec", {}), old.get("status") or {}
    conditions = status.get("conditions") or ()
    halted = any(each.get("type") == "Suspended" and each.get("status") == "True" for each in conditions)
    new, was = after.get("template", {}), before.get("template", {})
    if not before.get("suspend") or not ("startTime" not in status or halted) or status.get("active", 0):
        return [] if new == was else [immutable("spec.template", new)]
    new, was = new.get("spec", {}), was.get("spec", {})
    return [] if _open(new) == _open(was) else [immutable("spec.template.spec", new)]


def _shown(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """A success policy as Go shows it."""
    if policy is None:
        return None
    names_of = (("SucceededIndexes", "succeededIndexes"), ("SucceededCount", "succeededCount"))
    return {"Rules": [{shown: rule.get(name) for shown, name in names_of} for rule in policy.get("rules", [])]}


def _open(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod of a suspended job without what may still change: placement and amounts."""
    fixed = {key: value for key, value in pod.items() if key not in ("nodeSelector", "tolerations", "schedulingGates")}
    affinity = {key: value for key, value in (fixed.pop("affinity", None) or {}).items() if key != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in each.items() if k != "resources"} for each in fixed[field]]
    return {**fixed, **affinity}


def cron_job_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a CronJob."""
    spec = body.get("spec", {})
    schedule = spec.get("schedule", "")
    causes: list[Cause] = []
    if not schedule:
        causes.append(required("spec.schedule"))
    elif "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid("spec.schedule", schedule, detail))
    else:
        reason = schedule_reason(schedule)
        causes += [invalid("spec.schedule", schedule, reason)] if reason else []
    causes += _zone_causes(spec.get("timeZone"), "spec.timeZone")
    causes += count_causes(spec, "spec", "startingDeadlineSeconds")
    causes += choice_causes(spec, "concurrencyPolicy", ("Allow", "Forbid", "Replace"), "spec")
    job, here = spec.get("jobTemplate", {}).get("spec", {}), "spec.jobTemplate.spec"
    causes += _job_spec_causes(job, here)
    if "selector" in job:
        causes.append(invalid(f"{here}.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        causes.append(not_supported(f"{here}.manualSelector", True, ("nil", "false")))
    causes += count_causes(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    name = body.get("metadata", {}).get("name", "")
    if len(name) > _NAME_MAX:
        causes.append(invalid("metadata.name", name, f"must be no more than {_NAME_MAX} characters"))
    return causes


def _zone_causes(zone: str | None, path: str) -> list[Cause]:
    if zone is None:
        return []
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid(path, zone, detail)]
    return [] if zone in _zones() else [invalid(path, zone, f"unknown time zone {zone}")]


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """The names of IANA's time zones that Python knows."""
    return frozenset(available_timezones())
