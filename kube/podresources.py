"""What a pod asks for and may use altogether, as scheduler, quota and limit ranges count it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.quantities import Quantity, parse_quantity

Amounts = Mapping[str, Quantity]

_QUALITY = ("cpu", "memory")


def amounts(values: object) -> dict[str, Quantity]:
    """A resource list. Raises ``InvalidQuantity``; what is no map is empty."""
    return {name: parse_quantity(value) for name, value in values.items()} if isinstance(values, Mapping) else {}


def add(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """The sum, name by name."""
    return {name: _sum(left.get(name), right.get(name)) for name in {**left, **right}}


def subtract(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    """The difference, name by name, never below zero: using less frees nothing of what others need."""
    rest = {name: amount - right[name] if name in right else amount for name, amount in left.items()}
    return {name: amount if amount.nanos > 0 else Quantity(0, amount.format) for name, amount in rest.items()}


def pod_requests(pod: Mapping[str, Any]) -> dict[str, Quantity]:
    """The pod's requests: containers and sidecars together or the largest init step, and the overhead."""
    spec = pod.get("spec") or {}
    total = _total(spec, "requests")
    return add(total, amounts(spec.get("overhead")))


def pod_limits(pod: Mapping[str, Any]) -> dict[str, Quantity]:
    """The pod's limits, counted as its requests are; the overhead counts only where there is a limit."""
    spec = pod.get("spec") or {}
    total = _total(spec, "limits")
    overhead = amounts(spec.get("overhead"))
    return {name: amount + overhead[name] if name in overhead else amount for name, amount in total.items()}


def is_best_effort(pod: Mapping[str, Any]) -> bool:
    """Whether no container asks for cpu or memory, nor is limited in them (quality of service)."""
    spec = pod.get("spec") or {}
    holders = [*containers(spec), spec]
    lists = [(holder.get("resources") or {}).get(kind) for holder in holders for kind in ("requests", "limits")]
    return not any(amounts(values).get(name) for values in lists for name in _QUALITY)


def has_pod_level_resources(pod: Mapping[str, Any]) -> bool:
    """Whether the pod as a whole has requests or limits, which then stand for its containers'."""
    resources = (pod.get("spec") or {}).get("resources") or {}
    named = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(_at_pod_level(name) for name in named)


def containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod's containers, then its init containers."""
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _total(spec: Mapping[str, Any], kind: str) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        total = add(total, _of(container, kind))
    sidecars: dict[str, Quantity] = {}
    largest: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        own = _of(container, kind)
        if container.get("restartPolicy") == "Always":
            total, sidecars = add(total, own), add(sidecars, own)
            step = sidecars
        else:
            step = add(own, sidecars)
        largest = _larger(largest, step)
    total = _larger(total, largest)
    level = amounts((spec.get("resources") or {}).get(kind))
    return {**total, **{name: amount for name, amount in level.items() if _at_pod_level(name)}}


def _of(container: Mapping[str, Any], kind: str) -> dict[str, Quantity]:
    return amounts((container.get("resources") or {}).get(kind))


def _larger(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    return {**left, **{name: amount for name, amount in right.items() if name not in left or amount > left[name]}}


def _sum(left: Quantity | None, right: Quantity | None) -> Quantity:
    if left is None or right is None:
        return left or right or Quantity()
    return left + right


def _at_pod_level(name: str) -> bool:
    return name in _QUALITY or name.startswith("hugepages-")
