"""Endpoints and EndpointSlices: where the traffic of services goes."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    invalid,
    not_supported,
    reason_causes,
    required,
    too_many,
)
from kube.requests.status import Cause
from kube.validation.addresses import address_causes, canonical_causes, parse_address, special_causes
from kube.validation.containers import PROTOCOLS
from kube.validation.probes import number_causes

_KINDS: Final = ("FQDN", "IPv4", "IPv6")
_ENDPOINTS_MAX: Final = 1000
_ADDRESSES_MAX: Final = 100
_PORTS_MAX: Final = 20000
_HINTS_MAX: Final = 8


def endpoints_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an Endpoints."""
    causes: list[Cause] = []
    for index, subset in enumerate(body.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(field, ())):
                causes += _subset_address_causes(address, f"{path}.{field}[{position}]")
        ports = subset.get("ports", ())
        for position, port in enumerate(ports):
            causes += _subset_port_causes(port, f"{path}.ports[{position}]", named=len(ports) > 1)
    return causes


def _subset_address_causes(address: dict[str, Any], path: str) -> list[Cause]:
    text, host, node = address.get("ip", ""), address.get("hostname", ""), address.get("nodeName")
    causes = address_causes(text, f"{path}.ip")
    causes += reason_causes(f"{path}.hostname", host, names.dns_label(host)) if host else []
    causes += reason_causes(f"{path}.nodeName", node, names.dns_subdomain(node)) if node is not None else []
    return causes + special_causes(text, f"{path}.ip")


def _subset_port_causes(port: dict[str, Any], path: str, *, named: bool) -> list[Cause]:
    name, protocol = port.get("name", ""), port.get("appProtocol")
    causes = [required(f"{path}.name")] if named and not name else []
    causes += reason_causes(f"{path}.name", name, names.dns_label(name)) if name else []
    causes += number_causes(port.get("port", 0), f"{path}.port") + choice_causes(port, "protocol", PROTOCOLS, path)
    if protocol is not None:
        causes += reason_causes(f"{path}.appProtocol", protocol, names.qualified_name(protocol))
    return causes


def endpoint_slice_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an EndpointSlice."""
    kind = body.get("addressType", "")
    causes = [] if kind else [required("addressType")]
    if kind and kind not in _KINDS:
        causes.append(not_supported("addressType", kind, _KINDS))
    causes += _slice_port_causes(body.get("ports", ()))
    endpoints = body.get("endpoints", ())
    if len(endpoints) > _ENDPOINTS_MAX:
        return [*causes, too_many("endpoints", len(endpoints), _ENDPOINTS_MAX)]
    for index, endpoint in enumerate(endpoints):
        causes += _endpoint_causes(endpoint, kind, f"endpoints[{index}]")
    return causes


def _endpoint_causes(endpoint: dict[str, Any], kind: str, path: str) -> list[Cause]:
    addresses = endpoint.get("addresses", ())
    causes: list[Cause] = []
    if not addresses:
        causes.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _ADDRESSES_MAX:
        causes.append(too_many(f"{path}.addresses", len(addresses), _ADDRESSES_MAX))
    else:
        for index, address in enumerate(addresses):
            causes += _slice_address_causes(address, kind, f"{path}.addresses", index)
    if "nodeName" in endpoint:
        node = endpoint["nodeName"]
        causes += reason_causes(f"{path}.nodeName", node, names.dns_subdomain(node))
    if "hostname" in endpoint:
        host = endpoint["hostname"]
        causes += reason_causes(f"{path}.hostname", host, names.dns_label(host))
    for field in ("forZones", "forNodes"):
        causes += _hint_causes(endpoint.get("hints", {}).get(field, ()), f"{path}.hints.{field}")
    return causes


def _slice_address_causes(address: str, kind: str, path: str, index: int) -> list[Cause]:
    here, found = f"{path}[{index}]", parse_address(address)
    if kind == "FQDN":
        return reason_causes(here, address, names.dns_subdomain(address))
    if kind not in _KINDS:
        return []
    wrong = address_causes(address, here)
    if wrong or found is None:
        return wrong
    causes: list[Cause] = []
    if f"IPv{found.version}" != kind:
        causes.append(invalid(path, address, f"must be an {kind} address"))
    return causes + canonical_causes(address, here) + special_causes(address, here)


def _hint_causes(hints: Any, path: str) -> list[Cause]:
    if len(hints) > _HINTS_MAX:
        return [too_many(path, len(hints), _HINTS_MAX)]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, hint in enumerate(hints):
        here, name = f"{path}[{index}].name", hint.get("name", "")
        if name in seen:
            causes.append(duplicate(here, name))
        seen.add(name)
        rule = names.label_value if path.endswith("forZones") else names.dns_subdomain
        causes += reason_causes(here, name, rule(name))
    return causes


def _slice_port_causes(ports: Any) -> list[Cause]:
    if len(ports) > _PORTS_MAX:
        return [too_many("ports", len(ports), _PORTS_MAX)]
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name, protocol = f"ports[{index}]", port.get("name", ""), port.get("appProtocol")
        causes += reason_causes(f"{here}.name", name, names.dns_label(name)) if name else []
        causes += [duplicate(f"{here}.name", name)] if name in seen else []
        seen.add(name)
        causes += choice_causes(port, "protocol", PROTOCOLS, here)
        if protocol is not None:
            causes += reason_causes(f"{here}.appProtocol", protocol, names.qualified_name(protocol))
    return causes
