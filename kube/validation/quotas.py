"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import duplicate, forbidden, immutable, invalid, key_path, required
from kube.requests.status import Cause
from kube.validation.quantities import amount, exceeds, quantity_causes
from kube.validation.resourcelists import (
    container_resource_causes,
    is_huge,
    is_native,
    is_quota_standard,
    quota_resource_causes,
    resource_amount_causes,
    resource_name_causes,
)

_LIMIT_TYPES: Final = ("Container", "PersistentVolumeClaim", "Pod")
_COMPUTE: Final = frozenset(("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"))
_PODS: Final = frozenset(("pods",))
_CLAIMS: Final = frozenset(("persistentvolumeclaims", "requests.storage"))
_SCOPES: Final[dict[str, Collection[str]]] = {
    "BestEffort": _PODS,
    "CrossNamespacePodAffinity": _PODS | _COMPUTE,
    "NotBestEffort": _PODS | _COMPUTE,
    "NotTerminating": _PODS | _COMPUTE,
    "PriorityClass": _PODS | _COMPUTE,
    "Terminating": _PODS | _COMPUTE,
    "VolumeAttributesClass": _CLAIMS,
}
"""Scope → the resources that may be limited within it."""

_OPPOSITES: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_UNARY: Final = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_UNARY_WORDS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_UNSUITED: Final = "unsupported scope applied to resource"


def resource_quota_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a ResourceQuota."""
    spec = body.get("spec", {})
    causes: list[Cause] = []
    for name, quantity in spec.get("hard", {}).items():
        here = key_path("spec.hard", name)
        causes += quota_resource_causes(name, here) + resource_amount_causes(name, quantity, here)
    return causes + _scope_causes(spec) + _scope_selector_causes(spec)


def resource_quota_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A quota's scopes stay."""
    after, before = (body.get("spec", {}).get("scopes", []) for body in (new, old))
    return [] if set(after) == set(before) else [immutable("spec.scopes", after or None)]


def _unsuited(scope: str, hard: Collection[str]) -> int:
    """How many of the limited resources have nothing to do with the scope."""
    fitting = _SCOPES.get(scope)
    return 0 if fitting is None else sum(name not in fitting for name in hard if is_quota_standard(name))


def _scope_causes(spec: dict[str, Any]) -> list[Cause]:
    scopes, path = spec.get("scopes", []), "spec.scopes"
    causes: list[Cause] = []
    for scope in scopes:
        if scope not in _SCOPES:
            causes.append(invalid(path, scopes, "unsupported scope"))
        causes += [invalid(path, scopes, _UNSUITED)] * _unsuited(scope, spec.get("hard", {}))
    return causes + _opposite_causes(scopes, scopes, path)


def _opposite_causes(found: Collection[str], shown: Any, path: str) -> list[Cause]:
    return [invalid(path, shown, "conflicting scopes") for pair in _OPPOSITES if all(each in found for each in pair)]


def _scope_selector_causes(spec: dict[str, Any]) -> list[Cause]:
    if "scopeSelector" not in spec:
        return []
    path = "spec.scopeSelector.matchExpressions"
    expressions = spec["scopeSelector"].get("matchExpressions", [])
    shown = [
        {"ScopeName": e.get("scopeName", ""), "Operator": e.get("operator", ""), "Values": e.get("values")}
        for e in expressions
    ]
    causes: list[Cause] = []
    for wanted in expressions:
        scope, operator, values = wanted.get("scopeName", ""), wanted.get("operator", ""), wanted.get("values", [])
        if scope not in _SCOPES:
            causes.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        whole = {"MatchExpressions": shown}
        causes += [invalid(path, whole, _UNSUITED)] * _unsuited(scope, spec.get("hard", {}))
        if scope in _UNARY and operator != "Exists":
            causes.append(invalid(f"{path}.operator", operator, _UNARY_WORDS))
        if operator in ("In", "NotIn"):
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes += [] if values else [required(f"{path}.values", detail)]
        elif operator in ("Exists", "DoesNotExist"):
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes += [invalid(f"{path}.values", values, detail)] if values else []
        else:
            causes.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    scopes = [str(wanted.get("scopeName", "")) for wanted in expressions]
    return causes + _opposite_causes(scopes, spec.get("scopes"), path)


