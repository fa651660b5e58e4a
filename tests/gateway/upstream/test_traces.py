"""What a cluster hears of traces: ours, where there is one, and never a tenant's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from audit import tracing
from gateway.upstream.client import Upstream
from gateway.upstream.tracing import TracedUpstream
from tests.collector import Collector, collecting
from tests.gateway.upstream.asking import ask
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster

THEIRS = (
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"tracestate", b"evil=1"),
    (b"baggage", b"userId=evil"),
)


@pytest.fixture
def traced(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        settings.TRACES, settings.TRACES_HEADERS, settings.TRACES_WAITING_MAX = True, "", 512
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        tracing.start("tests")
        yield collector
        tracing.stop()


async def heard_by_a_cluster(kind: type[Upstream]) -> dict[bytes, bytes]:
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append((await visit.request())[1])
        await visit.say(ok(b"{}"))

    async with raw_cluster(behave) as cluster:
        upstream = kind(cluster.cluster)
        try:
            await ask(upstream, headers=THEIRS)
        finally:
            await upstream.close()
    return heard[0]


async def test_a_tenants_trace_and_baggage_never_pass() -> None:
    assert not {b"traceparent", b"tracestate", b"baggage"} & (await heard_by_a_cluster(Upstream)).keys()


async def test_a_cluster_hears_of_the_span_that_asks_it(traced: Collector) -> None:
    request = tracing.start("tests").request("GET", THEIRS[0][1].decode(), trusted=False)
    heard = await heard_by_a_cluster(TracedUpstream)
    request.end("GET /api", 200)
    assert not {b"tracestate", b"baggage"} & heard.keys()
    asked = traced.wait_for(lambda span: span.kind == 3)
    assert heard[b"traceparent"].decode().startswith(f"00-{asked.trace}-{asked.id}-")
    whole = traced.wait_for(lambda span: span.name == "GET /api")
    assert asked.parent == whole.id
    assert asked.attributes["tenantry.cluster"] == "prod"
    assert asked.attributes["http.response.status_code"] == 200
