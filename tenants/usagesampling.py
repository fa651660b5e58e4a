"""Counts every hour what tenants and their workspaces used, and forgets it after a year (AD7).

1. An hour is written by one statement, in one transaction: all of it is there or nothing. Who finds an hour written
   leaves it, so that it does not matter how often, and by how many, this is called.
2. An hour is due some minutes after its end, when the API servers have written their requests.
3. Hours that nobody has counted, for the workers were away, are counted later, for a day back: what happened in them is
   known still, what was there then is not.
4. A name is not a tenant: one is counted from its beginning on, and its first hour bears that moment. When it ends, what
   happened since the last hour is counted at once, for nobody can tell later.
5. What is too old is deleted in slices, so that nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from django.db import connection, transaction

from kube.quota.podresources import amounts
from kube.quota.quantities import InvalidQuantity
from kube.quota.tenantquotas import PLACED_USAGES, TENANT_QUOTAS
from kube.requests.logicalclusters import tenant_of
from store.models import ROWS_AT_ONCE, StoredObject
from tenants.models import LIVING
from tenants.usage import hour_counted_last

KEPT: Final = timedelta(days=366)
_HOUR: Final = timedelta(hours=1)
_SETTLED: Final = timedelta(minutes=5)
_CAUGHT_UP: Final = timedelta(hours=24)
_SLICE: Final = 10_000
_SLICES: Final = 100
"""At a time; the next call goes on."""

_NANO: Final = 10**9

_COUNT: Final = """
WITH those AS (
  SELECT name AS tenant, greatest(created_at, %(since)s) AS hour FROM tenants
  WHERE name <> 'system' AND created_at < %(until)s AND (%(only)s = '' OR name = %(only)s)
), targets AS (
  SELECT tenant, '' AS namespace, hour FROM those
  UNION SELECT tenant, k8s_namespace, hour FROM those JOIN workspaces ON tenant_id = tenant
  WHERE k8s_namespace <> '' AND status <> 'deleted'
), asked AS (
  SELECT tenant, coalesce(namespace, '') AS namespace, sum(count) AS requests,
    sum(count) FILTER (WHERE NOT allowed) AS refused
  FROM (
    SELECT tenant, count, allowed, CASE WHEN space = 'root:' || tenant THEN substring(path from '/namespaces/([^/]+)') END
      AS namespace
    FROM those JOIN api_requests USING (tenant) WHERE created_at >= hour AND created_at >= %(since)s AND created_at < %(until)s
  ) AS each GROUP BY GROUPING SETS ((tenant), (tenant, namespace)) HAVING grouping(namespace) = 1 OR namespace <> ''
), issued AS (
  SELECT c.tenant_id AS tenant, coalesce(w.k8s_namespace, '') AS namespace, count(*) AS credentials
  FROM credentials c LEFT JOIN workspaces w ON w.id = c.workspace_id
  WHERE c.issued_at >= %(since)s AND c.issued_at < %(until)s AND c.failed_at IS NULL
  GROUP BY GROUPING SETS ((c.tenant_id), (c.tenant_id, w.k8s_namespace))
  HAVING grouping(w.k8s_namespace) = 1 OR w.k8s_namespace <> ''
), kept AS (
  SELECT tenant, coalesce(namespace, '') AS namespace, count(*) AS objects, sum(size) AS bytes
  FROM (
    SELECT split_part(space, ':', 2) AS tenant, octet_length(data) AS size,
      CASE WHEN split_part(space, ':', 3) = '' THEN namespace END AS namespace
    FROM store_object WHERE %(now)s AND space LIKE 'root:%%'
  ) AS each GROUP BY GROUPING SETS ((tenant), (tenant, namespace)) HAVING grouping(namespace) = 1 OR namespace <> ''
), flowing AS (
  SELECT tenant, coalesce(namespace, '') AS namespace, sum(open) AS streams
  FROM stream_counts WHERE %(now)s AND seen_at > %(living)s
  GROUP BY GROUPING SETS ((tenant), (tenant, namespace)) HAVING grouping(namespace) = 1 OR namespace <> ''
), quotas AS (
  SELECT * FROM jsonb_to_recordset(%(quotas)s::jsonb) AS q(tenant text, namespace text, used jsonb, hard jsonb, objects bigint)
), placed AS (
  SELECT tenant, coalesce(namespace, '') AS namespace, sum(objects) AS elsewhere FROM quotas WHERE namespace <> ''
  GROUP BY GROUPING SETS ((tenant), (tenant, namespace))
)
INSERT INTO usage_hours
  (tenant, namespace, hour, requests, refused, credentials, objects_stored, objects_placed, bytes_stored, streams, used, hard)
