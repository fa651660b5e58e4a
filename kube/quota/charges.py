"""What is charged for what was used: exact, and rounded once a line (AD7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

_CENT: Final = Decimal("0.01")
_EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Price:
    """``amount`` of money for every ``per`` units of a measure, per hour where it is of what was there."""

    measure: str
    amount: Decimal
    per: int


@dataclass(frozen=True, slots=True)
class Line:
    """What one measure costs."""

    quantity: Decimal
    price: Price
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """A tenant's month: a line for each priced measure of which there was any, by its name."""

    tenant: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> Decimal:
        """The sum of the rounded lines, as whoever adds them up finds it."""
        return sum((line.cost for line in self.lines), Decimal("0.00"))


def bill(tenant: str, quantities: Mapping[str, Decimal], prices: Sequence[Price]) -> Bill:
    """What the quantities, by measure, cost; what has no price costs nothing."""
    lines = [
        Line(quantities[price.measure], price, _cost(quantities[price.measure], price))
        for price in sorted(prices, key=lambda price: price.measure)
        if quantities.get(price.measure)
    ]
    return Bill(tenant, tuple(lines))


def _cost(quantity: Decimal, price: Price) -> Decimal:
    exact = _EXACT.divide(_EXACT.multiply(quantity, price.amount), Decimal(price.per))
    return exact.quantize(_CENT, context=_EXACT)
