"""What an object consumes of a ResourceQuota, and whether there is room (AD2, AD3).

Pure arithmetic on exact quantities, with kube-apiserver's words. Holding it under concurrency is the caller's: the
amounts returned by ``demand`` are to be reserved in the transaction that writes the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kube.quota.deviceclaims import BY_PODS_TOO, DEVICE_CLAIMS, OF_CLASS, REQUESTED, devices
from kube.quota.podresources import (
    Amounts,
    add,
    amounts,
    containers,
    has_pod_level_resources,
    in_effect,
    is_best_effort,
    pod_limits,
    pod_requests,
    subtract,
)
from kube.quota.quantities import UNITS_MAX, Format, Quantity

_NANO: Final = 10**9
ONE: Final = Quantity(_NANO)
NONE: Final = Quantity(0)

_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_REQUESTS: Final = "requests."
_PLAIN_COUNTS: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
"""Kinds of the core group whose number is limited by their bare name as well as by ``count/…``."""

_NAMES_MAX: Final = 256
"""Resources of which it is remembered what limits them: there are fewer, but anybody may ask about any."""

COUNTED_METADATA: Final = ("annotations", "deletionTimestamp", "deletionGracePeriodSeconds")
"""What of an object's metadata says how much it takes, or whether it is within a scope."""

UNTIL_GONE: Final = datetime.min.replace(tzinfo=UTC)
"""As ``now``: no grace period is over, so a pod that is being deleted counts until it is there no more.

Whoever settles what a pod gives back by what it counted must not ask the clock, which says another thing to each who asks.
"""
ONCE_MARKED: Final = datetime.max.replace(tzinfo=UTC)
"""As ``now``: every grace period is over. So it is where nobody gets any: a pod that is kept here waits for finalizers alone."""

