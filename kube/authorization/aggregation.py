"""The rules that a ClusterRole with an aggregation rule is kept with, as Kubernetes' controller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kube.authorization.choices import Choices, Question, TooManyLooks
from kube.authorization.rbac import role_from

RULES_MAX: Final = 2_000
"""Rules that are gathered into an object: as many as a role may have (``kube.validation.listlimits``)."""

MANAGER: Final = "clusterrole-aggregation-controller"

Manifest = Mapping[str, Any]


def choices_of(roles: Mapping[str, Manifest]) -> Choices:
    """ClusterRoles by name, to be chosen by their labels."""
    return Choices(roles, lambda role: role["metadata"].get("labels") or {})


def aggregated_rules(role: Manifest, others: Mapping[str, Manifest], choices: Choices) -> list[Any] | None:
    """The rules of the ClusterRoles that ``role`` chooses, by its selectors and then by name, without repetitions.

    ``None`` where nothing is to be written: for a role without an aggregation rule, for one that chooses none and has
    not been written before, and for one that would hold more rules than a role may, or takes too long to be put together.
    What a chosen role is itself made of counts once it is written there.
    """
    selectors = role_from(role).aggregation
    if selectors is None:
        return None
    found: dict[bytes, Any] = {}
    try:
        names = Question(choices).chosen(selectors, {role["metadata"]["name"]})
    except TooManyLooks:
        return None
    for name in names:
        found |= {orjson.dumps(rule, option=orjson.OPT_SORT_KEYS): rule for rule in others[name].get("rules") or ()}
        if len(found) > RULES_MAX:
            return None
    return list(found.values()) if found or _is_written(role) else None


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
