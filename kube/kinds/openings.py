"""What an operator opens of a cluster's own objects to the tenants there: by kind, and by name or label (GW20).

A line says one: ``storageclasses.storage.k8s.io/fast``, ``customresourcedefinitions.apiextensions.k8s.io?team=web``, or
``ingressclasses.networking.k8s.io`` for all of them. Only kinds that say what a cluster offers can be opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kube.requests.labelselectors import Selector, parse_labels
from kube.requests.names import is_dns_subdomain
from kube.requests.status import BadRequest

Place = tuple[str, str]
"""A group and a plural."""

KINDS: Final[Mapping[Place, str]] = MappingProxyType(
    {
        ("storage.k8s.io", "storageclasses"): "StorageClass",
        ("networking.k8s.io", "ingressclasses"): "IngressClass",
        ("apiextensions.k8s.io", "customresourcedefinitions"): "CustomResourceDefinition",
    }
)
"""What can be opened, all of version ``v1``, by the kind."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Objects of one kind: the one of a name, those that a selector chooses, or all."""

    place: Place
    name: str = ""
    selector: Selector | None = None

    def includes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it opens this one."""
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
    """Read lines; empty ones say nothing. Raises ``BadRequest``."""
    return tuple(opening_from(line.strip()) for line in text.splitlines() if line.strip())


def shown_form(place: Place, item: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """An opened object as the tenants see it: what it says, under its name and labels; ``marks`` are ours."""
    metadata = item.get("metadata") or {}
    fields = {
        field: value for field, value in item.items() if field not in ("apiVersion", "kind", "metadata", "status")
    }
    return {
        "apiVersion": f"{place[0]}/v1",
        "kind": KINDS[place],
        "metadata": {"name": metadata["name"], "labels": {**(metadata.get("labels") or {}), **marks}},
        **fields,
    }
