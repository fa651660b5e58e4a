"""Where pods may go: affinities, tolerations, taints and spreading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    reason_causes,
    required,
)
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
_HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = "must be in the range 1-100"


def affinity_causes(affinity: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a pod's affinities."""
    causes: list[Cause] = []
    nodes, here = affinity.get("nodeAffinity", {}), f"{path}.nodeAffinity"
    if _HARD in nodes:
        causes += node_selector_causes(nodes[_HARD], f"{here}.{_HARD}")
    for index, term in enumerate(nodes.get(_SOFT, ())):
        place = f"{here}.{_SOFT}[{index}]"
        causes += _weight_causes(term, place)
        causes += _node_term_causes(term.get("preference", {}), f"{place}.preference", checks_values=False)
    for field in ("podAffinity", "podAntiAffinity"):
        pods, here = affinity.get(field, {}), f"{path}.{field}"
        for index, term in enumerate(pods.get(_HARD, ())):
            causes += _pod_term_causes(term, f"{here}.{_HARD}[{index}]")
        for index, term in enumerate(pods.get(_SOFT, ())):
            place = f"{here}.{_SOFT}[{index}]"
            causes += _weight_causes(term, place)
            causes += _pod_term_causes(term.get("podAffinityTerm", {}), f"{place}.podAffinityTerm")
    return causes


