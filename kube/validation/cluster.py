"""Leases, nodes, runtime classes and namespaces."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import choice_causes, invalid, key_path, reason_causes, required
from kube.requests.status import Cause
from kube.validation.addresses import network_causes
from kube.validation.metadata import kube_finalizer_causes, label_causes
from kube.validation.resourcelists import container_resource_causes, resource_amount_causes
from kube.validation.scheduling import taint_causes, toleration_causes

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
    for index, network in enumerate(spec.get("podCIDRs", ())):
        causes += network_causes(network, f"spec.podCIDRs[{index}]")
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