SELECT tenant, namespace, hour, coalesce(requests, 0), coalesce(refused, 0), coalesce(credentials, 0),
  CASE WHEN %(now)s THEN coalesce(kept.objects, 0) END, CASE WHEN %(now)s THEN coalesce(elsewhere, 0) END,
  CASE WHEN %(now)s THEN coalesce(bytes, 0) END,
  CASE WHEN %(now)s THEN coalesce(streams, 0) END, coalesce(used, '{}'), coalesce(hard, '{}')
FROM targets
LEFT JOIN asked USING (tenant, namespace)
LEFT JOIN issued USING (tenant, namespace)
LEFT JOIN kept USING (tenant, namespace)
LEFT JOIN flowing USING (tenant, namespace)
LEFT JOIN quotas USING (tenant, namespace)
LEFT JOIN placed USING (tenant, namespace)
ON CONFLICT (tenant, namespace, hour) DO NOTHING
"""
_FORGET: Final = """
DELETE FROM usage_hours WHERE id IN (SELECT id FROM usage_hours WHERE hour < %s ORDER BY hour LIMIT %s)
"""


def usage_sample(*, now: datetime) -> list[datetime]:
    """Write every hour that is due and not written; the hours that were due, oldest first."""
    last = _beginning(now - _SETTLED) - _HOUR
    due = _open_hours(last)
    for hour in due:
        _write(hour, now, is_last=hour == last)
    return due


def usage_conclude(tenant: str, *, now: datetime) -> None:
    """Write the hours of a tenant that ends, up to this moment; within the transaction in which its rows go."""
    for hour in _open_hours(_beginning(now)):
        _write(hour, now, only=tenant)


def _beginning(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _open_hours(last: datetime) -> list[datetime]:
    """The hours that nobody has counted, up to this one."""
    counted = hour_counted_last()
    first = last if counted is None else max(counted + _HOUR, last - _CAUGHT_UP)
    return [first + number * _HOUR for number in range(int((last - first) / _HOUR) + 1)]


def _write(hour: datetime, now: datetime, *, is_last: bool = False, only: str = "") -> None:
    """All tenants, or only this one."""
    quotas = orjson.dumps(list(_quotas())).decode() if is_last else "[]"
    values: dict[str, Any] = {
        "since": hour,
        "until": hour + _HOUR,
        "only": only,
        "now": is_last,
        "living": now - LIVING,
        "quotas": quotas,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_COUNT, values)


def _quotas() -> Iterator[dict[str, Any]]:
    """What quotas of tenants bound and hold, and what placed workspaces hold, as numbers."""
    for group, resource in (TENANT_QUOTAS, PLACED_USAGES):
        rows = StoredObject.objects.filter(group=group, resource=resource, space__startswith="root:")
        for space, name, data in rows.values_list("space", "name", "data").iterator(ROWS_AT_ONCE):
            body = orjson.loads(bytes(data))
            spec, status = body.get("spec") or {}, body.get("status") or {}
            yield {
                "tenant": tenant_of(space),
                "namespace": name if (group, resource) == PLACED_USAGES else "",
                "used": _numbers(status.get("used") or body.get("counted")),
                "hard": _numbers(spec.get("hard")),
                "objects": body.get("objects"),
            }


def _numbers(values: Any) -> dict[str, float]:
    try:
        return {name: amount.nanos / _NANO for name, amount in amounts(values).items()}
    except InvalidQuantity:
        return {}


def usage_forget(*, now: datetime) -> int:
    """Delete hours that are older than ``KEPT``; how many rows."""
    deleted = 0
    for _ in range(_SLICES):
        with connection.cursor() as cursor:
            cursor.execute(_FORGET, [now - KEPT, _SLICE])
            deleted += cursor.rowcount
            if cursor.rowcount < _SLICE:
                break
    return deleted
