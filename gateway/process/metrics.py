"""Counts of requests for ``/metrics``, cheap enough to be kept on every one (AD7)."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

_K = TypeVar("_K")

_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
_TENANTS_MAX: Final = 1000
"""Tenants that get a series of their own; the rest share one, so that names cannot fill the memory."""
_KINDS_MAX: Final = 10_000
"""Series of requests; names of resources are the callers' to choose, so those beyond share one."""

_VERBS_MAX: Final = 40
"""Verbs with latencies of their own; methods of HTTP are the callers' to choose as well."""


class Metrics:
    """Request counts and latencies of this process."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._tenants: dict[str, int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._pauses: dict[str, int] = {}

    def count_pause(self, cluster: str) -> None:
        """Count that a cluster has failed a watch across namespaces, which goes on without it for a while."""
        self._pauses[cluster] = self._pauses.get(cluster, 0) + 1

    def observe(self, *, verb: str, resource: str, tenant: str, code: int, seconds: float) -> None:
        """Count one finished request. ``resource`` is empty for paths that are no resources."""
        requests, tenants, buckets = self._requests, self._tenants, self._buckets
        kind = (verb, resource, code)
        if kind not in requests:
            kind = _place(requests, kind, _KINDS_MAX, (verb, "_other", code))
        requests[kind] += 1
        if tenant not in tenants:
            tenant = _place(tenants, tenant, _TENANTS_MAX, "_other")
        tenants[tenant] += 1
        if verb not in buckets:
            verb = verb if len(buckets) < _VERBS_MAX else "_other"
            buckets.setdefault(verb, [0] * (len(_BUCKETS) + 1))
            self._seconds.setdefault(verb, 0.0)
        buckets[verb][bisect_left(_BUCKETS, seconds)] += 1
        self._seconds[verb] += seconds

    def render_tenant(self, tenant: str, *, open_streams: int) -> bytes:
        """What a tenant may know: its own counts, and nothing of its neighbours."""
        lines = (
            "# TYPE tenantry_tenant_requests_total counter",
            f'tenantry_tenant_requests_total{{tenant="{tenant}"}} {self._tenants.get(tenant, 0)}',
            "# TYPE tenantry_tenant_longrunning_requests gauge",
            f'tenantry_tenant_longrunning_requests{{tenant="{tenant}"}} {open_streams}',
        )
        return "\n".join(lines).encode() + b"\n"

    def render(
        self,
        *,
        open_streams: int,
        revision: int,
        silence: float,
        replaced: int,
        dropped: int,
        untraced: int,
        restarts: Mapping[str, int],
        loop: Sequence[str] = (),
    ) -> bytes:
        """Everything in Prometheus' text format; ``loop`` are the lines about the event loop.

        ``silence`` are the seconds since the store here was proved to know all that there was, ``replaced`` is how often it
        began anew in another history, ``dropped`` are requests without a record (P10), ``untraced`` spans that no collector
        took.
        """
        lines = ["# TYPE apiserver_request_total counter"]
        lines += [
            f'apiserver_request_total{{verb="{verb}",resource="{resource}",code="{code}"}} {count}'
            for (verb, resource, code), count in sorted(self._requests.items())
        ]
        lines.append("# TYPE tenantry_tenant_requests_total counter")
        lines += [
            f'tenantry_tenant_requests_total{{tenant="{tenant}"}} {count}'
            for tenant, count in sorted(self._tenants.items())
        ]
        lines.append("# TYPE apiserver_request_duration_seconds histogram")
        for verb, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*_BUCKETS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'apiserver_request_duration_seconds_bucket{{verb="{verb}",le="{bound}"}} {total}')
            lines.append(f'apiserver_request_duration_seconds_sum{{verb="{verb}"}} {self._seconds[verb]:.6f}')
            lines.append(f'apiserver_request_duration_seconds_count{{verb="{verb}"}} {total}')
        lines.append("# TYPE apiserver_longrunning_requests gauge")
        lines.append(f"apiserver_longrunning_requests {open_streams}")
        lines.append("# TYPE tenantry_background_task_restarts_total counter")
        lines += [
            f'tenantry_background_task_restarts_total{{task="{task}"}} {count}'
            for task, count in sorted(restarts.items())
        ]
        lines.append("# TYPE tenantry_request_records_dropped_total counter")
        lines.append(f"tenantry_request_records_dropped_total {dropped}")
        lines.append("# TYPE tenantry_spans_dropped_total counter")
        lines.append(f"tenantry_spans_dropped_total {untraced}")
        lines.append("# TYPE tenantry_cluster_watch_pauses_total counter")
        lines += [
            f'tenantry_cluster_watch_pauses_total{{cluster="{cluster}"}} {count}'
            for cluster, count in sorted(self._pauses.items())
        ]
        lines.append("# TYPE tenantry_store_revision gauge")
        lines.append(f"tenantry_store_revision {revision}")
        lines.append("# TYPE tenantry_store_silence_seconds gauge")
        lines.append(f"tenantry_store_silence_seconds {silence:.3f}")
        lines.append("# TYPE tenantry_store_histories_replaced_total counter")
        lines.append(f"tenantry_store_histories_replaced_total {replaced}")
        lines.append("# TYPE python_gc_objects_collected_total counter")
        lines += [
            f'python_gc_objects_collected_total{{generation="{number}"}} {generation["collected"]}'
            for number, generation in enumerate(gc.get_stats())
        ]
        lines += loop
        return "\n".join(lines).encode() + b"\n"


def _place(counts: dict[_K, int], key: _K, most: int, other: _K) -> _K:
    """Where something new is counted: by itself, or with others where there is no more room."""
    if len(counts) >= most:
        key = other
    counts.setdefault(key, 0)
    return key