_MUST_SPECIFY: Final[Mapping[str, tuple[str, str]]] = {
    "cpu": ("requests", "cpu"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
}
"""What every container states where a quota limits it, and where it does."""
_POD_NAMES: Final = frozenset(
    {
        *_MUST_SPECIFY,
        "count/pods",
        "ephemeral-storage",
        "limits.ephemeral-storage",
        "pods",
        "requests.ephemeral-storage",
    }
)
_POD_PREFIXES: Final = ("hugepages-", "requests.hugepages-")


class QuotaExceeded(Exception):
    """An object that a quota does not admit; the message is what kubectl shows after ``is forbidden: ``.

    ``requested`` is what it asks for of all that is short; nothing where it does not say what it must.
    """

    def __init__(self, message: str, *, requested: Amounts | None = None) -> None:
        super().__init__(message)
        self.requested: Amounts = requested or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One condition of a quota. ``operator`` is ``Exists``, ``DoesNotExist``, ``In`` or ``NotIn``."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``Terminating``, ``PriorityClass In high``."""
        return self.name if self.operator == "Exists" else " ".join((self.name, self.operator, *self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A ResourceQuota as far as arithmetic needs it. All ``scopes`` must match for an object to be counted."""

    name: str
    hard: Amounts
    scopes: tuple[Scope, ...] = ()
    _names: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def names(self, group: str, resource: str) -> tuple[str, ...]:
        """Those by which it limits a resource. Asked of every write, so that it is remembered."""
        found = self._names.get((group, resource))
        if found is None:
            found = tuple(name for name in self.hard if _concerns(name, group, resource))
            if len(self._names) < _NAMES_MAX:
                self._names[group, resource] = found
        return found


def read_quota(quota: Mapping[str, Any]) -> Quota:
    """Read a ResourceQuota's spec. Raises ``InvalidQuantity`` for an amount that is none."""
    spec = quota.get("spec") or {}
    return Quota(name=quota["metadata"]["name"], hard=amounts(spec.get("hard")), scopes=read_scopes(spec))


def read_scopes(spec: Mapping[str, Any]) -> tuple[Scope, ...]:
    """The scopes of a quota's spec, those of its selector too."""
    scopes = [Scope(name=name) for name in spec.get("scopes") or ()]
    scopes.extend(
        Scope(
            name=expression.get("scopeName", ""),
            operator=expression.get("operator", ""),
            values=tuple(expression.get("values") or ()),
        )
        for expression in (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    )
    return tuple(scopes)


def usage(group: str, resource: str, item: Mapping[str, Any], *, now: datetime) -> dict[str, Quantity]:
    """What an object consumes, by quota resource name. ``now`` decides when a terminating pod is gone.

    ``UNTIL_GONE`` and ``ONCE_MARKED`` say it without a clock. Raises ``InvalidQuantity`` for an amount that is none.
    """
    count = {f"count/{resource}.{group}" if group else f"count/{resource}": ONE}
    if group:
        return {**count, **devices(item)} if (group, resource) == DEVICE_CLAIMS else count
    if resource == "pods":
        return {**count, **_pod_usage(item, now)}
    if resource == "services":
        return {**count, **_service_usage(item.get("spec") or {})}
    if resource == "persistentvolumeclaims":
        return {**count, **_claim_usage(item)}
    return {**count, resource: ONE} if resource in _PLAIN_COUNTS else count


def held(group: str, resource: str, item: Mapping[str, Any], *, now: datetime) -> dict[str, Quantity]:
    """As ``usage``, of an object that is there, whatever it says of itself.

    Never less than nothing, which would make room elsewhere, nor more than can be added up and kept. Raises
    ``InvalidQuantity``.
    """
    return {name: bounded(amount) for name, amount in usage(group, resource, item, now=now).items()}


def bounded(amount: Quantity) -> Quantity:
    """As much of an amount as an object can take."""
    return min(max(amount, NONE), UNITS_MAX)


def demand(
    quota: Quota,
    group: str,
    resource: str,
    item: Mapping[str, Any],
    *,
    old: Mapping[str, Any] | None = None,
    now: datetime,
) -> dict[str, Quantity]:
    """What a create, or an update from ``old``, takes of one quota more than before; only names that it limits.

    Raises ``QuotaExceeded`` when a quota demands requests or limits that the object does not state, or when an
    amount is negative; ``InvalidQuantity`` for an amount that is none.
    """
    wanted = asked(quota, group, resource, item, now=now)
    if wanted and old is not None and counts(quota, group, resource, old):
        wanted = subtract(wanted, usage(group, resource, old, now=now))
    return {name: amount for name, amount in wanted.items() if amount}


def asked(quota: Quota, group: str, resource: str, item: Mapping[str, Any], *, now: datetime) -> dict[str, Quantity]:
    """What an object that is written takes of the names that a quota limits. Raises what ``demand`` does."""
    if not counts(quota, group, resource, item):
        return {}
    names = quota.names(group, resource)
    if not group and resource == "pods" and (missing := _unspecified(names, item)):
        raise QuotaExceeded(f"failed quota: {quota.name}: must specify {missing}")
    wanted = usage(group, resource, item, now=now)
    require_none_negative(wanted)
    return {name: wanted[name] for name in names if name in wanted}


def require_none_negative(wanted: Amounts) -> None:
    """Raise ``QuotaExceeded`` for what would take less than nothing."""
    negative = sorted(name for name, amount in wanted.items() if amount.nanos < 0)
    if negative:
        raise QuotaExceeded(f"quota usage is negative for resource(s): {','.join(negative)}")


def check(quota: Quota, requested: Amounts, used: Amounts) -> None:
    """Whether there is room for ``requested`` beside ``used``. Raises ``QuotaExceeded`` naming what is short."""
    short = [name for name in sorted(requested) if used.get(name, NONE) + requested[name] > quota.hard[name]]
    if short:
        raise QuotaExceeded(
            f"exceeded quota: {quota.name}, requested: {_listed(short, requested)}, "
            f"used: {_listed(short, used)}, limited: {_listed(short, quota.hard)}",
            requested={name: requested[name] for name in short},
        )


def counts(quota: Quota, group: str, resource: str, item: Mapping[str, Any]) -> bool:
    """Whether a quota limits anything about an object, and the object is within the quota's scopes."""
    if not quota.names(group, resource):
        return False
    return in_scopes(quota.scopes, group, resource, item)


def in_scopes(scopes: Iterable[Scope], group: str, resource: str, item: Mapping[str, Any]) -> bool:
    """Whether an object is within all of a quota's scopes; pods and claims alone are in any."""
    return all(_in_scope(scope, group, resource, item) for scope in scopes)


def total(usages: Iterable[Amounts], quota: Quota) -> dict[str, Quantity]:
    """The sum of what objects consume, for every name that the quota limits (``status.used``)."""
    used: dict[str, Quantity] = {name: Quantity(0, _format(name)) for name in quota.hard}
    for one in usages:
        used = add(used, {name: amount for name, amount in one.items() if name in used})
    return used


def _format(name: str) -> Format:
    return Format.BINARY if name.endswith(("memory", "storage")) else Format.DECIMAL


def _listed(names: Iterable[str], values: Amounts) -> str:
    return ",".join(f"{name}={values.get(name, NONE)}" for name in names if name in values)


def _concerns(name: str, group: str, resource: str) -> bool:
    if group:
        of_devices = (group, resource) == DEVICE_CLAIMS and (name.endswith(OF_CLASS) or name.startswith(BY_PODS_TOO))
        return of_devices or name == f"count/{resource}.{group}"
    if resource == "pods":
        return name in _POD_NAMES or name.startswith(_POD_PREFIXES) or _is_extended(name)
    if resource == "services":
        return name in ("count/services", "services", "services.loadbalancers", "services.nodeports")
    if resource == "persistentvolumeclaims":
        plain = ("persistentvolumeclaims", "requests.storage")
        return (
            name == "count/persistentvolumeclaims"
            or name in plain
            or name.endswith(tuple(_STORAGE_CLASS + part for part in plain))
        )
    return name == f"count/{resource}" or (resource in _PLAIN_COUNTS and name == resource)


def _is_extended(name: str) -> bool:
    """Whether a quota's resource name limits an extended resource (``requests.example.com/gpu``)."""
    bare = name.removeprefix(_REQUESTS)
    return name != bare and "/" in bare and _STORAGE_CLASS not in bare and not _is_native(bare)


def _is_native(name: str) -> bool:
    if name.startswith(REQUESTED):
        return False
    domain, slash, _ = name.rpartition("/")
    return not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is told to have run to its end, in success or failure."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def wished(subresource: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What whoever writes an object wants of it: by ``/status`` all but the status, which tells what is so."""
    if new is None or subresource != "status":
        return new
    return {**new, "status": (old or {}).get("status")}


def _pod_usage(pod: Mapping[str, Any], now: datetime) -> dict[str, Quantity]:
    """A pod that has ended, or whose grace period is over, takes its place in the store and nothing else."""
    if has_ended(pod) or _is_gone(pod, now):
        return {}
    held = in_effect(pod)
    return _computed(pod_requests(held), pod_limits(held))


def _computed(requests: Amounts, limits: Amounts) -> dict[str, Quantity]:
    result = {"pods": ONE}
    for name, amount in requests.items():
        if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
            result[name] = result[_REQUESTS + name] = amount
        elif not _is_native(name):
            result[_REQUESTS + name] = amount
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name in limits:
            result[f"limits.{name}"] = limits[name]
    return result


def _is_gone(pod: Mapping[str, Any], now: datetime) -> bool:
    metadata = pod.get("metadata") or {}
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not isinstance(deleted, str) or not isinstance(grace, int):
        return False
    try:
        return now > datetime.fromisoformat(deleted) + timedelta(seconds=grace)
    except (ValueError, OverflowError, TypeError):
        return False


def _unspecified(names: Iterable[str], pod: Mapping[str, Any]) -> str:
    if has_pod_level_resources(pod):
        return ""
    wanted = [name for name in _MUST_SPECIFY if name in names]
    missing: dict[str, set[str]] = {}
    for container in containers(pod.get("spec") or {}) if wanted else ():
        resources = container.get("resources") or {}
        for name in wanted:
            part, stated = _MUST_SPECIFY[name]
            if stated not in (resources.get(part) or ()):
                missing.setdefault(name, set()).add(container.get("name", ""))
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def _service_usage(spec: Mapping[str, Any]) -> dict[str, Quantity]:
    ports = spec.get("ports") or ()
    node_ports, balancers = 0, 0
    if spec.get("type") == "NodePort":
        node_ports = len(ports)
    elif spec.get("type") == "LoadBalancer":
        balancers = 1
        allocated = spec.get("allocateLoadBalancerNodePorts") is not False
        node_ports = len(ports) if allocated else sum(bool(port.get("nodePort")) for port in ports)
    return {
        "services": ONE,
        "services.loadbalancers": Quantity(balancers * _NANO),
        "services.nodeports": Quantity(node_ports * _NANO),
    }


def _claim_usage(claim: Mapping[str, Any]) -> dict[str, Quantity]:
    spec = claim.get("spec") or {}
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    storage_class = annotations.get("volume.beta.kubernetes.io/storage-class", spec.get("storageClassName") or "")
    result = {"persistentvolumeclaims": ONE}
    storage = amounts((spec.get("resources") or {}).get("requests")).get("storage")
    allocated = amounts((claim.get("status") or {}).get("allocatedResources")).get("storage")
    if storage is not None:
        if allocated is not None and allocated > storage:
            storage = allocated
        result["requests.storage"] = Quantity(storage.value() * _NANO, storage.format)
    if storage_class:
        result.update({f"{storage_class}{_STORAGE_CLASS}{name}": amount for name, amount in list(result.items())})
    return result


def _in_scope(scope: Scope, group: str, resource: str, item: Mapping[str, Any]) -> bool:
    spec = item.get("spec") or {}
    if not group and resource == "persistentvolumeclaims":
        if scope.name != "VolumeAttributesClass":
            return False
        status = item.get("status") or {}
        target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
        names = {spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target}
        return _selected(scope, {name for name in names if name})
    if group or resource != "pods":
        return False
    if scope.name == "PriorityClass":
        return _selected(scope, {spec["priorityClassName"]} if spec.get("priorityClassName") else set())
    deadline = spec.get("activeDeadlineSeconds")
    terminating = isinstance(deadline, int) and deadline >= 0
    answers = {
        "Terminating": lambda: terminating,
        "NotTerminating": lambda: not terminating,
        "BestEffort": lambda: is_best_effort(item),
        "NotBestEffort": lambda: not is_best_effort(item),
        "CrossNamespacePodAffinity": lambda: _crosses_namespaces(spec.get("affinity") or {}),
    }
    answer = answers.get(scope.name)
    return answer is not None and answer()


def _selected(scope: Scope, names: set[str]) -> bool:
    if scope.operator == "Exists":
        return bool(names)
    if scope.operator == "DoesNotExist":
        return not names
    if scope.operator == "In":
        return bool(names & set(scope.values))
    # Whoever has several is within it by any that is none of these.
    return scope.operator == "NotIn" and (not names or not names <= set(scope.values))


def _crosses_namespaces(affinity: Mapping[str, Any]) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        weighted = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms.extend(term.get("podAffinityTerm") or {} for term in weighted)
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
