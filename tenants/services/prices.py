"""Prices of what tenants use (AD7)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from django.db import connection, transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.quota.charges import Price
from kube.requests.names import qualified_name
from kube.requests.status import Cause, Invalid
from tenants.models import PastPrice, UsagePrice
from tenants.rights import require_operator
from tenants.usage import MEASURES

_AMOUNT_MAX: Final = Decimal(10) ** 9
_DECIMALS: Final = -6
_PER_MAX: Final = 2**62
_MOST: Final = 200


def prices_hold() -> None:
    """Nobody else sets prices until the transaction ends; rows alone would not keep out those that are not there yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('prices'))")


@transaction.atomic
def prices_change(*, actor: Actor, prices: Sequence[Price], now: datetime) -> None:
    """Put these in place of all prices, for the month of ``now`` and later ones. Operators only.

    What months before cost stays. Raises ``Forbidden``, ``Invalid`` with a cause for each that is none.
    """
    require_operator(actor)
    causes = [
        Cause("FieldValueInvalid", problem, f"prices[{price.measure[:63]}]")
        for price in prices
        if (problem := _problem(price))
    ]
    if len({price.measure for price in prices}) < len(prices) or len(prices) > _MOST:
        causes.append(Cause("FieldValueInvalid", f"one price a measure, {_MOST} at most", "prices"))
    if causes:
        raise Invalid(f"{causes[0].field}: {causes[0].message}", kind="prices", causes=causes)
    prices_hold()
    month = now.astimezone(UTC).date().replace(day=1)
    asked = {price.measure: price for price in prices}
    before = UsagePrice.objects.order_by("measure")
    ended = [each for each in before if asked.get(each.measure) != Price(each.measure, each.amount, each.per)]
    PastPrice.objects.bulk_create(
        PastPrice(measure=each.measure, amount=each.amount, per=each.per, since=each.since, until=month)
        for each in ended
        if each.since < month
    )
    standing = {each.measure for each in before} - {each.measure for each in ended}
    UsagePrice.objects.filter(measure__in=[each.measure for each in ended]).delete()
    rows = [
        UsagePrice(measure=measure, amount=price.amount, per=price.per, since=month)
        for measure, price in sorted(asked.items())
        if measure not in standing
    ]
    UsagePrice.objects.bulk_create(rows)
    detail = {price.measure: f"{price.amount} / {price.per}" for price in prices}
    actor.record(Action.PRICES_CHANGED, chain=SYSTEM_CHAIN, target="prices", detail=detail)


def _problem(price: Price) -> str:
    if price.measure not in MEASURES and qualified_name(price.measure):
        return f"the measure is one of {', '.join(MEASURES)}, or a name of the quota"
    exponent = price.amount.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < _DECIMALS or not 0 <= price.amount < _AMOUNT_MAX:
        return "the amount is a number from 0, with six decimals at most"
    return "" if 1 <= price.per <= _PER_MAX else "the number of units is a whole number from 1"
