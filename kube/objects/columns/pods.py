"""The row of a pod: which of its containers' states ``STATUS`` shows."""

from __future__ import annotations

from typing import Any

from kube.objects.columns.base import age_of, at, name_of
from kube.requests.durations import age, parse_time


def pod_cells(item: dict[str, Any], now: float) -> list[Any]:
    """Name, ready containers, status, restarts, age; addresses, nodes and readiness gates for ``-o wide``."""
    spec, status = at(item, "spec", default={}), at(item, "status", default={})
    sidecars = {
        at(container, "name")
        for container in at(spec, "initContainers", default=())
        if at(container, "restartPolicy") == "Always"
    }
    init = _init_state(status, sidecars, len(at(spec, "initContainers", default=())))
    reason = _phase(status)
    ready, counted = init.ready, init.statuses
    if init.reason:
        reason = init.reason
    if not init.reason or _holds(status, "Initialized"):
        reason, running = _main_reason(status, reason)
        ready += running
        containers = at(status, "containerStatuses", default=())
        counted = [*(s for s in init.statuses if at(s, "name") in sidecars), *containers]
    if at(item, "metadata", "deletionTimestamp"):
        if at(status, "reason") == "NodeLost":
            reason = "Unknown"
        elif at(status, "phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    addresses = at(status, "podIPs", default=())
    return [
        name_of(item),
        f"{ready}/{len(at(spec, 'containers', default=())) + len(sidecars)}",
        reason,
        _restarts(counted, now),
        age_of(item, now),
        (at(addresses[0], "ip") if addresses else at(status, "podIP")) or "<none>",
        at(spec, "nodeName") or "<none>",
        at(status, "nominatedNodeName") or "<none>",
        _readiness_gates(spec, status),
    ]


class _Init:
    """How far the init containers are. ``reason`` is empty when they are through."""

    def __init__(self, statuses: list[Any]) -> None:
        self.reason = ""
        self.ready = 0
        self.statuses = statuses


def _phase(status: Any) -> str:
    for condition in at(status, "conditions", default=()):
        if at(condition, "type") == "PodScheduled" and at(condition, "reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(at(status, "reason") or at(status, "phase") or "")


def _init_state(status: Any, sidecars: set[Any], total: int) -> _Init:
    statuses = list(at(status, "initContainerStatuses", default=()))
    found = _Init(statuses)
    for index, container in enumerate(statuses):
        terminated, waiting = (
            at(container, "state", "terminated"),
            at(container, "state", "waiting", "reason"),
        )
        if terminated is not None and not at(terminated, "exitCode", default=0):
            continue
        if at(container, "name") in sidecars and at(container, "started"):
            found.ready += bool(at(container, "ready"))
            continue
        if terminated is not None:
            found.reason = f"Init:{_ended(terminated)}"
        elif waiting and waiting != "PodInitializing":
            found.reason = f"Init:{waiting}"
        else:
            found.reason = f"Init:{index}/{total}"
        found.statuses = statuses[: index + 1]
        break
    return found


def _ended(terminated: Any) -> str:
    if at(terminated, "reason"):
        return str(terminated["reason"])
    if at(terminated, "signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{at(terminated, 'exitCode', default=0)}"


def _main_reason(status: Any, reason: str) -> tuple[str, int]:
    """The reason that the main containers give, the first container's last, and how many of them are ready."""
    running, failure = 0, ""
    for container in reversed(at(status, "containerStatuses", default=[])):
        waiting, terminated = (
            at(container, "state", "waiting", "reason"),
            at(container, "state", "terminated"),
        )
        if waiting:
            reason = str(waiting)
        elif terminated is not None:
            reason = _ended(terminated)
            if at(terminated, "exitCode", default=0):
                failure = reason
        elif at(container, "ready") and at(container, "state", "running") is not None:
            running += 1
    if reason == "Completed":
        if running and _holds(status, "Ready"):
            reason = "Running"
        elif failure:
            reason = failure
        elif running:
            reason = "NotReady"
    return reason, running


def _holds(status: Any, type_: str) -> bool:
    return any(
        at(condition, "type") == type_ and at(condition, "status") == "True"
        for condition in at(status, "conditions", default=())
    )


def _restarts(statuses: list[Any], now: float) -> str:
    count = sum(at(container, "restartCount", default=0) for container in statuses)
    ends = [at(container, "lastState", "terminated", "finishedAt") for container in statuses]
    last = max((end for end in ends if end), key=lambda end: parse_time(end) or 0.0, default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _readiness_gates(spec: Any, status: Any) -> str:
    gates = [at(gate, "conditionType") for gate in at(spec, "readinessGates", default=())]
    if not gates:
        return "<none>"
    return f"{sum(_holds(status, gate) for gate in gates)}/{len(gates)}"
