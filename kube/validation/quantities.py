"""Amounts: decoding refuses what is no quantity, and a text that came past it is a cause like any other (P9)."""

from __future__ import annotations

from typing import Any, Final

from kube.quota.quantities import ZERO, InvalidQuantity, Quantity, parse_quantity
from kube.requests.fielderrors import invalid
from kube.requests.status import Cause


def amount(value: Any) -> Quantity | None:
    """The quantity, or None for what is none."""
    try:
        return parse_quantity(value)
    except InvalidQuantity:
        return None


def quantity_causes(value: Any, path: str) -> list[Cause]:
    """Why a value is no quantity."""
    try:
        parse_quantity(value)
    except InvalidQuantity as error:
        return [invalid(path, value, str(error))]
    return []


def amount_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with an amount that may not be negative."""
    found = amount(value)
    if found is not None and found < ZERO:
        return [invalid(path, value, "must be greater than or equal to 0")]
    return quantity_causes(value, path)


def basic_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with a size that may not be negative, which is shown as a number."""
    found = amount(value)
    if found is not None and found < ZERO:
        return [invalid(path, found.value(), "must be a valid resource quantity")]
    return quantity_causes(value, path)


def size_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with an amount that must be positive."""
    found = amount(value)
    if found is not None and found <= ZERO:
        return [invalid(path, value, "must be greater than zero")]
    return quantity_causes(value, path)


def integer_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with an amount that must be a whole number."""
    found = amount(value)
    if found is not None and found.milli() % _MILLI:
        return [invalid(path, value, "must be an integer")]
    return []


def exceeds(value: Any, bound: Any) -> bool:
    """Whether an amount is greater than another; what is no quantity exceeds nothing."""
    one, other = amount(value), amount(bound)
    return one is not None and other is not None and one > other


_MILLI: Final = 1000
