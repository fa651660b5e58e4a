"""Requests and limits, of containers and of whole pods."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from kube.quota.podresources import of_containers
from kube.quota.quantities import InvalidQuantity
from kube.requests import names
from kube.requests.fielderrors import duplicate, forbidden, invalid, key_path, not_found, not_supported, required
from kube.requests.status import Cause
from kube.validation.quantities import amount, amount_causes, integer_causes

_COMPUTE: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_INTEGERS: Final = frozenset(
    (
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    )
)
_STANDARD: Final = (
    _COMPUTE
    | _INTEGERS
    | frozenset(
        (
            "limits.cpu",
            "limits.ephemeral-storage",
            "limits.memory",
            "requests.cpu",
            "requests.ephemeral-storage",
            "requests.memory",
            "requests.storage",
            "storage",
        )
    )
)
_QUOTA: Final = _STANDARD - {"storage"}
_NATIVE: Final = "kubernetes.io/"
_REQUESTS: Final = "requests."

NameRule = Callable[[str, str], list[Cause]]


def is_huge(name: str) -> bool:
    """Whether a resource is huge pages of some size."""
    return name.startswith("hugepages-")


def is_quota_standard(name: str) -> bool:
    """Whether a quota may limit a resource of this name, which nobody's domain stands before."""
    return name in _QUOTA or name.startswith(("hugepages-", "requests.hugepages-"))


def is_native(name: str) -> bool:
    """Whether a resource is Kubernetes' own."""
    return "/" not in name or _NATIVE in name


def resource_name_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of any resource."""
    causes = [invalid(path, name, reason) for reason in names.qualified_name(name)]
    if not causes and "/" not in name and name not in _STANDARD and not is_quota_standard(name):
        causes.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return causes


def container_resource_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of a resource that a container asks for."""
    causes = resource_name_causes(name, path)
    if "/" not in name:
        if name not in _COMPUTE and not is_huge(name):
            causes.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and (name.startswith(_REQUESTS) or names.qualified_name(f"{_REQUESTS}{name}")):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def pod_resource_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of a resource that a pod as a whole asks for."""
    causes = resource_name_causes(name, path)
    if not causes and name not in ("cpu", "memory") and not is_huge(name):
        causes.append(not_supported(path, name, ("cpu", "hugepages-", "memory")))
    return causes


def quota_resource_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of a resource that a quota limits."""
    causes = resource_name_causes(name, path)
    if "/" not in name and not is_quota_standard(name):
        causes.append(invalid(path, name, "must be a standard resource for quota"))
    return causes


def resource_amount_causes(name: str, quantity: Any, path: str) -> list[Cause]:
    """What is wrong with the amount of a resource."""
    causes = amount_causes(quantity, path)
    whole = name in _INTEGERS or name.startswith("count/") or (not is_native(name) and not name.startswith(_REQUESTS))
    return causes + (integer_causes(quantity, path) if whole else [])


def requirement_causes(
    resources: dict[str, Any], path: str, *, rule: NameRule = container_resource_causes, claims: Collection[str] = ()
) -> list[Cause]:
    """What is wrong with requests, limits and claims; ``claims`` are the names of the pod's."""
    causes: list[Cause] = []
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, quantity in limits.items():
        here = key_path(f"{path}.limits", name)
        causes += rule(name, here) + resource_amount_causes(name, quantity, here) + _huge_causes(name, quantity, here)
    for name, quantity in requests.items():
        here = key_path(f"{path}.requests", name)
        causes += rule(name, here) + resource_amount_causes(name, quantity, here)
        causes += _bound_causes(name, quantity, limits, path) + _huge_causes(name, quantity, here)
    asked = {*limits, *requests}
    if any(map(is_huge, asked)) and not asked & {"cpu", "memory"}:
        causes.append(forbidden(path, "HugePages require cpu or memory"))
    return causes + _claim_causes(resources.get("claims", ()), f"{path}.claims", claims)


def _bound_causes(name: str, quantity: Any, limits: dict[str, Any], path: str) -> list[Cause]:
    """Requests keep to limits; what cannot be shared is limited to just what is asked."""
    shared = is_native(name) and not is_huge(name)
    if name not in limits:
        detail = "Limit must be set for non overcommitable resources"
        return [] if shared else [required(f"{path}.limits", detail)]
    asked, limit = amount(quantity), amount(limits[name])
    if asked is None or limit is None:
        return []
    if asked != limit and not shared:
        return [invalid(f"{path}.requests", quantity, f"must be equal to {name} limit of {limits[name]}")]
    if asked > limit:
        return [invalid(f"{path}.requests", quantity, f"must be less than or equal to {name} limit of {limits[name]}")]
    return []


def _huge_causes(name: str, quantity: Any, path: str) -> list[Cause]:
    if not is_huge(name):
        return []
    size, wanted = amount(name.removeprefix("hugepages-")), amount(quantity)
    if size is None or wanted is None:
        return []
    whole = size.nanos > 0 and wanted.nanos > 0 and wanted.nanos % size.nanos == 0
    return [] if whole else [invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}")]


def _claim_causes(claims: Any, path: str, known: Collection[str]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name, request = f"{path}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            causes.append(required(here))
            continue
        key = f"{name}/{request}" if request else name
        if name in seen or (not request and any(other.startswith(f"{name}/") for other in seen)):
            causes.append(duplicate(here, name))
        else:
            causes += [invalid(f"{here}.request", request, r) for r in (names.dns_label(request) if request else ())]
            if key in seen:
                causes.append(duplicate(here, key))
            seen.add(key)
        if name not in known:
            words = f": {', '.join(sorted(known))}" if known else " which is empty"
            causes.append(not_found(here, name, f"must be one of the names in pod.spec.resourceClaims{words}"))
    return causes


def pod_level_causes(spec: dict[str, Any], path: str, claims: Collection[str]) -> list[Cause]:
    """What is wrong with the requests and limits of a pod as a whole."""
    resources = spec.get("resources")
    if resources is None:
        return []
    causes: list[Cause] = []
    if resources.get("claims"):
        causes.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    causes += requirement_causes(resources, path, rule=pod_resource_causes, claims=claims)
    limits = resources.get("limits", {})
    causes += _together_causes(spec, "requests", path) + _together_causes(spec, "limits", path)
    for index, container in enumerate(spec.get("containers", ())):
        for name, quantity in container.get("resources", {}).get("limits", {}).items():
            limit, given = amount(limits.get(name)), amount(quantity)
            if limit is not None and given is not None and given > limit:
                here = key_path(f"{path}.containers[{index}]", name)
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                causes.append(invalid(f"{here}.limits", quantity, detail))
    return causes


def _together_causes(spec: dict[str, Any], kind: str, path: str) -> list[Cause]:
    """A pod as a whole asks for no less than its containers together; only huge pages are limited so, too."""
    given = spec["resources"].get(kind, {})
    try:
        together = of_containers(spec, kind)
    except InvalidQuantity:
        return []
    causes: list[Cause] = []
    for name, wanted in together.items():
        whole = amount(given.get(name))
        if whole is not None and wanted > whole and (kind == "requests" or is_huge(name)):
            detail = f"must be greater than or equal to aggregate container {kind} of {wanted}"
            causes.append(invalid(key_path(f"{path}.{kind}", name), given[name], detail))
    return causes
