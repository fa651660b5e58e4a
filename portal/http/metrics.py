"""What a portal counts of itself, and what it sees of the queue, the clusters and backups, for ``/metrics``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

import redis
from django.db import DatabaseError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from audit import tracing
from portal.backup.freshness import Standing, backups_standing
from portal.database.scopes import everything
from portal.heartbeat import LONGEST, heartbeat_age
from tenants.models import Cluster, Operation, OperationState

_REQUESTS: Final = Counter(
    "tenantry_portal_requests", "Requests that the portal has answered", ["route", "method", "code"]
)
_SECONDS: Final = Histogram(
    "tenantry_portal_request_duration_seconds",
    "How long answers took",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNDER_WAY: Final = (OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED)
_CLUSTERS_MAX: Final = 1000


def observe(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    """Count an answer. Routes are the product's own, so that nobody can fill the memory with names."""
    match = request.resolver_match
    method = request.method if request.method in _METHODS else "other"
    _REQUESTS.labels(match.route if match else "", method, response.status_code).inc()
    _SECONDS.observe(seconds)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._begun


class Work(Collector):
    """The queue of operations, the clusters and backups, as the database has them when it is asked."""

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: the database is not asked before somebody wants to know."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """A few short queries; a database that does not answer is a figure as well."""
        up = GaugeMetricFamily("tenantry_database_up", "Whether PostgreSQL answers this portal")
        now = timezone.now()
        try:
            with everything():  # Prometheus is nobody, and sees nobody's rows
                waiting = Operation.objects.filter(state__in=_UNDER_WAY).values_list(
                    "state", "not_before", "created_at"
                )
                work = [(state, now - max(due, made)) for state, due, made in waiting.iterator()]
                clusters = list(
                    Cluster.objects.order_by("name").values_list("name", "unreached_since", "credential_expires_at")[
                        :_CLUSTERS_MAX
                    ]
                )
                standing = backups_standing()
        except DatabaseError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        count = GaugeMetricFamily("tenantry_operations", "Operations that have not ended", labels=["state"])
        oldest = GaugeMetricFamily(
            "tenantry_operations_overdue_seconds", "For how long the oldest one is due", labels=["state"]
        )
        for state in _UNDER_WAY:
            overdue = [late.total_seconds() for each, late in work if each == state]
            count.add_metric([state], len(overdue))
            oldest.add_metric([state], max(0.0, *overdue) if overdue else 0.0)
        yield count
        yield oldest
        reached = GaugeMetricFamily("tenantry_cluster_reached", "Whether the last probe found it", labels=["cluster"])
        ends = GaugeMetricFamily(
            "tenantry_cluster_credential_expiry_timestamp_seconds", "When its credential ends", labels=["cluster"]
        )
        for name, unreached, expires in clusters:
            reached.add_metric([name], int(unreached is None))
            if expires is not None:
                ends.add_metric([name], expires.timestamp())
        yield reached
        yield ends
        yield from _of_backups(standing, now)


def _of_backups(standing: Standing, now: datetime) -> Iterator[GaugeMetricFamily]:
    holds = GaugeMetricFamily(
        "tenantry_backup_last_success_timestamp_seconds", "The moment that the newest good backup is of"
    )
    size = GaugeMetricFamily("tenantry_backup_last_success_bytes", "The size of the newest good backup")
    if standing.holds is not None:
        holds.add_metric([], standing.holds.timestamp())
    if standing.bytes is not None:
        size.add_metric([], standing.bytes)
    yield holds
    yield size
    yield GaugeMetricFamily(
        "tenantry_backup_overdue_seconds",
        "For how long a newer backup is missing",
        value=standing.overdue(now).total_seconds(),
    )
    yield GaugeMetricFamily(
        "tenantry_backup_failed",
        "Whether the last backup that was tried has failed",
        value=int(bool(standing.failed_at)),
    )


class Wakeups(Collector):
    """Redis, and whether workers are woken by way of it."""

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: Redis is not asked before somebody wants to know."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One question; no answer is a figure as well."""
        age: float | None = None
        with suppress(redis.RedisError):
            age = heartbeat_age()
        yield GaugeMetricFamily("tenantry_redis_up", "Whether Redis answers this portal", value=int(age is not None))
        wakeup = GaugeMetricFamily(
            "tenantry_wakeup_age_seconds",
            f"Since a worker did what beat woke it for; {LONGEST} where that is longer ago",
        )
        if age is not None:
            wakeup.add_metric([], age)
        yield wakeup


class Spans(Collector):
    """What became of this portal's traces."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """A figure, traced or not."""
        yield CounterMetricFamily("tenantry_spans_dropped", "Spans that no collector took", value=tracing.dropped())


REGISTRY.register(Work())
REGISTRY.register(Wakeups())
REGISTRY.register(Spans())
