"""What a page says about one object: facts in words, conditions, containers, what it belongs to. Read with distrust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.display.tables import state_verdict
from kube.display.text import visible

_TEXT: Final = 500
_MANY: Final = 50
_REPLICATED: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
_UNWELL: Final = frozenset(
    {"ReplicaFailure", "Failed", "FailureTarget", "DisruptionTarget", "MemoryPressure", "DiskPressure", "Stalled"}
)
"""Conditions that are bad news when they are true."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and what is to be said."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One of ``status.conditions``."""

    type: str
    status: str
    verdict: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod and how it is."""

    name: str
    image: str
    state: str
    verdict: str
    restarts: int
    detail: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Another object, by what is said of it."""

    api_version: str
    kind: str
    name: str


def facts_of(found: Mapping[str, Any]) -> list[Fact]:
    """What its kind is asked for most; nothing that is not there."""
    kind, spec, status = text_at(found, "kind"), _dict(found.get("spec")), _dict(found.get("status"))
    facts: list[tuple[str, Any]] = []
    if kind in _REPLICATED:
        facts.append(("Replicas", _replicas(spec, status)))
    if kind == "DaemonSet":
        counts = (status.get("numberReady", 0), status.get("desiredNumberScheduled", 0))
        facts.append(("Pods", f"{counts[0]} of {counts[1]} ready"))
    if kind == "Job":
        done = ", ".join(f"{status[name]} {name}" for name in ("active", "succeeded", "failed") if status.get(name))
        facts.append(("Pods", done or "none yet"))
    if kind == "CronJob":
        facts += [("Schedule", spec.get("schedule")), ("Last run", status.get("lastScheduleTime"))]
        facts.append(("Suspended", "yes" if spec.get("suspend") is True else "no"))
    if kind == "Pod":
        facts += [("Phase", status.get("phase")), ("Reason", status.get("reason")), ("Message", status.get("message"))]
        facts += [("Node", spec.get("nodeName")), ("Address", status.get("podIP"))]
        facts += [("Quality of service", status.get("qosClass")), ("Service account", spec.get("serviceAccountName"))]
    if kind == "Service":
        facts += [("Type", spec.get("type")), ("Cluster address", spec.get("clusterIP")), ("Ports", _ports(spec))]
    if kind == "Ingress":
        hosts = [rule.get("host") or "any host" for rule in _list(spec.get("rules"))]
        facts += [("Class", spec.get("ingressClassName")), ("Hosts", ", ".join(map(str, hosts)))]
    if kind == "PersistentVolumeClaim":
        wanted = _dict(_dict(spec.get("resources")).get("requests")).get("storage")
        facts += [("State", status.get("phase")), ("Capacity", _dict(status.get("capacity")).get("storage") or wanted)]
        facts += [("Storage class", spec.get("storageClassName")), ("Volume", spec.get("volumeName"))]
    if kind in {"Secret", "Event"}:
        facts += [("Type", found.get("type"))]
    if kind == "RoleBinding":
        facts += [("Role", "/".join(str(_dict(found.get("roleRef")).get(name, "")) for name in ("kind", "name")))]
        facts += [("For", ", ".join(f"{each.get('kind')} {each.get('name')}" for each in _list(found.get("subjects"))))]
    if kind != "Pod":
        images = [str(each.get("image", "")) for each in _list(_pod_spec(spec).get("containers"))]
        facts.append(("Images", ", ".join(dict.fromkeys(images))))
    return [
        Fact(label, visible(text, most=_TEXT))
        for label, value in facts
        if (text := "" if value is None else str(value))
    ]


def conditions_of(found: Mapping[str, Any]) -> list[Condition]:
    """The conditions as they are written."""
    made = []
    for each in _list(_dict(found.get("status")).get("conditions"))[:_MANY]:
        type_, status = str(each.get("type", "")), str(each.get("status", ""))
        bad = type_ in _UNWELL
        verdict = {"True": "deny" if bad else "allow", "False": "pass" if bad else "wait"}.get(status, "wait")
        texts = (str(each.get(name) or "") for name in ("reason", "message", "lastTransitionTime"))
        reason, message, since = (visible(text, most=_TEXT) for text in texts)
        made.append(Condition(visible(type_, most=64), visible(status, most=16), verdict, reason, message, since))
    return made


def containers_of(found: Mapping[str, Any]) -> list[Container]:
    """A pod's containers, those that begin first before the others."""
    if found.get("kind") != "Pod":
        return []
    spec, status, made = _dict(found.get("spec")), _dict(found.get("status")), []
    for part in ("initContainers", "containers", "ephemeralContainers"):
        reports = {each.get("name"): each for each in _list(status.get(f"{part[:-1]}Statuses"))}
        for each in _list(spec.get(part))[:_MANY]:
            report = reports.get(each.get("name"), {})
            state, detail = _state(_dict(report.get("state")))
            verdict = (
                "allow" if report.get("ready") is True or state in {"Running", "Completed"} else state_verdict(state)
            )
            restarts = report.get("restartCount")
            name, image = str(each.get("name", "")), visible(str(each.get("image", "")), most=_TEXT)
            made.append(Container(name, image, state, verdict, restarts if isinstance(restarts, int) else 0, detail))
    return made


