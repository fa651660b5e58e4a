"""What a tenant holds in a placed namespace: counted there, and on its way to be there (AD1, AD2).

A write is reserved before its cluster sees it, and every reservation has an end: what became of one that nobody settled
is found by counting what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kube.quota.podresources import Amounts, add, amounts
from kube.quota.quantities import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one write will take; after ``until``, in Unix seconds, its cluster has done it or never will."""

    amounts: Amounts
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedUsage:
    """``counted`` was there when somebody looked, or was confirmed since; ``reserved`` is on its way, by request."""

    counted: Amounts = field(default_factory=dict)
    reserved: Mapping[str, Reservation] = field(default_factory=dict)

    @property
    def total(self) -> dict[str, Quantity]:
        """Both together: what the tenant's quota bounds."""
        total = dict(self.counted)
        for each in self.reserved.values():
            total = add(total, each.amounts)
        return total

    def with_reservation(self, request: str, reservation: Reservation) -> PlacedUsage:
        """One more write is on its way."""
        return replace(self, reserved={**self.reserved, request: reservation})

    def without(self, request: str) -> PlacedUsage:
        """A write has come to nothing."""
        return replace(self, reserved={name: each for name, each in self.reserved.items() if name != request})

    def confirmed(self, request: str) -> PlacedUsage:
        """A write is done: the total stays."""
        found = self.reserved.get(request)
        return self if found is None else replace(self.without(request), counted=add(self.counted, found.amounts))

    def recounted(self, found: Iterable[Amounts], began: float) -> PlacedUsage:
        """After a look at what is there, which began at this time.

        What is still on its way counts beside it, though it may have been seen already: rather too much for a moment
        than too little.
        """
        counted: dict[str, Quantity] = {}
        for each in found:
            counted = add(counted, each)
        reserved = {name: each for name, each in self.reserved.items() if each.until >= began}
        return PlacedUsage(counted=counted, reserved=reserved)


def read_placed_usage(body: Mapping[str, Any]) -> PlacedUsage:
    """What is kept. Raises ``InvalidQuantity``."""
    reserved = {
        name: Reservation(amounts=amounts(each["amounts"]), until=each["until"])
        for name, each in body.get("reserved", {}).items()
    }
    return PlacedUsage(counted=amounts(body.get("counted")), reserved=reserved)


def placed_usage_body(namespace: str, usage: PlacedUsage) -> dict[str, Any]:
    """As it is kept."""
    return {
        "metadata": {"name": namespace},
        "counted": _written(usage.counted),
        "reserved": {
            name: {"amounts": _written(each.amounts), "until": each.until} for name, each in usage.reserved.items()
        },
    }


def _written(values: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(values.items())}
