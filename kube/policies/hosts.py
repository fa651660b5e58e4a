"""Host names that objects take for themselves: those of Ingresses, Gateways and their routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kube.policies.bodies import Body, Finding, mapping, members, only, text
from kube.policies.policy import Policy
from kube.requests.configurations import configuration_of

GATEWAY: Final = "gateway.networking.k8s.io"

NAMES: Final = 500
"""Host names that the Ingresses of one tenant may take, where nobody says otherwise."""


def read_configuration(document: Any) -> int:
    """The ``namesOfTenant`` of a ``HostOwnershipConfiguration``. Raises ``ValueError``, whose message names the field."""
    names = configuration_of(document, "HostOwnershipConfiguration", "namesOfTenant")
    if not isinstance(names, int) or isinstance(names, bool) or names < 1:
        raise ValueError("namesOfTenant must be a positive number")
    return names


LISTENING: Final = ("Gateway", "ListenerSet")
"""Kinds of the Gateway API that have listeners: an own Gateway's, and those that join somebody's."""

HOLDERS: Final = frozenset(
    {
        ("networking.k8s.io", "Ingress"),
        *((GATEWAY, kind) for kind in (*LISTENING, "GRPCRoute", "HTTPRoute", "TLSRoute")),
    }
)
"""The kinds that have host names, by group."""


def hosts_of(kind: str, body: Body) -> list[tuple[str, str]]:
    """The host names of an object, each after the field that has it; empty where one could be and is not."""
    spec = mapping(body.get("spec"))
    if kind == "Ingress":
        rules = enumerate(members(spec.get("rules")))
        found = [(f"spec.rules[{index}].host", text(mapping(rule).get("host"))) for index, rule in rules]
        if spec.get("defaultBackend") is not None or not found:
            found.append(("spec.defaultBackend", ""))
        for index, tls in enumerate(members(spec.get("tls"))):
            names = members(mapping(tls).get("hosts"))
            found += [(f"spec.tls[{index}].hosts[{number}]", text(name)) for number, name in enumerate(names)]
        return found
    if kind in LISTENING:
        listeners = enumerate(members(spec.get("listeners")))
        return [(f"spec.listeners[{index}].hostname", text(mapping(each).get("hostname"))) for index, each in listeners]
    names = [text(name) for name in members(spec.get("hostnames"))] or [""]
    return [(f"spec.hostnames[{index}]", name) for index, name in enumerate(names)]


def host_findings(policy: Policy, kind: str, body: Body) -> Iterator[Finding]:
    """The host names that the policy does not allow."""
    if policy.hosts is None:
        return
    for at, host in hosts_of(kind, body):
        if not any(within(host, pattern) for pattern in policy.hosts):
            said = f'the host name "{host}" is not allowed' if host else "a host name must be given"
            yield "hosts", at, host, f"{said}; {only(policy.hosts)}"


def within(host: str, pattern: str) -> bool:
    """Whether a host name, or all that a wildcard stands for, is the pattern's."""
    host = host.lower()
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
