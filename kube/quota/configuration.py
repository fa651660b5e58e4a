"""What an ``AdmissionConfiguration`` says about tenants' quotas: those that new tenants get, and usage rules (AD1, AD3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube.quota.quantities import parse_quantity
from kube.quota.tenantquotas import GROUP, VERSION, UsageRule
from kube.requests.names import qualified_name

_DEFAULT: Final[Mapping[str, str]] = {
    "persistentvolumeclaims": "5000",
    "pods": "10000",
    "services.loadbalancers": "100",
    "services.nodeports": "1000",
}
"""Beyond what a tenant needs, and within what one installation bears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuotaConfiguration:
    """``hard`` is the quota of tenants that are given none at their creation; ``rules`` count what Kubernetes does not."""

    hard: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT))
    rules: tuple[UsageRule, ...] = ()


def read_configuration(document: Any) -> TenantQuotaConfiguration:
    """Read a ``TenantQuotaConfiguration``. Raises ``ValueError``, whose message names the field."""
    document = _object(document, "configuration", {"apiVersion", "kind", "hard", "usage"})
    if document.get("kind") != "TenantQuotaConfiguration" or document.get("apiVersion") != f"{GROUP}/{VERSION}":
        raise ValueError(f"configuration must be a TenantQuotaConfiguration of {GROUP}/{VERSION}")
    rules = document.get("usage") or []
    if not isinstance(rules, list):
        raise ValueError("usage must be a list")  # noqa: TRY004 - of the file, not of the caller
    hard = _hard(document["hard"]) if "hard" in document else dict(_DEFAULT)
    return TenantQuotaConfiguration(
        hard=hard, rules=tuple(_rule(rule, f"usage[{index}]") for index, rule in enumerate(rules))
    )


def _hard(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("hard must be an object")  # noqa: TRY004
    for name, amount in given.items():
        if parse_quantity(amount).nanos < 0:
            raise ValueError(f"hard[{name}] must not be negative")
    return {str(name): str(amount) for name, amount in given.items()}


def _rule(given: Any, at: str) -> UsageRule:
    given = _object(given, at, {"name", "apiGroup", "resource", "annotation", "field"})
    texts = {name: given.get(name, "") for name in ("name", "apiGroup", "resource", "annotation", "field")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"{at} must hold texts")
    if not texts["name"] or qualified_name(texts["name"]) or not texts["resource"]:
        raise ValueError(f"{at} needs a name, such as example.com/bandwidth, and the resource that it is counted for")
    if bool(texts["annotation"]) == bool(texts["field"]):
        raise ValueError(f"{at} needs either annotation or field")
    path = tuple(part for part in texts["field"].split(".") if part)
    return UsageRule(
        name=texts["name"],
        group=texts["apiGroup"],
        plural=texts["resource"],
        annotation=texts["annotation"],
        path=path,
    )


def _object(value: Any, at: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{at} must be an object")  # noqa: TRY004
    for key in value:
        if key not in known:
            raise ValueError(f"{at}.{key} is not supported")
    return value
