"""What a pod asks for and may use altogether, as scheduler, quota and limit ranges count it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.quota.quantities import Quantity, parse_quantity

Amounts = Mapping[str, Quantity]

_QUALITY = ("cpu", "memory")


def amounts(values: object) -> dict[str, Quantity]:
    """A resource list. Raises ``InvalidQuantity``; what is no map is empty."""
    return {name: parse_quantity(value) for name, value in values.items()} if isinstance(values, dict) else {}


def add(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """The sum, name by name."""
    if not left or not right:
        return dict(left or right)
    return {name: _sum(left.get(name), right.get(name)) for name in {**left, **right}}


def subtract(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """The difference, name by name, never below zero: using less frees nothing of what others need."""
    rest = {name: amount - right[name] if name in right else amount for name, amount in left.items()}
    return {name: amount if amount.nanos > 0 else Quantity(0, amount.format) for name, amount in rest.items()}


def pod_requests(pod: Mapping[str, Any]) -> dict[str, Quantity]:
    """The pod's requests: containers and sidecars together or the largest init step, and the overhead."""
    spec = pod.get("spec") or {}
    total, overhead = _total(spec, "requests"), spec.get("overhead")
    return add(total, amounts(overhead)) if overhead else total


def pod_limits(pod: Mapping[str, Any]) -> dict[str, Quantity]:
    """The pod's limits, counted as its requests are; the overhead counts only where there is a limit."""
    spec = pod.get("spec") or {}
    total, overhead = _total(spec, "limits"), amounts(spec.get("overhead"))
    return {name: amount + overhead[name] if name in overhead else amount for name, amount in total.items()}


def in_effect(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod as it holds resources while it is resized, by its status.

    That is the most of what each container and sidecar wants, has been given and uses; where the node has said that it
    cannot be, what it wants does not count.
    """
    spec, status = pod.get("spec") or {}, pod.get("status")
    if not status:
        return pod
    statuses = {
        item.get("name"): item
        for field in ("containerStatuses", "initContainerStatuses")
        for item in status.get(field) or ()
        if item.get("resources") is not None
    }
    if not statuses:
        return pod
    wanted = not is_infeasible(status)
    changed = {
        field: [
            # What an init container wants is over when it ends.
            _held(container, statuses.get(container.get("name")), wanted=wanted)
            if field == "containers" or container.get("restartPolicy") == "Always"
            else container
            for container in spec.get(field) or ()
        ]
        for field in ("containers", "initContainers")
    }
    return {**pod, "spec": {**spec, **changed}}


def is_infeasible(status: Mapping[str, Any]) -> bool:
    """Whether a pod's status says that its node cannot give it what it wants."""
    pending = [item for item in status.get("conditions") or () if item.get("type") == "PodResizePending"]
    return bool(pending) and pending[0].get("reason") == "Infeasible"


def _held(container: Mapping[str, Any], status: Mapping[str, Any] | None, *, wanted: bool) -> Mapping[str, Any]:
    if status is None:
        return container
    actual = status["resources"]
    held = {
        "requests": larger(amounts(actual.get("requests")), amounts(status.get("allocatedResources"))),
        "limits": amounts(actual.get("limits")),
    }
    if wanted:
        held = {kind: larger(_of(container, kind), amount) for kind, amount in held.items()}
    resources = {kind: {name: str(amount) for name, amount in held[kind].items()} for kind in held}
    return {**container, "resources": {**(container.get("resources") or {}), **resources}}


def is_best_effort(pod: Mapping[str, Any]) -> bool:
    """Whether no container asks for cpu or memory, nor is limited in them (quality of service)."""
    spec = pod.get("spec") or {}
    holders = [*containers(spec), spec]
    lists = [(holder.get("resources") or {}).get(kind) for holder in holders for kind in ("requests", "limits")]
    return not any(amounts(values).get(name) for values in lists for name in _QUALITY)


def quality(spec: Mapping[str, Any]) -> str:
    """The quality-of-service class, by what the pod as a whole or each of its containers asks for and may use."""
    holders = [spec] if "resources" in spec else containers(spec)
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for holder in holders:
        own = _counted(_of(holder, "limits"))
        limits = add(limits, own)
        requests = add(requests, _counted(_of(holder, "requests")))
        guaranteed = guaranteed and len(own) == len(_QUALITY)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def has_pod_level_resources(pod: Mapping[str, Any]) -> bool:
    """Whether the pod as a whole has requests or limits, which then stand for its containers'."""
    resources = (pod.get("spec") or {}).get("resources")
    if not resources:
        return False
    named = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(at_pod_level(name) for name in named)


def containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod's containers, then its init containers."""
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _total(spec: Mapping[str, Any], kind: str) -> dict[str, Quantity]:
    total, level = of_containers(spec, kind), spec.get("resources")
    if level:
        total |= {name: amount for name, amount in amounts(level.get(kind)).items() if at_pod_level(name)}
    return total


def of_containers(spec: Mapping[str, Any], kind: str) -> dict[str, Quantity]:
    """What the containers need together: all of them and the sidecars, or the largest init step."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        own = _of(container, kind)
        total = add(total, own) if total else own
    steps = spec.get("initContainers")
    if not steps:
        return total
    sidecars: dict[str, Quantity] = {}
    largest: dict[str, Quantity] = {}
    for container in steps:
        own = _of(container, kind)
        if container.get("restartPolicy") == "Always":
            total, sidecars = add(total, own), add(sidecars, own)
            step = sidecars
        else:
            step = add(own, sidecars)
        largest = larger(largest, step)
    return larger(total, largest)


def _of(container: Mapping[str, Any], kind: str) -> dict[str, Quantity]:
    return amounts((container.get("resources") or {}).get(kind))


def _counted(values: Amounts) -> dict[str, Quantity]:
    return {name: values[name] for name in _QUALITY if name in values and values[name].nanos > 0}


def larger(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """The more of both, name by name."""
    return {**left, **{name: amount for name, amount in right.items() if name not in left or amount > left[name]}}


def _sum(left: Quantity | None, right: Quantity | None) -> Quantity:
    if left is None or right is None:
        return left or right or Quantity()
    return left + right


def at_pod_level(name: str) -> bool:
    """Whether a pod as a whole may ask for a resource of this name."""
    return name in _QUALITY or name.startswith("hugepages-")
