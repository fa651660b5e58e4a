"""Services."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    reason_causes,
    required,
)
from kube.requests.status import Cause
from kube.validation.addresses import address_causes, network_causes, special_causes
from kube.validation.containers import PROTOCOLS
from kube.validation.metadata import label_causes
from kube.validation.probes import number_causes, port_causes

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC: Final = ("Cluster", "Local")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_AFFINITY_SECONDS: Final = 86400
_BALANCED: Final = "may only be used when `type` is 'LoadBalancer'"


def service_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Service."""
    spec = body.get("spec", {})
    kind, addresses, ports = spec.get("type", ""), spec.get("clusterIPs", []), spec.get("ports", ())
    headless = addresses[:1] == ["None"]
    causes: list[Cause] = []
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {kind} services"
        causes.append(invalid("spec.clusterIPs[0]", "None", detail))
    if kind == "ExternalName":
        causes += _alias_causes(spec)
    causes += _port_list_causes(ports)
    causes += label_causes(spec.get("selector", {}), "spec.selector")
    causes += choice_causes(spec, "sessionAffinity", ("ClientIP", "None"), "spec")
    causes += _affinity_causes(spec)
    for index, address in enumerate(spec.get("externalIPs", ())):
        here = f"spec.externalIPs[{index}]"
        causes += address_causes(address, here) or special_causes(address, here)
    causes += choice_causes(spec, "type", _TYPES, "spec")
    causes += _number_causes(ports, kind)
    causes += _balancer_causes(spec, kind)
    causes += _traffic_causes(spec, kind)
    return causes + choice_causes(spec, "trafficDistribution", _DISTRIBUTIONS, "spec")


def _alias_causes(spec: dict[str, Any]) -> list[Cause]:
    detail = "may not be set for ExternalName services"
    fields = ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
    causes = [forbidden(f"spec.{field}", detail) for field in fields if spec.get(field)]
    name = spec.get("externalName", "").removesuffix(".")
    here = "spec.externalName"
    return causes + (reason_causes(here, name, names.dns_subdomain(name)) if name else [required(here)])


def _port_list_causes(ports: Any) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            causes.append(required(f"{here}.name"))
        elif name:
            causes += reason_causes(f"{here}.name", name, names.dns_label(name))
            causes += [duplicate(f"{here}.name", name)] if name in seen else []
            seen.add(name)
        causes += number_causes(port.get("port", 0), f"{here}.port")
        causes += choice_causes(port, "protocol", PROTOCOLS, here)
        causes += port_causes(port.get("targetPort", 0), f"{here}.targetPort")
        if "appProtocol" in port:
            protocol = port["appProtocol"]
            causes += reason_causes(f"{here}.appProtocol", protocol, names.qualified_name(protocol))
    return causes


def _affinity_causes(spec: dict[str, Any]) -> list[Cause]:
    seconds = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds")
    if spec.get("sessionAffinity") != "ClientIP" or seconds is None or 0 < seconds <= _AFFINITY_SECONDS:
        return []
    here = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    return [invalid(here, seconds, f"must be greater than 0 and less than {_AFFINITY_SECONDS}")]


def service_address_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a service's own addresses and their families, which is settled before anything else."""
    spec = body.get("spec", {})
    if spec.get("type") == "ExternalName":
        return []
    address, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs", [])
    causes: list[Cause] = []
    if address and not addresses:
        causes.append(required("spec.clusterIPs"))
    elif addresses and not address:
        causes.append(invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    elif addresses and address != addresses[0]:
        causes.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    families = spec.get("ipFamilies", [])
    for index, family in enumerate(families):
        here = f"spec.ipFamilies[{index}]"
        causes += [] if family in _FAMILIES else [not_supported(here, family, _FAMILIES)]
        causes += [duplicate(here, family)] if family in families[:index] else []
    causes += choice_causes(spec, "ipFamilyPolicy", _FAMILY_POLICIES, "spec")
    if addresses[:1] == ["None"] and len(addresses) > 1:
        causes.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
        return causes
    for index, each in enumerate(addresses):
        here = f"spec.clusterIPs[{index}]"
        if index and each in ("None", ""):
            causes.append(invalid(here, each, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
        elif each not in ("None", ""):
            causes += address_causes(each, here)
    if len(addresses) > 2:
        causes.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    return causes


def _number_causes(ports: Any, kind: str) -> list[Cause]:
    """Ports of the node, and ports that stand twice."""
    causes: list[Cause] = []
    if kind == "ClusterIP":
        detail = "may not be used when `type` is 'ClusterIP'"
        causes += [
            forbidden(f"spec.ports[{i}].nodePort", detail) for i, port in enumerate(ports) if port.get("nodePort")
        ]
    for field in ("nodePort", "port"):
        seen: set[tuple[str, int]] = set()
        for index, port in enumerate(ports):
            key = (port.get("protocol", "TCP"), port.get(field, 0))
            here = f"spec.ports[{index}]"
            if field == "nodePort" and not key[1]:
                continue
            if key in seen:
                causes.append(duplicate(f"{here}.nodePort", key[1]) if field == "nodePort" else _same_port(key, here))
            seen.add(key)
    return causes


def _same_port(key: tuple[str, int], path: str) -> Cause:
    shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0}
    return duplicate(path, shown)


def _balancer_causes(spec: dict[str, Any], kind: str) -> list[Cause]:
    balanced = kind == "LoadBalancer"
    causes: list[Cause] = []
    ranges = spec.get("loadBalancerSourceRanges", ())
    if ranges:
        here = "spec.LoadBalancerSourceRanges"
        causes += [] if balanced else [forbidden(here, _BALANCED)]
        for index, text in enumerate(ranges):
            causes += network_causes(text.strip(), f"{here}[{index}]")
    if "allocateLoadBalancerNodePorts" in spec and not balanced:
        causes.append(forbidden("spec.allocateLoadBalancerNodePorts", _BALANCED))
    name = spec.get("loadBalancerClass")
    if name is not None and not balanced:
        causes.append(forbidden("spec.loadBalancerClass", _BALANCED))
    elif name is not None:
        causes += reason_causes("spec.loadBalancerClass", name, names.qualified_name(name))
    return causes


def _traffic_causes(spec: dict[str, Any], kind: str) -> list[Cause]:
    outside = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    policy, here = spec.get("externalTrafficPolicy", ""), "spec.externalTrafficPolicy"
    causes: list[Cause] = []
    if not outside and policy:
        causes.append(invalid(here, policy, "may only be set for externally-accessible services"))
    elif outside and policy not in _TRAFFIC:
        causes.append(not_supported(here, policy, _TRAFFIC) if policy else required(here))
    checked = kind == "LoadBalancer" and policy == "Local"
    if spec.get("healthCheckNodePort") and not checked:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], detail))
    return causes + choice_causes(spec, "internalTrafficPolicy", _TRAFFIC, "spec")


def service_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A service's addresses stay, unless it becomes or was an ExternalName."""
    after, before = new.get("spec", {}), old.get("spec", {})
    if "ExternalName" in (after.get("type"), before.get("type")) or not before.get("clusterIPs"):
        return []
    addresses = after.get("clusterIPs", [])
    if not addresses:
        return [invalid("spec.clusterIPs[0]", addresses, "primary clusterIP can not be unset")]
    if addresses[0] != before["clusterIPs"][0]:
        return [invalid("spec.clusterIPs[0]", addresses, "may not change once set")]
    return []
