"""Leases, nodes, runtime classes and namespaces."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import choice_causes, duplicate, forbidden, invalid, key_path, reason_causes, required
from kube.requests.status import Cause
from kube.validation.addresses import network_causes, parse_network
from kube.validation.metadata import kube_finalizer_causes, label_causes
from kube.validation.resourcelists import container_resource_causes, resource_amount_causes
from kube.validation.scheduling import taint_causes, toleration_causes

_FAMILIES: Final = 2
_STRATEGIES: Final = ("OldestEmulationVersion",)


def lease_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Lease."""
    spec = body.get("spec", {})
    seconds, changes = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    causes: list[Cause] = []
    if seconds is not None and seconds <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if changes is not None and changes < 0:
        causes.append(invalid("spec.leaseTransitions", changes, "must be greater than or equal to 0"))
    return causes + choice_causes(spec, "strategy", _STRATEGIES, "spec")


def node_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Node."""
    spec = body.get("spec", {})
    causes = taint_causes(spec.get("taints", ()), "metadata.taints")
    networks: list[str] = spec.get("podCIDRs") or []
    for index, network in enumerate(networks):
        causes += network_causes(network, f"spec.podCIDRs[{index}]")
    families = {found.version for network in networks if (found := parse_network(network)) is not None}
    if len(networks) > 1 and (len(networks) > _FAMILIES or len(families) < _FAMILIES):
        detail = "may specify no more than one CIDR for each IP family"
        causes.append(invalid("spec.podCIDRs", networks, detail))
    return causes


def node_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What of a Node stays once it is set; no address is named twice."""
    after, before = new.get("spec", {}), old.get("spec", {})
    addresses: list[dict[str, Any]] = (new.get("status") or {}).get("addresses") or []
    causes = [
        duplicate(f"status.addresses[{index}]", {"Type": each.get("type", ""), "Address": each.get("address", "")})
        for index, each in enumerate(addresses)
        if each in addresses[:index]
    ]
    fixed, given = before.get("podCIDRs") or [], after.get("podCIDRs") or []
    if fixed:
        changed = 1 if len(fixed) != len(given) else sum(a != b for a, b in zip(fixed, given, strict=True))
        detail = 'node updates may not change podCIDR except from "" to valid'
        causes += [forbidden("spec.podCIDRs", detail)] * changed
    if before.get("providerID") and before["providerID"] != after.get("providerID", ""):
        detail = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden("spec.providerID", detail))
    if before.get("externalID", "") != after.get("externalID", ""):
        causes.append(forbidden("spec.externalID", "may not be updated"))
    return causes


def runtime_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a RuntimeClass."""
    handler = body.get("handler", "")
    causes = reason_causes("handler", handler, names.dns_label(handler)) if handler else [required("handler")]
    for name, quantity in body.get("overhead", {}).get("podFixed", {}).items():
        here = key_path("overhead.limits", name)
        causes += container_resource_causes(name, here) + resource_amount_causes(name, quantity, here)
    scheduling = body.get("scheduling", {})
    causes += label_causes(scheduling.get("nodeSelector", {}), "scheduling.nodeSelector")
    return causes + toleration_causes(scheduling.get("tolerations", ()), "scheduling.tolerations")


def namespace_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Namespace."""
    causes: list[Cause] = []
    for name in body.get("spec", {}).get("finalizers", ()):
        causes += reason_causes("spec.finalizers", name, names.qualified_name(name))
        causes += kube_finalizer_causes(name, "spec.finalizers")
    return causes