def node_selector_causes(selector: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a ``NodeSelector``."""
    terms = selector.get("nodeSelectorTerms", ())
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    return [
        cause
        for index, term in enumerate(terms)
        for cause in _node_term_causes(term, f"{path}.nodeSelectorTerms[{index}]", checks_values=True)
    ]


def _weight_causes(term: dict[str, Any], path: str) -> list[Cause]:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid(f"{path}.weight", weight, _WEIGHT)]


def _node_term_causes(term: dict[str, Any], path: str, *, checks_values: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, wanted in enumerate(term.get("matchExpressions", ())):
        here = f"{path}.matchExpressions[{index}]"
        causes += _expression_causes(wanted, here)
        key, values = wanted.get("key", ""), wanted.get("values", ()) if checks_values else ()
        causes += reason_causes(f"{here}.key", key, names.qualified_name(key))
        for position, value in enumerate(values):
            causes += reason_causes(f"{here}.values[{position}]", value, names.label_value(value))
    for index, wanted in enumerate(term.get("matchFields", ())):
        causes += _field_causes(wanted, f"{path}.matchFields[{index}]")
    return causes


def _expression_causes(wanted: dict[str, Any], path: str) -> list[Cause]:
    operator, values = wanted.get("operator", ""), wanted.get("values", ())
    here = f"{path}.values"
    if operator in ("In", "NotIn"):
        return [] if values else [required(here, "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist"):
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(here, detail)] if values else []
    if operator in ("Gt", "Lt"):
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        return [] if len(values) == 1 else [required(here, detail)]
    return [invalid(f"{path}.operator", operator, "not a valid selector operator")]


def _field_causes(wanted: dict[str, Any], path: str) -> list[Cause]:
    operator, values, key = wanted.get("operator", ""), wanted.get("values", ()), wanted.get("key", "")
    causes: list[Cause] = []
    if operator not in ("In", "NotIn"):
        causes.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{path}.values", detail))
    if key != "metadata.name":
        return [*causes, invalid(f"{path}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        causes += reason_causes(f"{path}.values[{index}]", value, names.dns_subdomain(value))
    return causes


def _pod_term_causes(term: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("labelSelector", "namespaceSelector"):
        causes += selector_causes(term.get(field, {}), f"{path}.{field}")
    for namespace in term.get("namespaces", ()):
        causes += reason_causes(f"{path}.namespace", namespace, names.dns_label(namespace))
    causes += _label_key_causes(term, path)
    key, here = term.get("topologyKey", ""), f"{path}.topologyKey"
    causes += [] if key else [required(here, "can not be empty")]
    return causes + reason_causes(here, key, names.qualified_name(key))


def _label_key_causes(term: dict[str, Any], path: str) -> list[Cause]:
    match, mismatch = term.get("matchLabelKeys", []), term.get("mismatchLabelKeys", [])
    causes: list[Cause] = []
    for field, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and "labelSelector" not in term:
            causes.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        for index, key in enumerate(keys):
            causes += reason_causes(f"{path}.{field}[{index}]", key, names.qualified_name(key))
    return causes + [
        invalid(f"{path}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")
        for index, key in enumerate(match)
        if key in mismatch
    ]


def toleration_causes(tolerations: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    """What is wrong with tolerations."""
    causes: list[Cause] = []
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        causes += reason_causes(f"{here}.key", key, names.qualified_name(key)) if key else []
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid(f"{here}.operator", operator, detail))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{here}.effect", effect, detail))
        if operator in ("Equal", ""):
            reasons = names.label_value(value)
            causes += [invalid(f"{here}.operator", value, ";".join(reasons))] if reasons else []
        elif operator == "Exists":
            detail = "value must be empty when `operator` is 'Exists'"
            causes += [invalid(f"{here}.operator", value, detail)] if value else []
        else:
            # Numbers are compared behind a feature gate that is off by default.
            known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            causes.append(not_supported(f"{here}.operator", operator, known))
        causes += _effect_causes(effect, f"{here}.effect") if effect else []
    return causes


def _effect_causes(effect: str, path: str) -> list[Cause]:
    return [] if effect in _EFFECTS else [not_supported(path, effect, _EFFECTS)]


def taint_causes(taints: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    """What is wrong with a node's taints."""
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        here = f"{path}[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        causes += reason_causes(f"{here}.key", key, names.qualified_name(key))
        reasons = names.label_value(value)
        causes += [invalid(f"{here}.value", value, ";".join(reasons))] if reasons else []
        causes += _effect_causes(effect, f"{here}.effect") if effect else [required(f"{here}.effect")]
        if (key, effect) in seen:
            shown = {"key": key, **({"value": value} if value else {}), "effect": effect}
            cause = duplicate(here, shown)
            words = f"{cause.message}: taints must be unique by key and effect pair"
            causes.append(Cause(cause.reason, words, cause.field))
        seen.add((key, effect))
    return causes


def spread_causes(constraints: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    """What is wrong with a pod's topology spread constraints."""
    causes: list[Cause] = []
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if constraint.get("maxSkew", 0) <= 0:
            causes.append(invalid(f"{here}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not key:
            causes.append(required(f"{here}.topologyKey", "can not be empty"))
        if action not in _UNSATISFIABLE:
            causes.append(not_supported(f"{here}.whenUnsatisfiable", action, _UNSATISFIABLE))
        pairs = [(other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) for other in constraints]
        if (key, action) in pairs[index + 1 :]:
            field = f"{here}.{{topologyKey, whenUnsatisfiable}}"
            causes.append(duplicate(field, f"{{{key}, {action}}}"))
        causes += _domain_causes(constraint, action, here)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            causes += choice_causes(constraint, field, _POLICIES, here)
        causes += _own_key_causes(constraint, here)
        causes += selector_causes(constraint.get("labelSelector", {}), f"{here}.labelSelector")
    return causes


def _domain_causes(constraint: dict[str, Any], action: str, path: str) -> list[Cause]:
    least, here = constraint.get("minDomains"), f"{path}.minDomains"
    if least is None:
        return []
    causes = [] if least > 0 else [invalid(here, least, "must be greater than zero")]
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        causes.append(invalid(here, least, detail))
    return causes


def _own_key_causes(constraint: dict[str, Any], path: str) -> list[Cause]:
    keys, selector = constraint.get("matchLabelKeys", ()), constraint.get("labelSelector")
    if not keys:
        return []
    if selector is None:
        return [forbidden(f"{path}.matchLabelKeys", "must not be specified when labelSelector is not set")]
    causes: list[Cause] = []
    for index, key in enumerate(keys):
        causes += reason_causes(f"{path}.matchLabelKeys[{index}]", key, names.qualified_name(key))
    return causes
