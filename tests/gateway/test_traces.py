"""What traces cost, and whom they can hurt: nobody who did not ask for them, and nobody when the collector does not answer."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import tracing
from tests.collector import Collector, Seen, collecting
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server, start, stop
from tests.story.product import eventually

IMPORTING = """
import sys
import django
django.setup()
import gateway.server.assembly, gateway.server.serving, portal.asgi, portal.celery, portal.tasks, portal.urls, tenants.tasks
from audit import tracing
tracing.start("somebody")
print(len(sys.modules.keys() & {"audit.spans", "gateway.server.tracedrequests", "opentelemetry.exporter"}))
"""
"""What API servers, portals and workers are made of; what of that makes spans or sends them (the client of Redis looks
for metrics of the library by itself)."""

ROOT = Path(__file__).resolve().parents[2]
WAITING_MAX = 64


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced(collector: Collector, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server beside ``server`` that keeps no trace unless somebody whom it believes does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **collector.environment,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0",
            "OTEL_SERVICE_NAME": "the-door",
            "OTEL_BSP_MAX_QUEUE_SIZE": str(WAITING_MAX),
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
            # A collector that hangs would be waited for longer than any test waits.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
        }.items():
            patch.setenv(name, value)
        running = start(tmp_path_factory.mktemp("traced") / "data", server.database)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def sampled() -> dict[str, str]:
    """A new trace, which its caller wants to be kept."""
    return {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}


def of(headers: dict[str, str], collector: Collector) -> list[Seen]:
    return [span for span in collector.spans if span.trace == headers["traceparent"].split("-")[1]]


@pytest.mark.parametrize("on", [False, True])
def test_without_a_collector_no_process_has_what_makes_spans_in_it(collector: Collector, on: bool) -> None:
    """Off costs nothing."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "SECRET_KEY": "x" * 50,
        **(collector.environment if on else {}),
    }
    command = [sys.executable, "-c", IMPORTING]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert (int(done.stdout) > 0) == on


def test_a_server_without_a_collector_serves_what_asks_to_be_traced(server: Server, alice: Caller) -> None:
    name = f"c-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    assert alice.post("/api/v1/namespaces/default/configmaps", body, headers=sampled()).status == 201
    assert alice.get(f"/api/v1/namespaces/default/configmaps/{name}").status == 200
    assert server.admin.get("/metrics").raw.count(b"\ntenantry_spans_dropped_total 0\n") == 1


def test_what_is_not_traced_makes_no_object() -> None:
    assert tracing.span("store.get") is tracing.span("GET", calls=True, http__request__method="GET")
    assert tracing.resumed("operation ready", "") is tracing.span("step namespace")
    assert (tracing.traceparent(), tracing.dropped(), tracing.running()) == ("", 0, None)


def test_only_operators_can_have_a_trace_kept(collector: Collector, traced: Server, acme: str) -> None:
    """As with kube-apiserver: what everybody could have kept would be everybody's way to fill the collector."""
    person = traced.user(acme, "alice")
    theirs, nobodys, operators = sampled(), sampled(), sampled()
    assert person.get("/api/v1/namespaces", headers=theirs).status in {200, 403}
    assert traced.nobody.get("/api/v1/namespaces", headers=nobodys).status in {401, 403}
    assert traced.admin.get("/api/v1/namespaces", headers=operators).status == 200
    asked = collector.wait_for(lambda span: span.name == "GET /api/v1/namespaces")
    assert (asked.service, asked.trace, asked.parent) == ("the-door", *operators["traceparent"].split("-")[1:3])
    assert {span.name for span in of(operators, collector)} >= {"authentication", "authorization", "List"}
    assert of(theirs, collector) == of(nobodys, collector) == []
    assert {span.trace for span in collector.spans} == {asked.trace}


def test_a_refusal_is_traced_with_the_stage_that_refused(collector: Collector, traced: Server) -> None:
    headers = {**sampled(), "Impersonate-User": "nobody-in-particular"}
    assert traced.admin.get("/api/v1/namespaces/default/secrets", headers=headers).status == 403
    refused = collector.wait_for(
        lambda span: span.trace in headers["traceparent"] and span.attributes.get("http.response.status_code") == 403
    )
    assert not refused.failed
    stages = collector.children(refused)
    assert [span.name for span in stages][-2:] == ["authorization", "audit"]
    assert [span.attributes.get("tenantry.decision") for span in stages if span.name == "authorization"] == ["forbid"]


def test_a_watch_is_in_the_trace_before_it_ends(collector: Collector, traced: Server) -> None:
    headers = sampled()
    watch = traced.admin.watch("/api/v1/namespaces", headers=headers)
    assert not watch.ended
    seen = collector.wait_for(lambda span: span.trace in headers["traceparent"] and span.name.startswith("GET "))
    assert not watch.ended
    assert seen.attributes["http.response.status_code"] == 200


def test_a_collector_that_hangs_holds_nobody_up(collector: Collector, traced: Server) -> None:
    collector.hangs.set()
    for _ in range(WAITING_MAX):
        assert traced.admin.get("/api/v1/namespaces", headers=sampled()).status == 200

    def dropped() -> int:
        lines = traced.admin.get("/metrics").raw.decode().splitlines()
        return int(next(line for line in lines if line.startswith("tenantry_spans_dropped_total ")).split()[1])

    # Each of them made several spans, of which so many may wait.
    assert eventually(dropped) >= WAITING_MAX
    # It would be waited for for an hour; the server ends all the same.
    stop(traced)
