"""Ranges that addresses of services are of, and addresses that are taken."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import immutable, invalid, reason_causes, required
from kube.requests.status import Cause
from kube.validation.addresses import address_causes, canonical_causes, network_causes, parse_network

_RANGES: Final = "spec.cidrs"
_FAMILIES: Final = 2


def range_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ServiceCIDR."""
    ranges: list[str] = body.get("spec", {}).get("cidrs") or []
    if not ranges:
        return [required(_RANGES, "at least one CIDR required")]
    if len(ranges) > _FAMILIES:
        return [invalid(_RANGES, {"CIDRs": ranges}, "may only hold up to 2 values")]
    causes: list[Cause] = []
    for index, text in enumerate(ranges):
        here = f"{_RANGES}[{index}]"
        found, network = network_causes(text, here), parse_network(text)
        if not found and network is not None and str(network) != text:
            found.append(invalid(here, text, f'must be in canonical form ("{network}")'))
        causes += found
    networks = [parse_network(text) for text in ranges]
    if any(one and other and one.version == other.version for one, other in pairwise(networks)):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        causes.append(invalid(_RANGES, ranges, detail))
    return causes


def range_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A ServiceCIDR keeps its ranges; one alone may be joined by one of the other family."""
    after, before = ([*(body.get("spec", {}).get("cidrs") or ())] for body in (new, old))
    if len(after) != len(before) and (len(before), len(after)) != (1, _FAMILIES):
        return [immutable(_RANGES, after or None)]
    changed = [
        immutable(f"{_RANGES}[{index}]", after[index]) for index, text in enumerate(before) if after[index] != text
    ]
    return changed if len(after) == len(before) else changed + range_causes(new)


def taken_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an IPAddress."""
    parent = body.get("spec", {}).get("parentRef")
    if parent is None:
        return [required("spec.parentRef")]
    here, group = "spec.parentRef", parent.get("group", "")
    causes = reason_causes(f"{here}.group", group, names.dns_subdomain(group)) if group else []
    for field in ("resource", "name", "namespace"):
        value = parent.get(field, "")
        if value:
            causes += reason_causes(f"{here}.{field}", value, names.path_segment(value))
        elif field != "namespace":
            causes.append(required(f"{here}.{field}"))
    return causes


def address_name(name: str) -> list[str]:
    """Why this is no name of an IPAddress, which is named by what it is."""
    causes = address_causes(name, "") or canonical_causes(name, "")
    return [cause.message.partition(": ")[2].partition(": ")[2] for cause in causes]
