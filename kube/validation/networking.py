"""Ingresses and network policies."""

from __future__ import annotations

import re
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    forbidden,
    invalid,
    not_supported,
    reason_causes,
    required,
    too_long,
)
from kube.requests.status import Cause
from kube.validation.addresses import is_address, is_strictly_within, network_causes, parse_network
from kube.validation.jobs import prefixed_path_causes
from kube.validation.metadata import selector_causes
from kube.validation.probes import number_causes, port_causes, port_name

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_POLICY_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_POLICY_TYPES: Final = ("Ingress", "Egress")
_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_CONTROLLER_MAX: Final = 250
_LABEL_FORMAT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WILDCARD_FORMAT: Final = rf"\*\.{_LABEL_FORMAT}(\.{_LABEL_FORMAT})*"
_WILDCARD_WORDS: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    f"regex used for validation is '{_WILDCARD_FORMAT}')"
)


def ingress_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an Ingress."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    for index, tls in enumerate(spec.get("tls", ())):
        here = f"spec.tls[{index}]"
        for position, host in enumerate(tls.get("hosts", ())):
            causes += _pattern_causes(host, f"{here}.hosts[{position}]")
        if tls.get("secretName"):
            name = tls["secretName"]
            causes += reason_causes(f"{here}.secretName", name, names.dns_subdomain(name))
    if not spec.get("rules") and "defaultBackend" not in spec:
        causes.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if "defaultBackend" in spec:
        causes += _backend_causes(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules", ())):
        here, http = f"spec.rules[{index}]", rule.get("http")
        causes += _host_causes(rule.get("host", ""), f"{here}.host")
        if http is not None and not http.get("paths"):
            causes.append(required(f"{here}.http.paths"))
        for position, path in enumerate((http or {}).get("paths", ())):
            causes += _path_causes(path, f"{here}.http.paths[{position}]")
    if "ingressClassName" in spec:
        name = spec["ingressClassName"]
        causes += reason_causes("spec.ingressClassName", name, names.dns_subdomain(name))
    return causes


def new_ingress_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new Ingress, whose class is named in one place or the same in both."""
    annotated = body.get("metadata", {}).get("annotations", {}).get(_CLASS_ANNOTATION)
    named = body.get("spec", {}).get("ingressClassName")
    causes: list[Cause] = []
    if annotated and named is not None and annotated != named:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotated, detail))
    return causes + ingress_causes(body)


def _host_causes(host: str, path: str) -> list[Cause]:
    if not host:
        return []
    wrong = [invalid(path, host, "must be a DNS name, not an IP address")] if is_address(host) else []
    return wrong + _pattern_causes(host, path)


def _pattern_causes(host: str, path: str) -> list[Cause]:
    if "*" not in host:
        return reason_causes(path, host, names.dns_subdomain(host))
    good = len(host) <= names.SUBDOMAIN_MAX and re.fullmatch(_WILDCARD_FORMAT, host, re.ASCII)
    return [] if good else [invalid(path, host, _WILDCARD_WORDS)]


def _path_causes(path: dict[str, Any], here: str) -> list[Cause]:
    kind, text, place = path.get("pathType"), path.get("path", ""), f"{here}.path"
    if kind is None:
        return [required(f"{here}.pathType", "pathType must be specified")]
    causes: list[Cause] = []
    if kind not in _PATH_TYPES:
        causes.append(not_supported(f"{here}.pathType", kind, _PATH_TYPES))
    elif kind == "ImplementationSpecific":
        causes += [invalid(place, text, "must be an absolute path")] if text and not text.startswith("/") else []
    else:
        causes += [] if text.startswith("/") else [invalid(place, text, "must be an absolute path")]
        if text:
            bad = ("//", "/./", "/../", "%2f", "%2F")
            causes += [invalid(place, text, f"must not contain '{part}'") for part in bad if part in text]
            causes += [invalid(place, text, f"cannot end with '{end}'") for end in ("/..", "/.") if text.endswith(end)]
    return causes + _backend_causes(path.get("backend", {}), f"{here}.backend")


def _backend_causes(backend: dict[str, Any], path: str) -> list[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _reference_causes(resource, f"{path}.resource")
    if service is None:
        return [invalid(path, "", "resource or service backend is required")]
    causes: list[Cause] = []
    name, port = service.get("name", ""), service.get("port", {})
    here = f"{path}.service.name"
    causes += reason_causes(here, name, names.dns_label(name)) if name else [required(here)]
    if port.get("name") and port.get("number"):
        causes.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        causes += reason_causes(f"{path}.service.port.name", port["name"], port_name(port["name"]))
    elif port.get("number"):
        causes += number_causes(port["number"], f"{path}.service.port.number")
    else:
        causes.append(required(path, "port name or number is required"))
    return causes


def _reference_causes(reference: dict[str, Any], path: str) -> list[Cause]:
    group = reference.get("apiGroup")
    causes: list[Cause] = []
    if group is not None:
        causes += reason_causes(f"{path}.apiGroup", group, names.dns_subdomain(group))
    for field in ("kind", "name"):
        value, here = reference.get(field, ""), f"{path}.{field}"
        causes += reason_causes(here, value, names.path_segment(value)) if value else [required(here)]
    return causes


def ingress_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with an IngressClass."""
    spec = body.get("spec", {})
    controller = spec.get("controller", "")
    causes: list[Cause] = []
    if len(controller) > _CONTROLLER_MAX:
        causes.append(too_long("spec.controller", _CONTROLLER_MAX))
    causes += prefixed_path_causes(controller, "spec.controller") if controller else [required("spec.controller")]
    parameters, here = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return causes
    causes += _reference_causes(parameters, here)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    causes += choice_causes(parameters, "scope", ("Cluster", "Namespace"), here)
    if scope == "Cluster" and namespace is not None:
        causes.append(forbidden(f"{here}.namespace", "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and not namespace:
        causes.append(required(f"{here}.namespace", "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        causes += reason_causes(f"{here}.namespace", namespace, names.dns_label(namespace))
    return causes


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
    kinds = spec.get("policyTypes", [])
    if len(kinds) > len(_POLICY_TYPES):
        causes.append(invalid("spec.policyTypes", kinds, "may not specify more than two policyTypes"))
        return causes
    return causes + [
        not_supported(f"spec.policyTypes[{index}]", kind, _POLICY_TYPES)
        for index, kind in enumerate(kinds)
        if kind not in _POLICY_TYPES
    ]


def _policy_port_causes(port: dict[str, Any], path: str) -> list[Cause]:
    causes = choice_causes(port, "protocol", _POLICY_PROTOCOLS, path)
    number, end, here = port.get("port"), port.get("endPort"), f"{path}.endPort"
    if number is not None:
        causes += port_causes(number, f"{path}.port")
    if end is None:
        return causes
    if number is None:
        return [*causes, invalid(here, end, "may not be specified when `port` is not specified")]
    if isinstance(number, str):
        return [*causes, invalid(here, end, "may not be specified when `port` is non-numeric")]
    if end < number:
        causes.append(invalid(here, number, "must be greater than or equal to `port`"))
    return causes + number_causes(end, here)


def _peer_causes(peer: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("podSelector", "namespaceSelector"):
        causes += selector_causes(peer.get(field, {}), f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        causes += _block_causes(block, f"{path}.ipBlock")
    if not peer:
        causes.append(required(path, "must specify a peer"))
    elif block is not None and len(peer) > 1:
        causes.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return causes


def _block_causes(block: dict[str, Any], path: str) -> list[Cause]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{path}.cidr")]
    causes = network_causes(text, f"{path}.cidr")
    outer = parse_network(text)
    if outer is None:
        return causes
    for index, part in enumerate(block.get("except", ())):
        inner, here = parse_network(part), f"{path}.except[{index}]"
        causes += network_causes(part, here)
        if inner is None:
            continue
        if not is_strictly_within(inner, outer):
            causes.append(invalid(here, part, "must be a strict subset of `cidr`"))
    return causes