def owners_of(found: Mapping[str, Any]) -> list[Reference]:
    """What it belongs to."""
    return [
        Reference(str(each.get("apiVersion", "")), str(each.get("kind", "")), str(each.get("name", "")))
        for each in _list(_dict(found.get("metadata")).get("ownerReferences"))[:_MANY]
    ]


def pods_selector(found: Mapping[str, Any]) -> str:
    """The label selector of the pods that are its; empty where it has none or one that nothing simple says."""
    spec = _dict(found.get("spec"))
    selector = _dict(spec.get("selector"))
    if found.get("kind") == "Service":
        labels = selector
    elif selector.get("matchExpressions"):
        return ""
    else:
        labels = _dict(selector.get("matchLabels"))
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()) if isinstance(value, str))


def texts_of(found: Mapping[str, Any], part: str) -> list[Fact]:
    """``labels`` or ``annotations``."""
    texts = _dict(_dict(found.get("metadata")).get(part))
    return [Fact(visible(name, most=_TEXT), visible(str(text), most=_TEXT)) for name, text in sorted(texts.items())]


def replicas_of(found: Mapping[str, Any]) -> int | None:
    """How many are wanted, where that can be said."""
    wanted = _dict(found.get("spec")).get("replicas")
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None


def text_at(found: Mapping[str, Any], *path: str) -> str:
    """A text somewhere in it; empty where there is none."""
    value: Any = found
    for name in path:
        value = _dict(value).get(name)
    return value if isinstance(value, str) else ""


def _state(state: Mapping[str, Any]) -> tuple[str, str]:
    for name in ("waiting", "terminated", "running"):
        if name not in state:
            continue
        said = _dict(state[name])
        reason = str(said.get("reason") or name.capitalize())
        code = f"exit code {said['exitCode']}" if name == "terminated" and "exitCode" in said else ""
        detail = "; ".join(text for text in (code, str(said.get("message") or "")) if text)
        return visible(reason, most=64), visible(detail, most=_TEXT)
    return "Not started", ""


def _replicas(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas")
    text = f"{ready} of {wanted} ready"
    return f"{text}, {updated} up to date" if isinstance(updated, int) and updated != wanted else text


def _ports(spec: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{port.get('port')} → {port.get('targetPort', port.get('port'))}/{port.get('protocol', 'TCP')}"
        for port in _list(spec.get("ports"))
    )


def _pod_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    job = _dict(_dict(spec.get("jobTemplate")).get("spec"))
    return _dict(_dict(_dict((job or spec).get("template"))).get("spec"))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
