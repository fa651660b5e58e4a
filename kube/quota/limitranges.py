"""LimitRanges: defaults for containers that state nothing, and bounds for containers, pods and claims (AD1, AD2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kube.quota.podresources import Amounts, amounts, containers, pod_limits, pod_requests
from kube.quota.quantities import Quantity

ANNOTATION: Final = "kubernetes.io/limit-ranger"

_MILLI_MAX: Final = (2**63 - 1) // 1000
"""Amounts above are compared in whole units, as in Kubernetes."""


def with_defaults(limit_range: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the limit range's default requests and limits, and the annotation that says which were set."""
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for limit in _limits(limit_range, "Container"):
        requests.update(limit.get("defaultRequest") or {})
        limits.update(limit.get("default") or {})
    spec = dict(pod.get("spec") or {})
    notes: list[str] = []
    for field, words in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(field):
            spec[field] = [_filled(container, requests, limits, words, notes) for container in spec[field]]
    if not notes:
        return dict(pod)
    metadata = dict(pod.get("metadata") or {})
    annotation = "LimitRanger plugin set: " + "; ".join(notes)
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: annotation}
    return {**pod, "metadata": metadata, "spec": spec}


def violations(limit_range: Mapping[str, Any], resource: str, item: Mapping[str, Any]) -> str:
    """What is beyond the bounds, as kubectl shows it after ``is forbidden: ``; empty when nothing is.

    ``resource`` is ``pods`` or ``persistentvolumeclaims``; everything else has no bounds. Raises ``InvalidQuantity``.
    """
    found = list(dict.fromkeys(_violations(limit_range, resource, item)))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


def _violations(limit_range: Mapping[str, Any], resource: str, item: Mapping[str, Any]) -> Iterator[str]:
    spec = item.get("spec") or {}
    if resource == "persistentvolumeclaims":
        requests = amounts((spec.get("resources") or {}).get("requests"))
        for limit in _limits(limit_range, "PersistentVolumeClaim"):
            yield from _each(limit, "min", lambda name, bound: _minimum(_CLAIM, name, bound, requests, {}))
            yield from _each(limit, "max", lambda name, bound: _maximum_request(_CLAIM, name, bound, requests))
    if resource != "pods":
        return
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == "Container":
            for container in containers(spec):
                stated = container.get("resources") or {}
                yield from _bounds(limit, "Container", amounts(stated.get("requests")), amounts(stated.get("limits")))
        elif limit.get("type") == "Pod":
            yield from _bounds(limit, "Pod", pod_requests(item), pod_limits(item))


_CLAIM: Final = "PersistentVolumeClaim"


def _bounds(limit: Mapping[str, Any], kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _each(limit, "min", lambda name, bound: _minimum(kind, name, bound, requests, limits))
    yield from _each(limit, "max", lambda name, bound: _maximum(kind, name, bound, requests, limits))
    yield from _each(limit, "maxLimitRequestRatio", lambda name, bound: _ratio(kind, name, bound, requests, limits))


def _each(limit: Mapping[str, Any], field: str, check: Callable[[str, Quantity], str]) -> Iterator[str]:
    for name, bound in sorted(amounts(limit.get(field)).items()):
        words = check(name, bound)
        if words:
            yield words


def _minimum(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    words = f"minimum {name} usage per {kind} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if request is None:
        return f"{words}.  No request is specified"
    asked, allowed, least = _comparable(request, limit, bound)
    if asked < least:
        return f"{words}, but request is {request}"
    return f"{words}, but limit is {limit}" if limit is not None and allowed < least else ""


def _maximum(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    words = f"maximum {name} usage per {kind} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if limit is None:
        return f"{words}.  No limit is specified"
    asked, allowed, most = _comparable(request, limit, bound)
    if allowed > most:
        return f"{words}, but limit is {limit}"
    return f"{words}, but request is {request}" if request is not None and asked > most else ""


def _maximum_request(kind: str, name: str, bound: Quantity, requests: Amounts) -> str:
    words = f"maximum {name} usage per {kind} is {bound}"
    request = requests.get(name)
    if request is None:
        return f"{words}.  No request is specified"
    asked, _, most = _comparable(request, None, bound)
    return f"{words}, but request is {request}" if asked > most else ""


def _ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    words = f"{name} max limit to request ratio per {kind} is {bound}"
    asked, allowed, _ = _comparable(requests.get(name), limits.get(name), bound)
    if not asked:
        return f"{words}, but no request is specified or request is 0"
    if not allowed:
        return f"{words}, but no limit is specified or limit is 0"
    # Exact: allowed / asked > bound, with the bound in thousandths as Kubernetes keeps it.
    if allowed * 1000 > bound.milli() * asked:
        return f"{words}, but provided ratio is {allowed / asked:f}"
    return ""


def _comparable(request: Quantity | None, limit: Quantity | None, bound: Quantity) -> tuple[int, int, int]:
    three = [request or Quantity(), limit or Quantity(), bound]
    values = [quantity.value() for quantity in three]
    if all(value <= _MILLI_MAX for value in values):
        values = [quantity.milli() for quantity in three]
    return values[0], values[1], values[2]


def _limits(limit_range: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    return [limit for limit in (limit_range.get("spec") or {}).get("limits") or () if limit.get("type") == kind]


def _filled(
    container: Mapping[str, Any], requests: Mapping[str, Any], limits: Mapping[str, Any], words: str, notes: list[str]
) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for field, defaults, name in (("requests", requests, "request"), ("limits", limits, "limit")):
        stated = dict(resources.get(field) or {})
        added = sorted(defaults.keys() - stated.keys())
        if added:
            notes.append(f"{', '.join(added)} {name} for {words} {container.get('name', '')}")
            resources[field] = {**stated, **{key: defaults[key] for key in added}}
    return {**container, "resources": resources}
