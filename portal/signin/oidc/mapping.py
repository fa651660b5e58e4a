"""What a provider's groups mean here: roles in tenants, and the operators' rights (GW16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.requests.names import SYSTEM_TENANT, is_dns_label

ROLES: Final = ("owner", "admin", "editor", "viewer")
"""From most to least, as ``tenants.models.Role`` has them; settings are read before models are."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one group gives: a role in a tenant, or the operators' rights."""

    tenant: str = ""
    role: str = ""
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Rights:
    """What a person's groups give in all. ``None`` is no role, for a tenant that the mapping decides about.

    ``operator`` is ``None`` where the mapping has no group of operators: the provider has no say then.
    """

    operator: bool | None
    roles: Mapping[str, str | None]


def parse(value: Any) -> dict[str, Grant]:
    """The mapping in ``OIDC_GROUP_MAPPING``; raises ``ValueError`` saying which group is wrong."""
    if not isinstance(value, dict):
        raise ValueError("OIDC_GROUP_MAPPING must be a JSON object of groups")  # noqa: TRY004 - text, wrongly written
    return {group: _grant(group, given) for group, given in value.items()}


def rights_of(mapping: Mapping[str, Grant], groups: Iterable[str]) -> Rights:
    """What the groups give: the highest role of each tenant counts."""
    held = [mapping[group] for group in groups if group in mapping]
    roles: dict[str, str | None] = {}
    for tenant in sorted({grant.tenant for grant in mapping.values() if grant.tenant}):
        found = [grant.role for grant in held if grant.tenant == tenant]
        roles[tenant] = min(found, key=ROLES.index) if found else None
    knows_operators = any(grant.operator for grant in mapping.values())
    return Rights(any(grant.operator for grant in held) if knows_operators else None, roles)


def _grant(group: str, given: Any) -> Grant:
    if given == {"operator": True}:
        return Grant(operator=True)
    if not isinstance(given, dict) or set(given) != {"tenant", "role"}:
        raise ValueError(f'OIDC_GROUP_MAPPING, {group!r}: must be {{"tenant": …, "role": …}} or {{"operator": true}}')
    tenant, role = given["tenant"], given["role"]
    if not isinstance(tenant, str) or not is_dns_label(tenant) or tenant == SYSTEM_TENANT:
        raise ValueError(f"OIDC_GROUP_MAPPING, {group!r}: the tenant must be a tenant's name")
    if role not in ROLES:
        raise ValueError(f"OIDC_GROUP_MAPPING, {group!r}: the role must be one of {', '.join(ROLES)}")
    return Grant(tenant=tenant, role=role)
