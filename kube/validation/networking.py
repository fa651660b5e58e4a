"""Services, ingresses and network policies."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from kube import names
from kube.status import Cause
from kube.validation.causes import duplicate, forbidden, invalid, not_supported, required
from kube.validation.metadata import label_causes, selector_causes
from kube.validation.pods import port_causes, port_name

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def service_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Service."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    kind, addresses = spec.get("type", "ClusterIP"), spec.get("clusterIPs", ())
    headless = "None" in addresses
    ports = spec.get("ports", ())
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind not in _TYPES:
        causes.append(not_supported("spec.type", kind, _TYPES))
    if kind == "ExternalName":
        name = spec.get("externalName", "").removesuffix(".")
        if addresses:
            causes.append(forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
        if not name:
            causes.append(required("spec.externalName"))
        else:
            causes += [invalid("spec.externalName", name, reason) for reason in names.dns_subdomain(name)]
    elif kind == "LoadBalancer" and headless:
        detail = "may not be set to 'None' for LoadBalancer services"
        causes.append(invalid("spec.clusterIPs[0]", "None", detail))
    causes += _service_port_causes(ports)
    causes += label_causes(spec.get("selector", {}), "spec.selector")
    affinity = spec.get("sessionAffinity")
    if affinity not in (None, "ClientIP", "None"):
        causes.append(not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
    for index, address in enumerate(addresses):
        if address != "None" and not is_address(address):
            causes.append(invalid(f"spec.clusterIPs[{index}]", address, _ADDRESS))
    if spec.get("clusterIP") and (not addresses or spec["clusterIP"] != addresses[0]):
        causes.append(invalid("spec.clusterIPs", list(addresses), "first value must match `clusterIP`"))
    for index, address in enumerate(spec.get("externalIPs", ())):
        if not is_address(address):
            causes.append(invalid(f"spec.externalIPs[{index}]", address, _ADDRESS))
    return causes


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


def ingress_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an Ingress."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    if not spec.get("rules") and "defaultBackend" not in spec:
        causes.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if "defaultBackend" in spec:
        causes += _backend_causes(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules", ())):
        here = f"spec.rules[{index}]"
        causes += _host_causes(rule.get("host", ""), f"{here}.host")
        http = rule.get("http")
        if http is not None and not http.get("paths"):
            causes.append(required(f"{here}.http.paths"))
        for position, path in enumerate((http or {}).get("paths", ())):
            causes += _path_causes(path, f"{here}.http.paths[{position}]")
    for index, tls in enumerate(spec.get("tls", ())):
        for position, host in enumerate(tls.get("hosts", ())):
            causes += _host_causes(host, f"spec.tls[{index}].hosts[{position}]")
    if spec.get("ingressClassName"):
        name = spec["ingressClassName"]
        causes += [invalid("spec.ingressClassName", name, reason) for reason in names.dns_subdomain(name)]
    return causes


def ingress_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an IngressClass."""
    controller = body.get("spec", {}).get("controller", "")
    if not controller:
        return [required("spec.controller")]
    if "/" not in controller:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid("spec.controller", controller, detail)]
    return []


def network_policy_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a NetworkPolicy."""
    spec = body.get("spec", {})
    causes = selector_causes(spec.get("podSelector", {}), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction, ())):
            here = f"spec.{direction}[{index}]"
            for position, port in enumerate(rule.get("ports", ())):
                causes += _policy_port_causes(port, f"{here}.ports[{position}]")
            for position, peer in enumerate(rule.get(peers, ())):
                causes += _peer_causes(peer, f"{here}.{peers}[{position}]")
    for index, kind in enumerate(spec.get("policyTypes", ())):
        if kind not in ("Egress", "Ingress"):
            causes.append(not_supported(f"spec.policyTypes[{index}]", kind, ("Egress", "Ingress")))
    return causes


def is_address(text: str) -> bool:
    """Whether this is an IP address in plain form (no zone, no leading zeros)."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _service_port_causes(ports: Any) -> list[Cause]:
    causes: list[Cause] = []
    seen_names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        here = f"spec.ports[{index}]"
        name, number, protocol = port.get("name", ""), port.get("port", 0), port.get("protocol", "TCP")
        if not name and len(ports) > 1:
            causes.append(required(f"{here}.name"))
        elif name:
            causes += [invalid(f"{here}.name", name, reason) for reason in names.dns_label(name)]
            if name in seen_names:
                causes.append(duplicate(f"{here}.name", name))
            seen_names.add(name)
        causes += port_causes(number, f"{here}.port")
        if protocol not in _PROTOCOLS:
            causes.append(not_supported(f"{here}.protocol", protocol, _PROTOCOLS))
        target = port.get("targetPort")
        if isinstance(target, int):
            causes += port_causes(target, f"{here}.targetPort")
        elif isinstance(target, str):
            causes += [invalid(f"{here}.targetPort", target, reason) for reason in port_name(target)]
        if (protocol, number) in seen:
            causes.append(duplicate(here, {"port": number, "protocol": protocol}))
        seen.add((protocol, number))
    return causes


