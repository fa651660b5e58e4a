"""Reads of what tenants and workspaces used (AD7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final

from django.db import connection
from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncDay

from kube.quota.forecast import hours_until_full
from kube.requests.status import BadRequest
from tenants.models import Tenant, UsageHour

MEASURES: Final[Mapping[str, str]] = {
    "requests": "requests to the API server within the hour",
    "refused": "of these, refused",
    "credentials": "credentials issued within the hour",
    "objects_stored": "objects that are stored here at its end",
    "bytes_stored": "their bytes",
    "objects_placed": "objects on clusters at its end, of the kinds that the quota counts",
    "streams": "open watches, logs and shells at its end",
}
"""What is counted, beside the quota, and what it means."""

_WEEK: Final = timedelta(days=7)
_HOUR: Final = timedelta(hours=1)


def usage_hours(
    tenant: Tenant, *, since: datetime | None = None, until: datetime | None = None, namespace: str | None = None
) -> QuerySet[UsageHour]:
    """The hours of a tenant from its beginning on: what bore its name before is none of its.

    Of all its workspaces too, or of one ``namespace``; an empty one is the tenant as a whole. Oldest first.
    """
    since = max(tenant.created_at, since) if since else tenant.created_at
    rows = UsageHour.objects.filter(tenant=tenant.name, hour__gte=since)
    if until is not None:
        rows = rows.filter(hour__lt=until)
    if namespace is not None:
        rows = rows.filter(namespace=namespace)
    return rows.order_by("hour", "namespace")


def requests_by_day(tenant: Tenant, since: datetime) -> list[tuple[datetime, int, int]]:
    """How many requests of a tenant were let through and refused on each day that has hours, in order."""
    rows = usage_hours(tenant, since=since, namespace="").order_by()
    days = rows.annotate(when=TruncDay("hour", tzinfo=UTC)).values("when")
    counted = days.annotate(all=Sum("requests"), bad=Sum("refused")).order_by("when")
    return [(day["when"], day["all"] - day["bad"], day["bad"]) for day in counted]


def quota_forecast(tenant: Tenant, now: datetime) -> dict[str, timedelta]:
    """By name of the quota, how long until it is full if the last week goes on; names that are not on the way are missing."""
    rows = usage_hours(tenant, since=now - _WEEK, namespace="").exclude(used={})
    hours = list(rows.values_list("hour", "used", "hard"))
    if not hours:
        return {}
    found = {}
    for name, hard in hours[-1][2].items():
        samples = [(hour.timestamp() / 3600, used[name]) for hour, used, _ in hours if name in used]
        left = hours_until_full(samples, hard)
        if left is not None and left < _FAR:
            found[name] = left * _HOUR
    return found


_FAR: Final = 24 * 366
"""Hours; what is full later than in a year, nobody can say."""


def openmetrics_lines(rows: Iterable[UsageHour]) -> Iterator[str]:
    """The hours as OpenMetrics: family by family, in it metric by metric, in each the hours in order, as it asks.

    Each sample has the time of its hour.
    """
    kept = sorted(rows, key=lambda row: (row.namespace, row.hour))
    for measure, meaning in MEASURES.items():
        yield f"# TYPE tenantry_usage_{measure} gauge\n# HELP tenantry_usage_{measure} {meaning}\n"
        for row in kept:
            value = getattr(row, measure)
            if value is not None:
                yield _sample(f"tenantry_usage_{measure}", row, value)
    for field, meaning in (("used", "what is used of the quota"), ("hard", "what may be")):
        yield f"# TYPE tenantry_usage_quota_{field} gauge\n# HELP tenantry_usage_quota_{field} {meaning}\n"
        samples = ((row.namespace, name, row, value) for row in kept for name, value in getattr(row, field).items())
        for _, name, row, value in sorted(samples, key=itemgetter(0, 1)):
            yield _sample(f"tenantry_usage_quota_{field}", row, _plain(value), f',resource="{name}"')
    yield "# EOF\n"


def _sample(metric: str, row: UsageHour, value: Any, more: str = "") -> str:
    # Names of tenants, namespaces and quotas have no character that would have to be escaped.
    labels = f'tenant="{row.tenant}",namespace="{row.namespace}"{more}'
    return f"{metric}{{{labels}}} {value} {int(row.hour.timestamp())}\n"


def _plain(value: float) -> float:
    """A whole number without a fraction."""
    return int(value) if value == int(value) else value


def table_of(rows: Iterable[UsageHour]) -> Iterator[list[Any]]:
    """The hours as a table: its head, then one line each."""
    yield ["tenant", "namespace", "hour", *MEASURES, "used", "hard"]
    for row in rows:
        quota = [
            " ".join(f"{name}={_plain(value)}" for name, value in sorted(each.items())) for each in (row.used, row.hard)
        ]
        measures = [getattr(row, measure) for measure in MEASURES]
        yield [row.tenant, row.namespace, f"{row.hour:%Y-%m-%dT%H:%M:%SZ}", *measures, *quota]


def hour_counted_last() -> datetime | None:
    """The hour that was counted last for those who live; who has ended since may have been counted beyond it."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST)
        row = cursor.fetchone()
    return row[0] if row else None


