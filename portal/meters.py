"""Quotas as meters: how much of each limit is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from django.core.cache import cache

from tenants import blueprints
from tenants.clusters import ClusterUnusable, Outcome, client_for
from tenants.models import Workspace

_FORM: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(n|u|m|k|Ki|Mi|Gi|Ti|Pi|Ei|M|G|T|P|E)?", re.ASCII)
_SCALE: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_ORDER: Final = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods")


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit. ``percent`` is whole and at most 100; ``level`` is empty, ``high`` (80 %) or ``full``."""

    resource: str
    used: str
    hard: str
    percent: int
    level: str


_REMEMBERED: Final = 10
"""Seconds for which a cluster's answer serves again: ten open pages are one question."""


def quota_used(workspace: Workspace) -> Mapping[str, str] | None:
    """What the cluster counts as used by the workspace's quota, or ``None`` when it cannot be asked."""
    key = f"portal:quota:{workspace.pk}"
    used: Mapping[str, str] | None = cache.get(key)
    if used is None:
        try:
            client = client_for(workspace.cluster, workspace.tenant_id)
        except ClusterUnusable:
            return None
        answer = client.get(blueprints.path(workspace, "resourcequotas", blueprints.QUOTA))
        status = answer.body.get("status")
        counted = status.get("used") if isinstance(status, dict) else None
        if answer.outcome is not Outcome.DONE or not isinstance(counted, dict):
            return None
        used = {str(name)[:128]: str(amount)[:32] for name, amount in list(counted.items())[:100]}
        cache.set(key, used, _REMEMBERED)
    return used


def meters_of(hard: Mapping[str, str], used: Mapping[str, str] | None) -> list[Meter]:
    """A meter for each limit, the common ones first; without ``used`` they are empty."""
    names = sorted(hard, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return [_meter(name, str(hard[name]), None if used is None else str(used.get(name, "0"))) for name in names]


def _meter(resource: str, hard: str, used: str | None) -> Meter:
    limit, amount = _number(hard), _number(used or "0")
    if used is None or limit is None or amount is None:
        return Meter(resource, used or "—", hard, 0, "")
    percent = 100 if limit == 0 else min(100, int(amount * 100 / limit))
    level = "full" if percent >= 100 else "high" if percent >= 80 else ""
    return Meter(resource, used, hard, percent, level)


def _number(text: str) -> Decimal | None:
    match = _FORM.fullmatch(text)
    return Decimal(match[1]) * _SCALE[match[2] or ""] if match else None
