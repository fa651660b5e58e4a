"""Quotas as meters: how much of each limit is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from kube.quota.quantities import InvalidQuantity, Quantity, parse_quantity
from portal.caching import cached
from tenants.clusters import objects
from tenants.clusters.client import ClusterUnusable, Outcome, client_for
from tenants.models import Workspace

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_ORDER: Final = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods")


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit. ``percent`` is whole and at most 100; ``level`` is empty, ``high`` (80 %) or ``full``.

    ``note`` says when it will be full, or that more is used than may be.
    """

    resource: str
    used: str
    hard: str
    percent: int
    level: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """A quota as a page shows it: the meters of what is used, and the others folded away.

    ``is_new`` is set where nothing is used but what every namespace is born with; all meters are folded then, as they
    are while nobody knows what is used.
    """

    used: tuple[Meter, ...]
    folded: tuple[Meter, ...]
    is_new: bool = False

    @property
    def summary(self) -> str:
        """What is folded, in words."""
        count = len(self.folded)
        words = f"limit{'' if count == 1 else 's'}"
        return f"{count} more {words} of which nothing is used" if self.used else f"All {count} {words}"

    @property
    def line(self) -> str:
        """The same where nothing beside it says that nothing is used."""
        count = len(self.folded)
        return f"Nothing is used of {count} limit{'' if count == 1 else 's'}" if self.is_new else self.summary


_FURNITURE: Final = frozenset(
    {"configmaps", "events", "leases", "networkpolicies", "rolebindings", "roles", "secrets", "serviceaccounts"}
)
"""What clusters and the product put into a namespace themselves: having it is no use of it."""

_NOTHING: Final = Quantity(0)
_BEYOND: Final = "more than allowed: nothing is taken away, and nothing more is admitted"
_REMEMBERED: Final = 10
"""Seconds for which a cluster's answer serves again: ten open pages are one question."""


def quota_used(workspace: Workspace) -> Mapping[str, str] | None:
    """What the cluster counts as used by the workspace's quota, or ``None`` when it cannot be asked."""
    return cached(f"portal:quota:{workspace.pk}", _REMEMBERED, lambda: _counted(workspace))


def limits_of(
    hard: Mapping[str, str], used: Mapping[str, str] | None, forecast: Mapping[str, timedelta] | None = None
) -> Limits:
    """The same meters as ``meters_of``, those that say something apart from those that do not (GW14)."""
    meters = meters_of(hard, used, forecast)
    amounts = {name: _read(str(amount)) for name, amount in (used or {}).items()}
    # An amount that cannot be read is one that somebody should see.
    told = [meter for meter in meters if meter.resource in amounts and amounts[meter.resource] != _NOTHING]
    if all(meter.resource.removeprefix("count/").partition(".")[0] in _FURNITURE for meter in told):
        return Limits((), tuple(meters), is_new=used is not None)
    return Limits(tuple(told), tuple(meter for meter in meters if meter not in told))


def meters_of(
    hard: Mapping[str, str], used: Mapping[str, str] | None, forecast: Mapping[str, timedelta] | None = None
) -> list[Meter]:
    """A meter for each limit, the common ones first; without ``used`` they are empty.

    ``forecast`` says of some in how long they will be full.
    """
    names = sorted(hard, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    meters = [_meter(name, str(hard[name]), None if used is None else str(used.get(name, "0"))) for name in names]
    return [
        replace(meter, note=_in_words(forecast[meter.resource]))
        if forecast and meter.resource in forecast and meter.level != "full"
        else meter
        for meter in meters
    ]


def _in_words(left: timedelta) -> str:
    hours = round(left / timedelta(hours=1))
    count, unit = (hours // 24, "days") if hours >= 48 else (max(1, hours), "hours")
    return f"at this rate full in {count} {unit if count > 1 else unit.removesuffix('s')}"


def _meter(resource: str, hard: str, used: str | None) -> Meter:
    limit, amount = _read(hard), _read(used)
    shown = "—" if used is None else _shown(resource, amount, used)
    if limit is None or amount is None:
        return Meter(resource, shown, _shown(resource, limit, hard), 0, "")
    # Where nothing is allowed, nothing is used up as long as there is nothing.
    percent = min(100, amount.nanos * 100 // limit.nanos) if limit else 100 * bool(amount)
    level = "full" if percent >= 100 else "high" if percent >= 80 else ""
    note = _BEYOND if amount > limit else ""
    return Meter(resource, shown, _shown(resource, limit, hard), percent, level, note)


def _read(text: str | None) -> Quantity | None:
    try:
        return None if text is None else parse_quantity(text)
    except InvalidQuantity:
        return None


def _shown(resource: str, amount: Quantity | None, text: str) -> str:
    """An amount as people write it: 3.5 for 3500m, 1,000 for 1k, 5 GiB for 5368709120."""
    if amount is None:
        return text
    units = amount.nanos / 10**9
    if not resource.endswith(("memory", "storage", "bytes")):
        return f"{units:,.3f}".rstrip("0").rstrip(".")
    power = 0
    while units >= 1024 and power < len(_UNITS) - 1:
        units, power = units / 1024, power + 1
    return f"{units:.1f}".removesuffix(".0") + f" {_UNITS[power]}"


def _counted(workspace: Workspace) -> Mapping[str, str] | None:
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
    except ClusterUnusable:
        return None
    answer = client.get(objects.path(workspace, "resourcequotas", objects.QUOTA))
    status = answer.body.get("status")
    counted = status.get("used") if isinstance(status, dict) else None
    if answer.outcome is not Outcome.DONE or not isinstance(counted, dict):
        return None
    return {str(name)[:128]: str(amount)[:32] for name, amount in list(counted.items())[:100]}
