"""What an outside party may claim about a user: names, groups, the tenant.

Every authenticator that takes an identity from elsewhere (a certificate, a file, a webhook, an identity provider)
judges it here, so that no way of signing in is softer than another. The letter case of a tenant's name is kept and no
tenant is looked up: a user of a tenant that does not exist can do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kube.identity import SYSTEM_TENANT
from kube.names import RESERVED_TENANTS

NAME_MAX: Final = 1024
"""Characters of a user name, a uid or a group."""

GROUPS_MAX: Final = 200
"""Groups of one user: more is a provider's mistake, and each is looked up at every decision (JWT-17)."""

EXTRA_KEYS_MAX: Final = 32
EXTRA_VALUES_MAX: Final = 64
EXTRA_VALUE_MAX: Final = 4096

BINDING_PREFIX: Final = "apis.kcp.io:binding:"
"""What the maximal permission policy puts before names (KC5): nobody may come with it."""

SYSTEM_PREFIX: Final = "system:"

_TENANT: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OWN_EXTRA: Final = (
    "multi-tenancy.k8s.io/",
    "authentication.kubernetes.io/",
    "authentication.kcp.io/",
    "authorization.kcp.io/",
)


def tenant_reasons(value: str) -> list[str]:
    """Why no user can belong to a tenant of this name; ``system`` is a name like another here.

    Magic words (``all``, ``*`` and the segments that paths give a meaning) are refused in any letter case.
    """
    if not value:
        return ["must not be empty"]
    if not _TENANT.fullmatch(value):
        return ["must be a name of at most 63 letters, digits and '-'"]
    if value != SYSTEM_TENANT and value.lower() in RESERVED_TENANTS:
        return [f"'{value}' is reserved"]
    return []


def name_reasons(value: str) -> list[str]:
    """Why this is nobody's name, uid or group, whoever says it: empty, endless, control characters, kcp's prefix."""
    if not value:
        return ["must not be empty"]
    if len(value) > NAME_MAX:
        return [f"must be no more than {NAME_MAX} characters"]
    if _CONTROL.search(value):
        return ["must not contain control characters"]
    if value.startswith(BINDING_PREFIX):
        return [f"must not start with '{BINDING_PREFIX}'"]
    return []


def outside_name_reasons(value: str) -> list[str]:
    """Why an outside party may not give this name or group: as ``name_reasons``, and ``system:`` is ours."""
    reasons = name_reasons(value)
    if not reasons and value.startswith(SYSTEM_PREFIX):
        reasons.append(f"must not start with '{SYSTEM_PREFIX}'")
    return reasons


def groups_reasons(groups: Sequence[str], *, outside: bool = True) -> list[str]:
    """Why an outside party (or, with ``outside=False``, an operator's own file) may not give these groups."""
    if len(groups) > GROUPS_MAX:
        return [f"must be no more than {GROUPS_MAX} groups"]
    check = outside_name_reasons if outside else name_reasons
    return [f"a group {reason}" for group in groups for reason in check(group)]


def is_own_extra(key: str) -> bool:
    """Whether only this product may set this key of ``extra``."""
    return key.lower().startswith(_OWN_EXTRA)


def outside_extra(extra: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The keys of ``extra`` that an outside party may set, with their values; our own keys are left out.

    Raises ``ValueError`` where it is not a bounded mapping of names to lists of strings.
    """
    if len(extra) > EXTRA_KEYS_MAX:
        raise ValueError(f"extra must have no more than {EXTRA_KEYS_MAX} keys")
    kept: dict[str, tuple[str, ...]] = {}
    for key, values in extra.items():
        if name_reasons(key) or not is_strings(values) or len(values) > EXTRA_VALUES_MAX:
            raise ValueError("extra must map names to lists of strings")
        if any(len(value) > EXTRA_VALUE_MAX or _CONTROL.search(value) for value in values):
            raise ValueError("a value of extra is too long or contains control characters")
        if not is_own_extra(key):
            kept[key] = tuple(values)
    return kept


def is_strings(value: Any) -> bool:
    """Whether this is a list of strings and nothing else."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def unique(groups: Iterable[str]) -> tuple[str, ...]:
    """Groups in their order, each once."""
    return tuple(dict.fromkeys(groups))
