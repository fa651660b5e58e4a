"""The rules that a ClusterRole with an aggregation rule is kept with, as Kubernetes' controller writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.authorization.rbac import role_from

MANAGER: Final = "clusterrole-aggregation-controller"

Manifest = Mapping[str, Any]


def aggregated_rules(role: Manifest, others: Iterable[Manifest]) -> list[Any] | None:
    """The rules of the ClusterRoles that ``role`` chooses, by its selectors and then by name, without repetitions.

    ``None`` where nothing is to be written: for a role without an aggregation rule, and for one that chooses none and has
    not been written before. What a chosen role is itself made of counts once it is written there.
    """
    selectors = role_from(role).aggregation
    if selectors is None:
        return None
    own = role["metadata"]["name"]
    found: list[Any] = []
    in_order = sorted(others, key=lambda other: str(other["metadata"]["name"]))
    for selector in selectors:
        for other in in_order:
            metadata = other["metadata"]
            if metadata["name"] != own and selector.matches(metadata.get("labels") or {}):
                found += [rule for rule in other.get("rules") or () if rule not in found]
    return found if found or _is_written(role) else None


def _is_written(role: Manifest) -> bool:
    return any(entry.get("manager") == MANAGER for entry in role["metadata"].get("managedFields") or ())


def with_rules(role: Manifest, rules: list[Any], *, now: str) -> dict[str, Any]:
    """The ClusterRole with these rules, which the controller then owns. ``now`` is RFC 3339."""
    metadata = role["metadata"]
    others = [_without_rules(entry) for entry in metadata.get("managedFields") or () if entry.get("manager") != MANAGER]
    owned = {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": role["apiVersion"],
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:rules": {}},
    }
    return {**role, "metadata": {**metadata, "managedFields": [*others, owned]}, "rules": rules}


def _without_rules(entry: Manifest) -> dict[str, Any]:
    fields = {name: child for name, child in entry.get("fieldsV1", {}).items() if name != "f:rules"}
    return {**entry, "fieldsV1": fields}
