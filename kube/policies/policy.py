"""The rules of a tier and of a tenant: what they may say, and what they come to together (AD4, AD5).

Every rule is a list of short texts. Where ``null`` is possible, it leaves the choice to the tenant; an empty list
leaves none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from kube.policies.images import registry_reasons
from kube.requests.configurations import configuration_of
from kube.requests.fielderrors import duplicate, invalid, not_supported, required, too_many, type_invalid
from kube.requests.names import dns_subdomain, label_value, qualified_name
from kube.requests.status import Cause

Names = tuple[str, ...] | None
"""What is allowed; ``None`` is everything."""

Rules = Mapping[str, Names]
"""Some of a policy's rules, by the names of its fields."""

TENANT: Final = "{tenant}"
"""Stands for the tenant's name in host names."""

_ENTRIES_MAX: Final = 200
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the objects of a tenant may be. As it is made, it chooses no nodes and outranks nobody (AD5).

    ``refused_kinds`` are not created: ``Kind.group``. ``node_labels`` (``key`` or ``key=value``) are those that node
    selectors and node affinity may ask for, ``node_names`` the nodes that pods may name, ``tolerations`` (``key``,
    ``key=value``, with or without ``:Effect``) the taints that they may bear, ``affinity_namespaces`` what their
    affinity may look at beside their own. ``registries`` are what images' names begin with. ``required_labels``
    (``key``, or ``key=value`` once for each value) are on every pod, claim, Service, Ingress and Gateway. ``hosts`` are
    host names, ``*.`` in front for all below one.
    """

    refused_kinds: tuple[str, ...] = ()
    node_labels: Names = ()
    node_names: Names = ()
    tolerations: Names = ()
    affinity_namespaces: Names = ()
    priority_classes: tuple[str, ...] = ()
    runtime_classes: Names = None
    storage_classes: Names = None
    ingress_classes: Names = None
    gateway_classes: Names = None
    service_types: Names = None
    registries: Names = None
    required_labels: tuple[str, ...] = ()
    hosts: Names = None


RULES: Final = tuple(field.name for field in fields(Policy))
"""The names of all rules, in the order in which people read them."""

LISTS: Final = frozenset({"refused_kinds", "priority_classes", "required_labels"})
"""Rules that cannot be ``null``."""


def policy_of(tenant: str, *layers: Rules) -> Policy:
    """What holds for a tenant: of each rule, what the last layer says that says anything; else the default."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= layer
    if hosts := merged.get("hosts"):
        merged["hosts"] = tuple(host.replace(TENANT, tenant) for host in hosts)
    return Policy(**merged)


def rules_of(policy: Policy) -> Rules:
    """All rules of a policy."""
    return asdict(policy)


def as_document(rules: Rules) -> dict[str, list[str] | None]:
    """Rules as JSON has them."""
    return {name: None if rules[name] is None else list(rules[name] or ()) for name in RULES if name in rules}


def read_configuration(document: Any) -> Rules:
    """The rules of a ``TenantPolicyConfiguration``: those of every tenant, below its tiers' and its own.

    Raises ``ValueError``, whose message names the field.
    """
    rules, causes = read_rules(configuration_of(document, "TenantPolicyConfiguration", "policies") or {}, "policies")
    if causes:
        raise ValueError(f"{causes[0].field}: {causes[0].message}")
    return rules


def read_rules(document: Any, at: str) -> tuple[Rules, list[Cause]]:
    """The rules of a JSON object, and what is wrong with it; ``at`` is where it is."""
    if not isinstance(document, Mapping):
        return {}, [type_invalid(at, document, "must be an object of rules")]
    causes = [not_supported(f"{at}.{str(name)[:80]}", str(name)[:80], RULES) for name in document if name not in RULES]
    rules: dict[str, Names] = {}
    for name in RULES:
        if name not in document:
            continue
        found = _entry_causes(name, document[name], f"{at}.{name}")
        causes += found
        if not found:
            rules[name] = None if document[name] is None else tuple(document[name])
    return rules, causes


def _entry_causes(name: str, value: Any, at: str) -> list[Cause]:
    if value is None:
        return [required(at, "must be a list")] if name in LISTS else []
    if not isinstance(value, list | tuple):
        return [
            type_invalid(at, value, "must be a list of texts" + ("" if name in LISTS else ", or null for anything"))
        ]
    if len(value) > _ENTRIES_MAX:
        return [too_many(at, len(value), _ENTRIES_MAX)]
    causes = []
    for index, entry in enumerate(value):
        where = f"{at}[{index}]"
        if not isinstance(entry, str) or not entry:
            causes.append(type_invalid(where, entry, "must be a text"))
        elif entry in value[:index]:
            causes.append(duplicate(where, entry))
        else:
            causes += [invalid(where, entry, reason) for reason in _READERS[name](entry)[:1]]
    return causes


def _kind(entry: str) -> Sequence[str]:
    kind, _, group = entry.partition(".")
    if not _KIND.fullmatch(kind) or (group and dns_subdomain(group)):
        return ("must be a kind with its group, for example DaemonSet.apps",)
    return ()


def _label(entry: str) -> Sequence[str]:
    key, _, value = entry.partition("=")
    return [*qualified_name(key), *label_value(value)]


def _toleration(entry: str) -> Sequence[str]:
    taint, colon, effect = entry.partition(":")
    if colon and effect not in _EFFECTS:
        return (f"the effect must be one of {', '.join(_EFFECTS)}",)
    return _label(taint)


def _priority_class(entry: str) -> Sequence[str]:
    if entry.startswith("system-"):
        return ("the classes of the system are for nobody's pods",)
    return dns_subdomain(entry)


def _service_type(entry: str) -> Sequence[str]:
    return () if entry in _SERVICE_TYPES else (f"must be one of {', '.join(_SERVICE_TYPES)}",)


def _host(entry: str) -> Sequence[str]:
    reasons = dns_subdomain(entry.removeprefix("*.").replace(TENANT, "tenant"))
    return ("must be a host name, or *. and the domain that host names are in",) if reasons else ()


_READERS: Final[Mapping[str, Callable[[str], Sequence[str]]]] = {
    "refused_kinds": _kind,
    "node_labels": _label,
    "node_names": dns_subdomain,
    "tolerations": _toleration,
    "affinity_namespaces": dns_subdomain,
    "priority_classes": _priority_class,
    "runtime_classes": dns_subdomain,
    "storage_classes": dns_subdomain,
    "ingress_classes": dns_subdomain,
    "gateway_classes": dns_subdomain,
    "service_types": _service_type,
    "registries": registry_reasons,
    "required_labels": _label,
    "hosts": _host,
}
