"""Which clusters answer, and how fast: every half minute, all side by side (GW12)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Action
from audit.models import Outcome as Came
from audit.recorder import SYSTEM_CHAIN, WORKER
from tenants.clusters.client import ClusterUnusable, Outcome, client_to
from tenants.models import Cluster, ClusterProbe

KEPT: Final = timedelta(hours=24)

_TOGETHER: Final = 64
"""Calls at the same time; each lasts five seconds at most."""
_WAVE_SECONDS: Final = 1.0
"""What has come meanwhile is written: one cluster that is slow keeps nobody from knowing of the others."""
_SLICE: Final = 5000
_FIELDS: Final = ("last_seen_at", "latency_ms", "version", "unreached_since", "unreached_why")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What came of one call: the milliseconds until the version was there, or why it was not."""

    cluster: UUID
    at: datetime
    latency_ms: int | None = None
    version: str = ""
    why: str = ""


def clusters_probe() -> int:
    """Ask every cluster that has a credential for its version; how many answered. Old probes are forgotten, a slice a turn."""
    clusters = list(Cluster.objects.filter(sealed_credential__isnull=False).order_by("pk"))
    answered = 0
    with ThreadPoolExecutor(_TOGETHER, "probes") as pool:
        waiting = {pool.submit(_probe, cluster) for cluster in clusters}
        while waiting:
            came, waiting = wait(waiting, _WAVE_SECONDS)
            seen = [each.result() for each in came]
            answered += sum(each.latency_ms is not None for each in seen)
            if seen:
                _keep(seen)
    old = ClusterProbe.objects.filter(at__lt=timezone.now() - KEPT).order_by("at")[:_SLICE]
    ClusterProbe.objects.filter(pk__in=old.values("pk")).delete()
    return answered


def _probe(cluster: Cluster) -> _Seen:
    at, begun = timezone.now(), time.monotonic()
    try:
        answer = client_to(cluster).version()
    except ClusterUnusable as error:
        return _Seen(cluster.pk, at, why=str(error)[:512])
    if answer.outcome is not Outcome.DONE:
        return _Seen(cluster.pk, at, why=answer.message[:512])
    latency = round((time.monotonic() - begun) * 1000)
    return _Seen(cluster.pk, at, latency, _printable(answer.body.get("gitVersion")))


def _printable(version: Any) -> str:
    return version[:64] if isinstance(version, str) and version.isprintable() else ""


@transaction.atomic
def _keep(seen: Iterable[_Seen]) -> None:
    by_cluster = {each.cluster: each for each in seen}
    rows = list(Cluster.objects.select_for_update(no_key=True).filter(pk__in=by_cluster).order_by("pk"))
    turned: list[tuple[Cluster, Action, Came, dict[str, str]]] = []
    for row in rows:
        found = by_cluster[row.pk]
        if found.latency_ms is None:
            if row.unreached_since is None:
                row.unreached_since = found.at
                turned.append((row, Action.CLUSTER_AWAY, Came.FAILURE, {"error": found.why}))
            row.latency_ms, row.unreached_why = None, found.why
            continue
        if row.unreached_since is not None:
            turned.append((row, Action.CLUSTER_BACK, Came.SUCCESS, {"since": row.unreached_since.isoformat()}))
        row.last_seen_at, row.latency_ms, row.version = found.at, found.latency_ms, found.version
        row.unreached_since, row.unreached_why = None, ""
    Cluster.objects.bulk_update(rows, _FIELDS)
    probes = [ClusterProbe(cluster=row, at=by_cluster[row.pk].at, latency_ms=row.latency_ms) for row in rows]
    ClusterProbe.objects.bulk_create(probes)
    for row, action, outcome, detail in turned:
        WORKER.record(action, chain=SYSTEM_CHAIN, outcome=outcome, target=f"clusters/{row.name}", detail=detail)
