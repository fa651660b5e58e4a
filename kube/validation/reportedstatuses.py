"""What those who do the work behind an object report in its status: addresses, sizes, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    duplicate,
    forbidden,
    invalid,
    key_path,
    not_supported,
    reason_causes,
    required,
    too_long,
)
from kube.requests.status import Cause
from kube.validation.addresses import address_causes, is_address
from kube.validation.quantities import basic_causes
from kube.validation.resourcelists import is_native

_MODES: Final = ("Proxy", "VIP")
_REASON: Final = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_REASON_SHAPE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_REASON_MAX: Final = 1024
_MESSAGE_MAX: Final = 32 * 1024
_RESIZES: Final = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def balancer_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with the addresses of a service's load balancer; only a service of that type has one."""
    ingress = _ingress(new)
    if not ingress or new.get("status") == old.get("status"):
        return []
    if new.get("spec", {}).get("type") != "LoadBalancer":
        return [forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")]
    return [*_entry_causes(ingress, _ingress(old), modes=True)]


def entry_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with the addresses at which an Ingress is reached."""
    return [] if new.get("status") == old.get("status") else [*_entry_causes(_ingress(new), _ingress(old), modes=False)]


def _ingress(body: dict[str, Any]) -> list[dict[str, Any]]:
    return ((body.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _entry_causes(entries: list[dict[str, Any]], before: list[dict[str, Any]], *, modes: bool) -> Iterator[Cause]:
    known = {each.get("ip") for each in before}
    for index, entry in enumerate(entries):
        here = f"status.loadBalancer.ingress[{index}]"
        address, host, mode = entry.get("ip", ""), entry.get("hostname", ""), entry.get("ipMode")
        if address and address not in known:
            yield from address_causes(address, f"{here}.ip")
        if modes and mode is None and address:
            yield required(f"{here}.ipMode", "must be specified when `ip` is set")
        elif modes and mode is not None and not address:
            yield forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set")
        elif modes and mode is not None and mode not in _MODES:
            yield not_supported(f"{here}.ipMode", mode, _MODES)
        if host:
            yield from reason_causes(f"{here}.hostname", host, names.dns_subdomain(host))
            if is_address(host):
                yield invalid(f"{here}.hostname", host, "must be a DNS name, not an IP address")


def condition_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with conditions of the common kind."""
    conditions = (new.get("status") or {}).get("conditions") or ()
    if new.get("status") == old.get("status"):
        return []
    causes: list[Cause] = []
    known: set[str] = set()
    for index, condition in enumerate(conditions):
        here, kind, reason = f"status.conditions[{index}]", condition.get("type", ""), condition.get("reason", "")
        causes += [duplicate(f"{here}.type", kind)] if kind in known else []
        known.add(kind)
        causes += reason_causes(f"{here}.type", kind, names.qualified_name(kind))
        if condition.get("status") not in ("False", "True", "Unknown"):
            causes.append(not_supported(f"{here}.status", condition.get("status", ""), ("False", "True", "Unknown")))
        if condition.get("observedGeneration", 0) < 0:
            detail = "must be greater than or equal to zero"
            causes.append(invalid(f"{here}.observedGeneration", condition["observedGeneration"], detail))
        causes += [] if condition.get("lastTransitionTime") else [required(f"{here}.lastTransitionTime")]
        causes += [] if reason else [required(f"{here}.reason")]
        if reason and not _REASON.fullmatch(reason):
            causes.append(invalid(f"{here}.reason", reason, _REASON_SHAPE))
        causes += [too_long(f"{here}.reason", _REASON_MAX)] if len(reason.encode()) > _REASON_MAX else []
        if len(condition.get("message", "").encode()) > _MESSAGE_MAX:
            causes.append(too_long(f"{here}.message", _MESSAGE_MAX))
    return causes


def claim_status_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with the sizes that a claim is said to have, and with how it is being resized."""
    status = new.get("status") or {}
    if status == (old.get("status") or {}):
        return []
    causes: list[Cause] = []
    for name, quantity in status.get("capacity", {}).items():
        causes += basic_causes(quantity, key_path("status.capacity", name))
    here = "status.allocatedResourceStatuses"
    for name, step in status.get("allocatedResourceStatuses", {}).items():
        causes += _resource_causes(name, here)
        causes += [] if step in _RESIZES else [not_supported(here, name, _RESIZES)]
    here = "status.allocatedResources"
    for name, quantity in status.get("allocatedResources", {}).items():
        causes += _resource_causes(name, here) or basic_causes(quantity, key_path(here, name))
    return causes


def _resource_causes(name: str, path: str) -> list[Cause]:
    causes = reason_causes(path, name, names.qualified_name(name))
    native = "/" not in name or is_native(name)
    return causes or ([not_supported(path, name, ("storage",))] if native and name != "storage" else [])
