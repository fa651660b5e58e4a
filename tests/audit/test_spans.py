"""Spans on their way to the collector: what ends with a process, what a fork begins with, and what is not told."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from audit import spans, tracing
from kube.requests.status import Forbidden, InternalError
from tests.collector import Collector, collecting


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def traced(collector: Collector, settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """This process is traced, sends nothing by itself within the time of a test, and all of it when it is told to."""
    monkeypatch.setattr(spans, "FLUSH_SECONDS", 300)
    settings.TRACES, settings.TRACES_HEADERS, settings.TRACES_WAITING_MAX = True, "", 512
    for name, value in {**collector.environment, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}.items():
        monkeypatch.setenv(name, value)
    tracing.start("tests")
    yield collector
    tracing.stop()


def answer(name: str) -> None:
    """A request with one stage."""
    traces = tracing.start("tests")
    assert traces is not None
    span = traces.request("GET", "", trusted=False)
    try:
        with tracing.span("stage"):
            pass
    finally:
        span.end(name, 200)


def test_what_waits_is_sent_at_the_end_of_the_process(traced: Collector) -> None:
    answer("GET /one")
    assert traced.spans == []
    tracing.stop()
    assert [span.name for span in traced.spans] == ["stage", "GET /one"]
    assert {span.service for span in traced.spans} == {"tests"}


def test_a_fork_sends_its_own_spans_and_none_of_its_parents(traced: Collector) -> None:
    answer("GET /parent")
    child = os.fork()
    if not child:
        # Whatever happens here, it must not go on as a test.
        try:
            answer("GET /child")
            tracing.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert [span.name for span in traced.spans] == ["stage", "GET /child"]
    tracing.stop()
    assert [span.name for span in traced.spans[2:]] == ["stage", "GET /parent"]


def test_the_end_of_a_process_does_not_wait_for_a_collector_that_hangs(
    traced: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "FLUSH_SECONDS", 0.05)
    traced.hangs.set()
    answer("GET /one")
    tracing.stop()
    assert (traced.spans, tracing.running()) == ([], None)


def test_one_span_too_many_is_dropped_and_counted(traced: Collector) -> None:
    traced.hangs.set()
    for _ in range(300):
        answer("GET /one")
    # Two each, of which 512 may wait.
    assert tracing.dropped() == 600 - 512
    traced.over.set()
    traced.hangs.clear()


def test_an_error_is_told_by_its_kind_alone(traced: Collector) -> None:
    request = tracing.start("tests").request("GET", "", trusted=False)
    for error in (Forbidden("alice's secret is hers"), InternalError("the password is sesame"), ValueError("sesame")):
        with pytest.raises(type(error)), tracing.span("stage"):
            raise error
    request.end("GET /one", 500)
    tracing.stop()
    told = [(span.attributes.get("error.type"), span.failed) for span in traced.spans]
    assert told == [("Forbidden", False), ("InternalError", True), ("ValueError", True), ("500", True)]
    assert b"sesame" not in traced.raw
    assert b"secret" not in traced.raw


@pytest.mark.parametrize("claimed", ["", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" * 40, "\xff"])
def test_a_trace_that_is_none_is_nobodys(traced: Collector, claimed: str) -> None:
    for trusted in (False, True):
        tracing.start("tests").request("GET", claimed, trusted=trusted).end("GET /one", 200)
    tracing.stop()
    assert [(span.parent, span.links) for span in traced.spans] == [("", ()), ("", ())]


def test_work_that_was_asked_for_elsewhere_goes_on_in_its_trace(traced: Collector) -> None:
    request = tracing.start("tests").request("POST", "", trusted=False)
    kept = tracing.traceparent()
    request.end("POST /order", 201)
    with tracing.resumed("operation ready", kept), tracing.span("step namespace"):
        pass
    with tracing.resumed("operation deleted", ""):
        pass
    with tracing.span("nobody asked") as nothing:
        assert nothing is None
    tracing.stop()
    order, step, work, other = traced.spans
    assert kept.startswith(f"00-{order.trace}-{order.id}-")
    assert (work.parent, work.trace, step.parent) == (order.id, order.trace, work.id)
    assert (other.parent, other.trace != order.trace) == ("", True)