def _host_causes(host: str, path: str) -> list[Cause]:
    if not host:
        return []
    if is_address(host):
        return [invalid(path, host, "must be a DNS name, not an IP address")]
    name = host.removeprefix("*.")
    return [invalid(path, host, reason) for reason in names.dns_subdomain(name)]


def _path_causes(path: dict[str, Any], here: str) -> list[Cause]:
    causes: list[Cause] = []
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        causes.append(required(f"{here}.pathType", "pathType must be specified"))
    elif kind not in _PATH_TYPES:
        causes.append(not_supported(f"{here}.pathType", kind, _PATH_TYPES))
    if kind in ("Exact", "Prefix") or text:
        if not text.startswith("/"):
            causes.append(invalid(f"{here}.path", text, "must be an absolute path"))
        causes += [
            invalid(f"{here}.path", text, f"must not contain '{bad}'")
            for bad in ("//", "/./", "/../", "%2f", "%2F")
            if kind != "ImplementationSpecific" and bad in text
        ]
    return causes + _backend_causes(path.get("backend", {}), f"{here}.backend")


def _backend_causes(backend: dict[str, Any], path: str) -> list[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if service is None:
        return [] if resource is not None else [required(path, "resource or service backend is required")]
    causes: list[Cause] = []
    name, port = service.get("name", ""), service.get("port", {})
    if not name:
        causes.append(required(f"{path}.service.name"))
    else:
        causes += [invalid(f"{path}.service.name", name, reason) for reason in names.dns1035_label(name)]
    if port.get("name") and port.get("number"):
        causes.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        causes += [invalid(f"{path}.service.port.name", port["name"], r) for r in port_name(port["name"])]
    elif port.get("number"):
        causes += port_causes(port["number"], f"{path}.service.port.number")
    else:
        causes.append(required(path, "port name or number is required"))
    return causes


def _policy_port_causes(port: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if port.get("protocol", "TCP") not in _PROTOCOLS:
        causes.append(not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    number = port.get("port")
    if isinstance(number, int):
        causes += port_causes(number, f"{path}.port")
        if "endPort" in port and port["endPort"] < number:
            detail = "must be greater than or equal to `port`"
            causes.append(invalid(f"{path}.endPort", port["endPort"], detail))
    elif isinstance(number, str):
        causes += [invalid(f"{path}.port", number, reason) for reason in port_name(number)]
    elif "endPort" in port:
        causes.append(required(f"{path}.port", "must be specified when `endPort` is specified"))
    return causes


def _peer_causes(peer: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("podSelector", "namespaceSelector"):
        if field in peer:
            causes += selector_causes(peer[field], f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        if len(peer) > 1:
            detail = "may not specify both ipBlock and another peer"
            causes.append(forbidden(path, detail))
        causes += _cidr_causes(block, f"{path}.ipBlock")
    elif not peer:
        causes.append(required(path, "must specify a peer"))
    return causes


def _cidr_causes(block: dict[str, Any], path: str) -> list[Cause]:
    detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    outer = _network(block.get("cidr", ""))
    if outer is None:
        return [invalid(f"{path}.cidr", block.get("cidr", ""), detail)]
    causes: list[Cause] = []
    for index, text in enumerate(block.get("except", ())):
        inner = _network(text)
        here = f"{path}.except[{index}]"
        if inner is None:
            causes.append(invalid(here, text, detail))
        elif inner.version != outer.version or not inner.subnet_of(outer) or inner == outer:  # type: ignore[arg-type]
            causes.append(invalid(here, text, "must be a strict subset of `cidr`"))
    return causes


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
