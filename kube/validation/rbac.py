"""Roles and bindings (AZ2): rules that can be read in one way only, subjects that can exist."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import forbidden, invalid, not_supported, required
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes

GROUP: Final = "rbac.authorization.k8s.io"


def role_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Role or ClusterRole."""
    namespaced = body.get("kind") == "Role"
    causes: list[Cause] = []
    for index, rule in enumerate(body.get("rules", ())):
        causes += rule_causes(rule, f"rules[{index}]", namespaced=namespaced)
    aggregation = body.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", ())
        here = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            causes.append(required(here, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
        for index, selector in enumerate(selectors):
            wrong = selector_causes(selector, f"{here}[{index}]")
            causes += [*wrong, invalid(f"{here}[{index}]", None, "invalid label selector.")] if wrong else []
    return causes


def rule_causes(rule: dict[str, Any], path: str, *, namespaced: bool) -> list[Cause]:
    """What is wrong with one rule."""
    causes: list[Cause] = []
    if not rule.get("verbs"):
        causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    scope = rule.get("scopeType")
    if scope not in (None, "", "Cluster", "Tenanted"):
        causes.append(not_supported(f"{path}.scopeType", scope, ["Cluster", "Tenanted"]))
    if scope == "Cluster" and (rule.get("tenants") is not None or rule.get("tenantSelector") is not None):
        # Which of the two counts must not be a guess.
        causes.append(forbidden(f"{path}.scopeType", "reaches every tenant, and tenants or tenantSelector only some"))
    if rule.get("tenantSelector") is not None:
        causes += selector_causes(rule["tenantSelector"], f"{path}.tenantSelector")
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            causes.append(invalid(f"{path}.nonResourceURLs", list(urls), detail))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            causes.append(invalid(f"{path}.nonResourceURLs", list(urls), detail))
        return causes
    if not rule.get("apiGroups"):
        causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return causes


def binding_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a RoleBinding or ClusterRoleBinding."""
    namespaced = body.get("kind") == "RoleBinding"
    causes: list[Cause] = []
    role = body.get("roleRef", {})
    if role.get("apiGroup") != GROUP:
        causes.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), [GROUP]))
    kinds = ["Role", "ClusterRole"] if namespaced else ["ClusterRole"]
    if role.get("kind") not in kinds:
        causes.append(not_supported("roleRef.kind", role.get("kind", ""), kinds))
    name = role.get("name", "")
    if not name:
        causes.append(required("roleRef.name"))
    else:
        causes += [invalid("roleRef.name", name, reason) for reason in names.path_segment(name)]
    for index, subject in enumerate(body.get("subjects", ())):
        causes += _subject_causes(subject, f"subjects[{index}]", namespaced=namespaced)
    return causes


_ROLE_REF: Final = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
"""How kube-apiserver shows the fields of a reference that was changed."""


def binding_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A binding's role stays."""
    if new.get("roleRef") != old.get("roleRef"):
        role = new.get("roleRef") or {}
        shown = {name: role.get(field, "") for name, field in _ROLE_REF.items()}
        return [invalid("roleRef", shown, "cannot change roleRef")]
    return []


def _subject_causes(subject: dict[str, Any], path: str, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    name, kind, group = subject.get("name", ""), subject.get("kind", ""), subject.get("apiGroup", "")
    if not name:
        causes.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        causes += [invalid(f"{path}.name", name, reason) for reason in names.dns_subdomain(name)] if name else []
        if group:
            causes.append(not_supported(f"{path}.apiGroup", group, [""]))
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            causes.append(not_supported(f"{path}.apiGroup", group, [GROUP]))
    else:
        causes.append(not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"]))
    return causes
