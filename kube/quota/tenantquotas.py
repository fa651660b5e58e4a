"""The quota of a tenant: what all its namespaces and workspaces hold together (AD1 to AD3).

Amounts are those of ResourceQuota, and those that usage rules read from annotations and fields of any kind. As there,
holding them under concurrency is the caller's: what ``change`` returns is kept in the transaction that writes the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from kube.quota import usage
from kube.quota.podresources import Amounts, add, amounts, is_infeasible
from kube.quota.quantities import InvalidQuantity, Quantity, parse_quantity
from kube.quota.usage import NONE, Quota, Scope

GROUP: Final = "tenancy.tenantry.io"
VERSION: Final = "v1alpha1"
TENANT_QUOTAS: Final = (GROUP, "tenantquotas")
PLACED_USAGES: Final = (GROUP, "placedusages")
"""Where it is kept what was counted in placed namespaces, in the tenant's own space; no API serves it."""
PLACED_RESERVATIONS: Final = (GROUP, "placedreservations")
"""Where it is kept what is on its way there; no API serves it."""
NAME: Final = "quota"
"""The name of the only ``TenantQuota`` object of a tenant; it is in the tenant's own space."""
_COUNT: Final = "count/"
_SCALE: Final = "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRule:
    """Objects of a resource take as much of ``name`` as an annotation, or a field, says; nothing where there is none.

    ``path`` is that of the field; where it leads through a list, its members add up.
    """

    name: str
    group: str
    plural: str
    annotation: str = ""
    path: tuple[str, ...] = ()

    def amount(self, body: Mapping[str, Any]) -> Quantity:
        """What an object takes that is there: what it says of which is no amount, or less than nothing, takes nothing."""
        total = NONE
        for value in self._said(body):
            with suppress(InvalidQuantity):
                total = total + max(parse_quantity(value), NONE)
        return total

    def require(self, body: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> None:
        """Raise for what is no amount in a body that is written: ``InvalidQuantity``, ``QuotaExceeded`` for less than nothing.

        What an ``old`` one said before anybody counted it may stay.
        """
        said = self._said(body)
        if old is None or said != self._said(old):
            for value in said:
                usage.require_none_negative({self.name: parse_quantity(value)})

    def _said(self, body: Mapping[str, Any]) -> list[Any]:
        if self.annotation:
            found = [((body.get("metadata") or {}).get("annotations") or {}).get(self.annotation)]
        else:
            found = [body]
            for name in self.path:
                found = [part.get(name) for each in found for part in _members(each) if isinstance(part, Mapping)]
        values = (value for each in found for value in _members(each))
        return [value for value in values if value is not None and not isinstance(value, Mapping | bool)]


def _members(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuota:
    """What a tenant may hold, by resource name; ``rules`` are the configured ones.

    With ``scopes``, as in a ResourceQuota, it counts and bounds what is within all of them, and nothing else.
    """

    tenant: str
    hard: Amounts
    rules: tuple[UsageRule, ...] = ()
    scopes: tuple[Scope, ...] = ()
    _quota: Quota = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_quota", Quota(name=f"tenant {self.tenant}", hard=self.hard, scopes=self.scopes))

    def concerns(self, group: str, plural: str, subresource: str = "") -> bool:
        """Whether it bounds anything of a resource, of some objects at least; by ``/scale`` nothing but rules read changes."""
        counted = subresource != _SCALE and self._quota.names(group, plural)
        return bool(counted or self._rules_of(group, plural))

    @property
    def named(self) -> set[tuple[str, str]]:
        """The (group, plural) of what it bounds by a count of its own, or by usage rules: of any kind there may be."""
        counts = (name.removeprefix(_COUNT) for name in self.hard if name.startswith(_COUNT))
        split = (name.partition(".") for name in counts)
        ruled = {(rule.group, rule.plural) for rule in self.rules if rule.name in self.hard}
        return {(group, plural) for plural, _, group in split} | ruled

    def counted(self, group: str, plural: str, body: Mapping[str, Any], *, now: datetime) -> dict[str, Quantity]:
        """What an object takes of it that is there, and makes no room elsewhere, whatever it says. Raises ``InvalidQuantity``."""
        if not usage.in_scopes(self.scopes, group, plural, body):
            return {}
        return self._held(group, plural, body, usage.usage(group, plural, _wanting(group, plural, body), now=now))

    def counts_alike(self, group: str, plural: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Whether two states of an object take the same, as a look at them says: most changes are of what nobody counts."""
        if self._rules_of(group, plural):
            return False  # They may count any field.
        before, after = (state.get("metadata") or {} for state in (old, new))
        return all(before.get(name) == after.get(name) for name in usage.COUNTED_METADATA) and all(
            old.get(name) == new.get(name) for name in old.keys() | new.keys() if name != "metadata"
        )

    def change(
        self,
        group: str,
        plural: str,
        old: Mapping[str, Any] | None,
        new: Mapping[str, Any] | None,
        *,
        now: datetime,
    ) -> dict[str, Quantity]:
        """What a write of an object takes more, and, below zero, less; ``None`` is an object that is not there.

        Raises ``QuotaExceeded`` when a new one must state requests or limits and does not, or one takes less than nothing
        that did not before; ``InvalidQuantity`` for an amount that is none.
        """
        if old is not None and new is not None and self.counts_alike(group, plural, old, new):
            return {}
        # What a new one is asked for, it takes: it is counted once.
        asked = usage.asked(self._quota, group, plural, new, now=now) if new is not None and old is None else None
        after: Amounts = {}
        if new is not None and usage.in_scopes(self.scopes, group, plural, new):
            for rule in self._rules_of(group, plural):
                rule.require(new, old)
            taken = asked if asked is not None else usage.usage(group, plural, _wanting(group, plural, new), now=now)
            after = self._held(group, plural, new, taken)
        return difference(after, self.counted(group, plural, old, now=now) if old is not None else {})

    def check(self, grown: Amounts, used: Amounts) -> None:
        """Whether there is room. Raises ``QuotaExceeded`` naming what is short."""
        usage.check(self._quota, grown, used)

    def total(self, usages: Iterable[Amounts]) -> dict[str, Quantity]:
        """The sum of what objects take, for every name that it bounds."""
        return usage.total(usages, self._quota)

    def _held(self, group: str, plural: str, body: Mapping[str, Any], taken: Amounts) -> dict[str, Quantity]:
        """What of it an object takes that is within its scopes, by what ``usage`` says, and by the rules."""
        held = {name: usage.bounded(amount) for name, amount in taken.items() if name in self.hard}
        return held | {rule.name: usage.bounded(rule.amount(body)) for rule in self._rules_of(group, plural)}

    def _rules_of(self, group: str, plural: str) -> list[UsageRule]:
        return [rule for rule in self.rules if (rule.group, rule.plural) == (group, plural) and rule.name in self.hard]


def _wanting(group: str, plural: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object as it counts here: what a pod wants it takes, whether or not its node says that it can have it.

    Or whoever writes that a node cannot would have room for others until it writes that the node can.
    """
    status = body.get("status") if (group, plural) == ("", "pods") else None
    if not status or not is_infeasible(status):
        return body
    return {**body, "status": {name: value for name, value in status.items() if name != "conditions"}}


def wished(
    group: str, plural: str, subresource: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """As ``usage.wished``; but that a pod runs again which has ended is a wish too, for no kubelet tells it.

    Or whoever says that pods have ended and then that they have not would have as many as it likes. What a cluster says of
    ``/scale`` is a Scale: what is wished for is the object, or the Scale before, with its replicas.
    """
    if subresource == _SCALE and old and new and str(new.get("apiVersion")).startswith("autoscaling/"):
        replicas = (new.get("spec") or {}).get("replicas", 0)
        return {**old, "spec": {**(old.get("spec") or {}), "replicas": replicas}}
    if (group, plural) == ("", "pods") and old and new and usage.has_ended(old) and not usage.has_ended(new):
        return new
    return usage.wished(subresource, old, new)


def read_tenant_quota(tenant: str, body: Mapping[str, Any], rules: tuple[UsageRule, ...]) -> TenantQuota:
    """Read a ``TenantQuota`` object. Raises ``InvalidQuantity``."""
    spec = body.get("spec") or {}
    return TenantQuota(tenant=tenant, hard=amounts(spec.get("hard")), rules=rules, scopes=usage.read_scopes(spec))


def used_of(body: Mapping[str, Any]) -> dict[str, Quantity]:
    """What the object says is used. Names of which nothing is known yet are missing. Raises ``InvalidQuantity``."""
    return amounts((body.get("status") or {}).get("used"))


def is_counted(body: Mapping[str, Any]) -> bool:
    """Whether something is known of every name that is bounded."""
    return ((body.get("spec") or {}).get("hard") or {}).keys() <= ((body.get("status") or {}).get("used") or {}).keys()


def with_hard(body: Mapping[str, Any], hard: Mapping[str, str]) -> dict[str, Any]:
    """The object with other bounds in the same scopes. What is used of new names is not known before somebody counts."""
    used = (body.get("status") or {}).get("used") or {}
    status = {"hard": dict(hard), "used": {name: amount for name, amount in used.items() if name in hard}}
    return {**body, "spec": {**(body.get("spec") or {}), "hard": dict(hard)}, "status": status}


def with_used(body: Mapping[str, Any], used: Amounts) -> dict[str, Any]:
    """The object with what is used."""
    hard = dict((body.get("spec") or {}).get("hard") or {})
    return {**body, "status": {"hard": hard, "used": {name: str(used[name]) for name in sorted(used) if name in hard}}}


def beyond(quota: TenantQuota, used: Amounts) -> dict[str, tuple[str, str]]:
    """The names of which more is used than is allowed: how much, and how much may be."""
    return {
        name: (str(used[name]), str(limit))
        for name, limit in sorted(quota.hard.items())
        if name in used and used[name] > limit
    }


def has_room(quota: TenantQuota, used: Amounts) -> bool:
    """Whether no more than half is used of everything that it bounds, as far as is known."""
    return all(name in used and used[name].nanos * 2 <= limit.nanos for name, limit in quota.hard.items())


def difference(new: Amounts, old: Amounts) -> dict[str, Quantity]:
    """What is more, and, below zero, less."""
    change = {name: amount - old[name] if name in old else amount for name, amount in new.items()}
    change |= {name: -amount for name, amount in old.items() if name not in new}
    return {name: amount for name, amount in change.items() if amount}


def after(used: Amounts, change: Amounts) -> dict[str, Quantity]:
    """What is used after a change; never less than nothing, whatever was counted wrong before."""
    changed = add(used, change)
    return {name: amount if amount.nanos >= 0 else replace(amount, nanos=0) for name, amount in changed.items()}