def limit_range_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a LimitRange."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, limit in enumerate(body.get("spec", {}).get("limits", ())):
        here, kind = f"spec.limits[{index}]", limit.get("type", "")
        reasons = names.qualified_name(kind)
        causes += [invalid(f"{here}.type", kind, reason) for reason in reasons]
        if not reasons and "/" not in kind and kind not in _LIMIT_TYPES:
            causes.append(invalid(f"{here}.type", kind, "must be a standard limit type or fully qualified"))
        causes += [duplicate(f"{here}.type", kind)] if kind in seen else []
        seen.add(kind)
        causes += _amount_causes(limit, kind, here)
        causes += _order_causes(limit, here) + _ratio_causes(limit, here)
    return causes


def _amount_causes(limit: dict[str, Any], kind: str, path: str) -> list[Cause]:
    rule = container_resource_causes if kind in ("Pod", "Container") else resource_name_causes
    causes: list[Cause] = []
    for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        if kind == "Pod" and field.startswith("default"):
            detail = "may not be specified when `type` is 'Pod'"
            causes += [forbidden(f"{path}.{field}", detail)] if limit.get(field) else []
            continue
        if field == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim":
            detail = "either minimum or maximum storage value is required, but neither was provided"
            stored = any("storage" in limit.get(each, {}) for each in ("min", "max"))
            causes += [] if stored else [required(f"{path}.limits", detail)]
        for name, quantity in limit.get(field, {}).items():
            here = key_path(f"{path}.{field}", name)
            causes += rule(name, here) + quantity_causes(quantity, here)
    return causes


# low, high, the field that is named, the amount that is shown, and the words for both: kube-apiserver's own.
_ORDER: Final = (
    ("min", "max", "min", "min", "min", "max"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min", "default request"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request", "max"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", "default request", "default limit"),
    ("min", "default", "default", "min", "min", "default"),
    ("default", "max", "default", "max", "default", "max"),
)


def _order_causes(limit: dict[str, Any], path: str) -> list[Cause]:
    """Which amounts of a limit are greater than those they must not exceed."""
    causes: list[Cause] = []
    for low, high, field, shown, low_words, high_words in _ORDER:
        for name in sorted(limit.get(low, {}).keys() & limit.get(high, {}).keys()):
            least, most = limit[low][name], limit[high][name]
            if exceeds(least, most):
                detail = f"{low_words} value {least} is greater than {high_words} value {most}"
                causes.append(invalid(key_path(f"{path}.{field}", name), limit[shown][name], detail))
    return causes


def _ratio_causes(limit: dict[str, Any], path: str) -> list[Cause]:
    """Ratios that nothing can keep, and defaults of what cannot be shared."""
    causes: list[Cause] = []
    for name, quantity in limit.get("maxLimitRequestRatio", {}).items():
        here, ratio = key_path(f"{path}.maxLimitRequestRatio", name), amount(quantity)
        least, most = amount(limit.get("min", {}).get(name)), amount(limit.get("max", {}).get(name))
        if ratio is not None and ratio.milli() < 1000:
            causes.append(invalid(here, quantity, f"ratio {quantity} is less than 1"))
        bound = most.nanos / least.nanos if least is not None and most is not None and least.nanos else math.inf
        if ratio is not None and ratio.nanos / 10**9 > bound:
            causes.append(invalid(here, quantity, f"ratio {quantity} is greater than max/min = {bound:f}"))
    for name, asked in limit.get("defaultRequest", {}).items():
        given = limit.get("default", {}).get(name)
        shared = is_native(name) and not is_huge(name)
        if given is not None and not shared and amount(given) != amount(asked):
            detail = f"default value {given} must equal to defaultRequest value {asked} in {name}"
            causes.append(invalid(key_path(f"{path}.defaultRequest", name), asked, detail))
    return causes
