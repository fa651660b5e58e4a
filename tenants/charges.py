"""What tenants' use of a month costs (AD7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from django.db import connection
from django.db.models import Sum

from kube.quota.charges import Bill, Price, bill
from kube.requests.status import BadRequest
from tenants.models import PastPrice, Tenant, UsageHour, UsagePrice
from tenants.usage import MEASURES

_TOGETHER: Final = 100
"""Tenants whose hours are added up by one statement."""

_QUOTA: Final = """
SELECT tenant, name, sum(amount::numeric) FROM usage_hours, jsonb_each_text(used) AS each(name, amount)
WHERE tenant = ANY(%s) AND namespace = '' AND hour >= %s AND hour < %s AND name = ANY(%s) GROUP BY tenant, name
"""


def month_of(text: str, now: datetime) -> datetime:
    """The beginning of a month, ``2026-11``; of this one for an empty text. Raises ``BadRequest``."""
    try:
        return datetime.strptime(text or f"{now.astimezone(UTC):%Y-%m}", "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise BadRequest("A month is written as 2026-11.") from None


def prices_all() -> list[Price]:
    """The prices of now, by measure."""
    return [Price(each.measure, each.amount, each.per) for each in UsagePrice.objects.order_by("measure")]


def prices_of_month(month: datetime) -> list[Price]:
    """The prices that a month is charged by: for one that is over, those that held when it ended."""
    first = month.date()
    rows: list[UsagePrice | PastPrice] = [
        *UsagePrice.objects.filter(since__lte=first),
        *PastPrice.objects.filter(since__lte=first, until__gt=first),
    ]
    return [Price(each.measure, each.amount, each.per) for each in rows]


def bills_of_month(month: datetime, *, after: str = "", limit: int = _TOGETHER) -> tuple[list[Bill], str]:
    """The bills of so many tenants that used something in a month, by name, and the cursor of the next ones.

    Tenants that have ended are among them. Whoever bore a name in the month, it is one bill.
    """
    rows = UsageHour.objects.filter(namespace="", tenant__gt=after, hour__gte=month, hour__lt=_next(month))
    # The unique index is in this order: only these tenants' rows are read.
    names = list(rows.order_by("tenant").values_list("tenant", flat=True).distinct()[: limit + 1])
    page = names[:limit]
    return _bills(page, month), page[-1] if len(names) > limit else ""


def bills_all(month: datetime) -> Iterator[Bill]:
    """All bills of a month, some read at a time."""
    after = ""
    while True:
        bills, after = bills_of_month(month, after=after)
        yield from bills
        if not after:
            return


def bill_of_tenant(tenant: Tenant, month: datetime) -> Bill:
    """A tenant's own bill: from its beginning on."""
    return _bills([tenant.name], month, max(month, tenant.created_at))[0]


def _next(month: datetime) -> datetime:
    return month.replace(year=month.year + 1, month=1) if month.month == 12 else month.replace(month=month.month + 1)


def _bills(tenants: Sequence[str], month: datetime, since: datetime | None = None) -> list[Bill]:
    """The bills of a month, or what is left of it."""
    prices, since, until = prices_of_month(month), since or month, _next(month)
    found: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    plain = [price.measure for price in prices if price.measure in MEASURES]
    if plain:
        rows = UsageHour.objects.filter(tenant__in=tenants, namespace="", hour__gte=since, hour__lt=until)
        sums = rows.order_by().values_list("tenant").annotate(*map(Sum, plain))
        for tenant, *totals in sums:
            found[tenant] = {name: Decimal(total or 0) for name, total in zip(plain, totals, strict=True)}
    quota = [price.measure for price in prices if price.measure not in MEASURES]
    if quota:
        with connection.cursor() as cursor:
            cursor.execute(_QUOTA, [list(tenants), since, until, quota])
            for tenant, name, total in cursor.fetchall():
                found[tenant][name] = total
    return [bill(tenant, found[tenant], prices) for tenant in tenants]


def bill_table(bills: Iterator[Bill], month: datetime) -> Iterator[list[object]]:
    """Bills as a table: its head, then one line for each measure of each tenant."""
    yield ["month", "tenant", "measure", "quantity", "price", "per", "cost"]
    for each in bills:
        for line in each.lines:
            price = line.price
            yield [f"{month:%Y-%m}", each.tenant, price.measure, line.quantity, price.amount, price.per, line.cost]