# A first hour bears the moment at which its tenant began, and what is from before that another tenant's.
_LAST: Final = """
SELECT date_trunc('hour', u.hour, 'UTC') FROM usage_hours u JOIN tenants t ON t.name = u.tenant AND t.created_at <= u.hour
ORDER BY u.hour DESC LIMIT 1
"""


def quotas_nearly_full(share: float, *, limit: int) -> list[tuple[str, str, float]]:
    """Tenants that use more than ``share`` of a name of their quota, the fullest first: tenant, name, what part of it.

    As counted last, hour by hour; not those that have gone since. One query, by an index for all above nine tenths.
    """
    with connection.cursor() as cursor:
        cursor.execute(_NEARLY_FULL, {"share": share, "limit": limit})
        return [(tenant, name, float(part)) for tenant, name, part in cursor.fetchall()]


_NEARLY_FULL: Final = f"""
SELECT u.tenant, q.name, (u.used ->> q.name)::numeric / q.hard::numeric AS part
FROM usage_hours u JOIN tenants t ON t.name = u.tenant AND t.state = 'active' AND t.created_at <= u.hour
CROSS JOIN LATERAL jsonb_each_text(u.hard) AS q(name, hard)
WHERE u.hour >= ({_LAST}) AND u.hour < ({_LAST}) + interval '1 hour' AND u.namespace = '' AND usage_fullest(u.used, u.hard) > %(share)s
  AND u.used ? q.name AND q.hard::numeric > 0 AND (u.used ->> q.name)::numeric > q.hard::numeric * %(share)s
ORDER BY part DESC, u.tenant, q.name LIMIT %(limit)s
"""  # noqa: S608 # of this module


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """What a tenant uses of one name of its quota, as numbers: cores, bytes, pieces."""

    tenant: str
    resource: str
    used: Decimal
    hard: Decimal
    share: float


def quota_shares(
    *, above: float | None = None, below: float | None = None, after: str = "", limit: int
) -> tuple[list[QuotaShare], str]:
    """What living tenants use of their quotas, above or below a share of it, as counted last. One query.

    By tenant and name, and the cursor of the next ones. Raises ``BadRequest`` for a foreign cursor.
    """
    begins, slash, resource = after.partition("/")
    if after and not slash:
        raise BadRequest("The cursor did not come from here.")
    values = {"above": above, "below": below, "tenant": begins, "name": resource, "limit": limit + 1}
    with connection.cursor() as cursor:
        cursor.execute(_SHARES, values)
        found = [QuotaShare(name, key, used, hard, float(used / hard)) for name, key, used, hard in cursor.fetchall()]
    page = found[:limit]
    return page, f"{page[-1].tenant}/{page[-1].resource}" if len(found) > limit else ""


# From tenant to tenant in the order of their primary key: no more are read than a page is made of.
_SHARES: Final = f"""
SELECT t.name, q.name, (u.used ->> q.name)::numeric AS used, q.hard::numeric AS hard
FROM tenants t JOIN usage_hours u ON u.tenant = t.name AND u.namespace = '' AND u.hour >= t.created_at
  AND u.hour >= ({_LAST}) AND u.hour < ({_LAST}) + interval '1 hour'
CROSS JOIN LATERAL jsonb_each_text(u.hard) AS q(name, hard)
WHERE t.state = 'active' AND t.name >= %(tenant)s
  AND (t.name, q.name) > (%(tenant)s, %(name)s) AND u.used ? q.name AND q.hard::numeric > 0
  AND (%(above)s::numeric IS NULL OR (u.used ->> q.name)::numeric > q.hard::numeric * %(above)s::numeric)
  AND (%(below)s::numeric IS NULL OR (u.used ->> q.name)::numeric < q.hard::numeric * %(below)s::numeric)
ORDER BY t.name, q.name LIMIT %(limit)s
"""  # noqa: S608 # of this module
