"""Who the claims of an OpenID Connect token stand for, by Kubernetes' rules and the tenant's claim (AN8).

Stricter than Kubernetes where it matters for tenants: names that begin with ``system:`` are refused, an e-mail address
counts only when the issuer says that it has verified it, and a configured tenant claim must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kube.authentication.userinfo import groups_reasons, is_strings, name_reasons, outside_name_reasons, tenant_reasons
from kube.requests.names import SYSTEM_TENANT

_NONE_REQUIRED: Final[Mapping[str, str]] = MappingProxyType({})

EMAIL: Final = "email"
NO_PREFIX: Final = "-"
"""What ``--oidc-username-prefix`` says for no prefix at all."""


class ClaimError(ValueError):
    """Claims that give no identity. The message names the claim, never its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """How claims become a user. ``username_prefix`` ``None`` is Kubernetes' default: ``issuer#`` unless by e-mail.

    The tenant is the value of ``tenant_claim`` behind ``tenant_prefix``, or always ``tenant`` for an issuer that
    belongs to one tenant; with neither the user belongs to no tenant. Only an issuer with the fixed tenant ``system``
    makes users of it. A dot in ``tenant_claim`` is part of its name.
    """

    issuer: str
    username_claim: str = "sub"
    username_prefix: str | None = None
    groups_claim: str = ""
    groups_prefix: str = ""
    tenant_claim: str = ""
    tenant_prefix: str = ""
    tenant: str = ""
    required: Mapping[str, str] = field(default_factory=lambda: _NONE_REQUIRED)

    @property
    def prefix(self) -> str:
        """What stands before every user name."""
        if self.username_prefix is not None:
            return "" if self.username_prefix == NO_PREFIX else self.username_prefix
        return "" if self.username_claim == EMAIL else f"{self.issuer}#"


@dataclass(frozen=True, slots=True)
class Identity:
    """What the claims say."""

    name: str
    uid: str
    groups: tuple[str, ...]
    tenant: str | None


def identify(claims: Mapping[str, Any], rules: ClaimRules) -> Identity:
    """The user of verified claims. Raises ``ClaimError``."""
    for claim, wanted in rules.required.items():
        if claims.get(claim) != wanted:
            raise ClaimError(f"the claim {claim!r} has not the required value")
    name = claims.get(rules.username_claim)
    if not isinstance(name, str) or not name:
        raise ClaimError(f"the claim {rules.username_claim!r} is no name")
    if rules.username_claim == EMAIL and claims.get("email_verified") is not True:
        raise ClaimError("the e-mail address is not verified")
    name = rules.prefix + name
    if reasons := outside_name_reasons(name):
        raise ClaimError(f"the user name {reasons[0]}")
    uid = claims.get("sub")
    if not isinstance(uid, str) or (reasons := name_reasons(uid)):
        raise ClaimError("the claim 'sub' is no name")
    return Identity(name, uid, _groups(claims, rules), _tenant(claims, rules))


def _groups(claims: Mapping[str, Any], rules: ClaimRules) -> tuple[str, ...]:
    value = claims.get(rules.groups_claim) if rules.groups_claim else None
    if value is None:
        return ()
    groups = [value] if isinstance(value, str) else value
    if not is_strings(groups):
        raise ClaimError(f"the claim {rules.groups_claim!r} is neither text nor a list of text")
    prefixed = tuple(rules.groups_prefix + group for group in groups)
    if reasons := groups_reasons(prefixed):
        raise ClaimError(reasons[0])
    return prefixed


def _tenant(claims: Mapping[str, Any], rules: ClaimRules) -> str | None:
    if rules.tenant:
        return rules.tenant
    if not rules.tenant_claim:
        return None
    value = claims.get(rules.tenant_claim)
    if not isinstance(value, str) or not value:
        raise ClaimError(f"the claim {rules.tenant_claim!r} names no tenant")
    tenant = rules.tenant_prefix + value
    if reasons := tenant_reasons(tenant):
        raise ClaimError(f"the tenant {reasons[0]}")
    if tenant == SYSTEM_TENANT:
        raise ClaimError("the tenant is the operators'")
    return tenant
