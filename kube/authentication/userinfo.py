"""What a file, a webhook or an identity provider may say about a user: names, groups, the tenant, extra.

Names are judged by ``kube.authentication.subjects``, as those of certificates are, so that no way of signing in is softer than
another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kube.authentication.subjects import GROUPS_MAX, InvalidSubject, check_name, check_tenant

EXTRA_KEYS_MAX: Final = 32
EXTRA_VALUES_MAX: Final = 64
EXTRA_VALUE_MAX: Final = 4096

SYSTEM_PREFIX: Final = "system:"

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OWN_EXTRA: Final = (
    "multi-tenancy.k8s.io/",
    "authentication.kubernetes.io/",
    "authentication.kcp.io/",
    "authorization.kcp.io/",
)


def tenant_reasons(value: str) -> list[str]:
    """Why no user can belong to a tenant of this name; ``system`` is a name like another here."""
    try:
        check_tenant(value, system=True)
    except InvalidSubject:
        return ["is empty, malformed or reserved"]
    return []


def name_reasons(value: str) -> list[str]:
    """Why this is nobody's name, uid or group, whoever says it: empty, endless, control characters, kcp's prefix."""
    try:
        check_name("name", value)
    except InvalidSubject:
        return ["is empty, too long, holds control characters or begins with a reserved prefix"]
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


def is_extra_value(value: str) -> bool:
    """Whether this can be a value of ``extra``: not endless, without control characters."""
    return len(value) <= EXTRA_VALUE_MAX and _CONTROL.search(value) is None


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
        if not all(is_extra_value(value) for value in values):
            raise ValueError("a value of extra is too long or contains control characters")
        if not is_own_extra(key):
            kept[key] = tuple(values)
    return kept


def is_strings(value: Any) -> bool:
    """Whether this is a list of strings and nothing else."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
