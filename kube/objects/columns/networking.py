"""Services, endpoints, ingresses and policies."""

from __future__ import annotations

from typing import Any, Final

from kube.objects.columns.base import (
    TableConvertor,
    age_of,
    at,
    convertor,
    format_selector,
    is_default,
    labels_text,
    limited,
    name_of,
    simple,
)


def _addresses(balancer: Any) -> str:
    entries = at(balancer, "ingress", default=())
    return ",".join(sorted({str(at(e, "ip") or at(e, "hostname")) for e in entries if e}))


def _service(item: dict[str, Any], now: float) -> list[Any]:
    spec = at(item, "spec", default={})
    ports = ",".join(
        f"{at(p, 'port')}{':' + str(p['nodePort']) if at(p, 'nodePort') else ''}/{at(p, 'protocol', default='TCP')}"
        for p in at(spec, "ports", default=())
    )
    internal = at(spec, "clusterIPs", default=[at(spec, "clusterIP", default="<none>")])
    return [
        name_of(item),
        at(spec, "type", default=""),
        internal[0] if internal else "<none>",
        _external(item, spec),
        ports or "<none>",
        age_of(item, now),
        labels_text(at(spec, "selector")),
    ]


def _external(item: dict[str, Any], spec: Any) -> str:
    given = list(at(spec, "externalIPs", default=()))
    type_ = at(spec, "type")
    if type_ == "ExternalName":
        return str(at(spec, "externalName", default=""))
    if type_ == "LoadBalancer":
        balancer = _addresses(at(item, "status", "loadBalancer"))
        return ",".join(([balancer] if balancer else []) + given) or "<pending>"
    return ",".join(given) or "<none>"


def _ingress(item: dict[str, Any], now: float) -> list[Any]:
    rules = at(item, "spec", "rules", default=())
    hosts = [str(rule["host"]) for rule in rules[:3] if at(rule, "host")]
    shown = ",".join(hosts) or "*"
    if hosts and len(rules) > 3:
        shown += f" + {len(rules) - 3} more..."
    return [
        name_of(item),
        at(item, "spec", "ingressClassName", default="<none>"),
        shown,
        _addresses(at(item, "status", "loadBalancer")),
        "80, 443" if at(item, "spec", "tls") else "80",
        age_of(item, now),
    ]


def _ingress_class(item: dict[str, Any], now: float) -> list[Any]:
    given = at(item, "spec", "parameters")
    shown = "<none>"
    if given is not None:
        group = f".{given['apiGroup']}" if at(given, "apiGroup") else ""
        shown = f"{at(given, 'kind', default='')}{group}/{at(given, 'name', default='')}"
    default = " (default)" if is_default(item, "ingressclass.kubernetes.io/is-default-class") else ""
    return [name_of(item) + default, at(item, "spec", "controller", default=""), shown, age_of(item, now)]


def _endpoints(item: dict[str, Any], now: float) -> list[Any]:
    found: list[str] = []
    for subset in at(item, "subsets", default=()):
        addresses = [str(at(a, "ip", default="")) for a in at(subset, "addresses", default=())]
        ports = at(subset, "ports", default=())
        found += [
            f"[{ip}]:{at(port, 'port')}" if ":" in ip else f"{ip}:{at(port, 'port')}"
            for port in ports
            for ip in addresses
        ] or addresses
    return [name_of(item), limited(found) or "<none>", age_of(item, now)]


def _endpoint_slice(item: dict[str, Any], now: float) -> list[Any]:
    ports = [str(at(p, "port") or at(p, "name") or "*") for p in at(item, "ports", default=())]
    found = [str(a) for e in at(item, "endpoints", default=()) for a in at(e, "addresses", default=())]
    return [
        name_of(item),
        at(item, "addressType", default=""),
        limited(ports) or "<unset>",
        limited(found) or "<unset>",
        age_of(item, now),
    ]


def _ip_address(item: dict[str, Any], now: float) -> list[Any]:
    parent = at(item, "spec", "parentRef")
    shown = "<none>"
    if parent is not None:
        group = f".{parent['group']}" if at(parent, "group") else ""
        parts = [
            f"{at(parent, 'resource', default='')}{group}".lower(),
            at(parent, "namespace"),
            at(parent, "name"),
        ]
        shown = "/".join(str(part) for part in parts if part)
    return [name_of(item), shown, age_of(item, now)]


def _network_policy(item: dict[str, Any], now: float) -> list[Any]:
    return [name_of(item), format_selector(at(item, "spec", "podSelector")), age_of(item, now)]


CONVERTORS: Final[dict[tuple[str, str], TableConvertor]] = {
    ("", "Service"): convertor("Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector", _service),
    ("", "Endpoints"): convertor("Name|Endpoints|Age", _endpoints),
    ("discovery.k8s.io", "EndpointSlice"): convertor("Name|AddressType|Ports|Endpoints|Age", _endpoint_slice),
    ("networking.k8s.io", "Ingress"): convertor("Name|Class|Hosts|Address|Ports|Age", _ingress),
    ("networking.k8s.io", "IngressClass"): convertor("Name|Controller|Parameters|Age", _ingress_class),
    ("networking.k8s.io", "IPAddress"): convertor("Name|ParentRef|Age", _ip_address),
    ("networking.k8s.io", "NetworkPolicy"): convertor("Name|Pod-Selector|Age", _network_policy),
    ("networking.k8s.io", "ServiceCIDR"): convertor("Name|CIDRs|Age", simple("join:spec.cidrs")),
}
"""(group, kind) → convertor."""
