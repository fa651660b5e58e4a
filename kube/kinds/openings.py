"""What an operator opens of a cluster's own objects to the tenants there: by kind, and by name or label (GW20).

A line says one: ``storageclasses.storage.k8s.io/fast``, ``customresourcedefinitions.apiextensions.k8s.io?team=web``, or
``ingressclasses.networking.k8s.io`` for all of them. Only kinds that say what a cluster offers can be opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kube.kinds.builtins import BUILTINS
from kube.requests.labelselectors import Selector, parse_labels
from kube.requests.names import SUBDOMAIN_MAX, is_dns_subdomain, path_segment
from kube.requests.status import BadRequest

Place = tuple[str, str]
"""A group and a plural."""

APPROVED: Final = "api-approved.kubernetes.io"
"""The annotation without which no definition of a group of Kubernetes is taken."""

DEFINITIONS: Final[Place] = ("apiextensions.k8s.io", "customresourcedefinitions")
API_SERVICES: Final[Place] = ("apiregistration.k8s.io", "apiservices")
KINDS: Final[Mapping[Place, str]] = MappingProxyType(
    {
        API_SERVICES: "APIService",
        ("storage.k8s.io", "storageclasses"): "StorageClass",
        ("networking.k8s.io", "ingressclasses"): "IngressClass",
        ("scheduling.k8s.io", "priorityclasses"): "PriorityClass",
        ("node.k8s.io", "runtimeclasses"): "RuntimeClass",
        ("gateway.networking.k8s.io", "gatewayclasses"): "GatewayClass",
        DEFINITIONS: "CustomResourceDefinition",
    }
)
"""What can be opened, all of version ``v1``, by the kind."""

BUILT_IN: Final = frozenset(BUILTINS.groups())
"""The groups of what every space has."""

DEFINED: Final[frozenset[Place]] = frozenset({("gateway.networking.k8s.io", "gatewayclasses")})
"""Kinds that a cluster may have by a definition."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Objects of one kind: the one of a name, those that a selector chooses, or all."""

    place: Place
    name: str = ""
    selector: Selector | None = None

    def includes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it opens this one: never what has a name that no object can have, whatever a cluster says."""
        if not 0 < len(name) <= SUBDOMAIN_MAX or not name.isprintable() or path_segment(name):
            return False
        return (not self.name or name == self.name) and (self.selector is None or self.selector.matches(labels))


def opening_from(line: str) -> Opening:
    """Read a line. Raises ``BadRequest`` in words for whoever wrote it."""
    kind, _, selector = line.partition("?")
    kind, slash, name = kind.partition("/")
    plural, _, group = kind.partition(".")
    if (group, plural) not in KINDS:
        known = ", ".join(f"{plural}.{group}" for group, plural in KINDS)
        raise BadRequest(f'"{kind[:128]}" cannot be opened: only {known} can')
    if slash and (selector or not is_dns_subdomain(name)):
        raise BadRequest(f'"{line[:128]}": a name in lower case follows the slash, and nothing else')
    return Opening((group, plural), name, parse_labels(selector) if selector else None)


def openings_from(text: str) -> tuple[Opening, ...]:
    """Read lines; empty ones say nothing. A kind that is defined is opened with its definition. Raises ``BadRequest``."""
    found = [opening_from(line.strip()) for line in text.splitlines() if line.strip()]
    defined = sorted({opening.place for opening in found} & DEFINED)
    return (*found, *(Opening(DEFINITIONS, f"{plural}.{group}") for group, plural in defined))


def shown_form(place: Place, item: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """An opened object as the tenants see it: what it says, under its name and labels; ``marks`` are ours."""
    metadata = item.get("metadata") or {}
    fields = {
        field: value for field, value in item.items() if field not in ("apiVersion", "kind", "metadata", "status")
    }
    shown: dict[str, Any] = {"name": metadata["name"], "labels": {**(metadata.get("labels") or {}), **marks}}
    if place == DEFINITIONS and (approval := (metadata.get("annotations") or {}).get(APPROVED)):
        shown["annotations"] = {APPROVED: approval}
    return {"apiVersion": f"{place[0]}/v1", "kind": KINDS[place], "metadata": shown, **fields}


def aggregated_version(api_service: Mapping[str, Any]) -> tuple[str, str] | None:
    """The group and version that an APIService has another server answer for.

    ``None`` where it is the cluster's own, or of a group that every space has: nobody else says what its kinds are. So it
    is where it speaks for another group than its name does, by which alone an operator has opened it.
    """
    spec = api_service.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("service"), Mapping):
        return None
    group, version = str(spec.get("group") or ""), str(spec.get("version") or "")
    fits = is_dns_subdomain(group) and is_dns_subdomain(version) and group not in BUILT_IN
    return (group, version) if fits and api_service["metadata"]["name"] == f"{version}.{group}" else None


def definitions_from(
    group: str, version: str, document: Mapping[str, Any], marks: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The kinds of namespaces in an ``APIResourceList``, each as a definition that leaves open what its objects hold.

    Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for a document that is none.
    """
    found = {}
    for resource in document.get("resources") or ():
        plural, kind = str(resource["name"]), str(resource["kind"])
        if "/" in plural or resource.get("namespaced") is not True:
            continue
        singular = str(resource.get("singularName") or kind.lower())
        names = {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        approval = {APPROVED: "unapproved, another server's"}
        found[f"{plural}.{group}"] = {
            "apiVersion": f"{DEFINITIONS[0]}/v1",
            "kind": KINDS[DEFINITIONS],
            "metadata": {"name": f"{plural}.{group}", "labels": dict(marks), "annotations": approval},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
        }
    return found
