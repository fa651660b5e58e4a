"""What makes the spans of a process that is traced, and sends them (``audit.tracing``).

Nobody waits for the collector: spans stand in a bounded line, one too many is dropped and counted, and the end of a
process waits for ``FLUSH_SECONDS`` at most. The rest is OpenTelemetry's, by the names of its own environment.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

FLUSH_SECONDS: Final = 3.0
"""How long the end of a process waits for the collector."""

Attributes = Mapping[str, str | int]

_W3C: Final = TraceContextTextMapPropagator()
_NOTHING: Final[AbstractContextManager[Span | None]] = nullcontext()


class Traces:
    """The spans of this process."""

    def __init__(self, service: str, *, headers: str, waiting_max: int) -> None:
        """``headers`` go to the collector, as ``OTEL_EXPORTER_OTLP_HEADERS`` has them; ``waiting_max`` spans wait for it."""
        resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(headers=parse_env_headers(headers, liberal=True))
        self._line = _Line(exporter, waiting_max)
        self._provider.add_span_processor(self._line)
        self._tracer = self._provider.get_tracer("tenantry")
        self._over = threading.Event()
        self._ending = self._waiting_for_the_end()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._begin_anew)

    @property
    def dropped(self) -> int:
        """Spans that the collector did not take."""
        return self._line.dropped

    def close(self) -> None:
        """Send what waits, for ``FLUSH_SECONDS`` at most."""
        atexit.unregister(self.close)
        self._over.set()
        self._ending.join(FLUSH_SECONDS)

    def span(self, name: str, calls: bool, attributes: Attributes) -> AbstractContextManager[Span | None]:
        """See ``audit.tracing``."""
        if not get_current_span().get_span_context().is_valid:
            # What goes on behind requests is nobody's trace.
            return _NOTHING
        return self._span(name, None, SpanKind.CLIENT if calls else SpanKind.INTERNAL, attributes)

    def resumed(self, name: str, traceparent: str, attributes: Attributes) -> AbstractContextManager[Span | None]:
        """See ``audit.tracing``."""
        return self._span(name, _remote(traceparent), SpanKind.CONSUMER, attributes)

    def traceparent(self) -> str:
        """See ``audit.tracing``."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier.get("traceparent", "")

    def request(self, method: str, claimed: str, *, trusted: bool, begun: int | None = None) -> RequestSpan:
        """The span of a request that has come, current from now on; it began at ``begun`` (Unix nanoseconds), or now.

        As in kube-apiserver: which trace it belongs to and whether that is kept is said by ``claimed``, the caller's
        ``traceparent``, only where the caller is ``trusted``. Anybody else's trace is named by a link, and our own sampler
        decides. Baggage is never read.
        """
        context, links = _remote(claimed), []
        if not trusted:
            foreign = get_current_span(context).get_span_context()
            links = [Link(foreign)] if foreign.is_valid else []
            context = Context()
        span = self._tracer.start_span(
            method,
            context,
            SpanKind.SERVER,
            attributes={"http.request.method": method},
            links=links,
            start_time=begun,
        )
        return RequestSpan(self, span)

    def past(self, name: str, begun: int, error: BaseException | None) -> None:
        """A child of the current span that is over: it began at ``begun``, and ended by ``error`` if there is one."""
        span = self._tracer.start_span(name, start_time=begun)
        if error is not None:
            _tell(span, error)
        span.end()

    @contextmanager
    def _span(self, name: str, context: Context | None, kind: SpanKind, attributes: Attributes) -> Iterator[Span]:
        # What an error says may be a cluster's or a tenant's words: only its kind is told.
        with self._tracer.start_as_current_span(
            name,
            context,
            kind,
            attributes=_named(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _tell(span, error)
                raise

    def _begin_anew(self) -> None:
        """Be a fork's own: neither its parent's spans nor its parent's threads are here."""
        if not self._over.is_set():
            self._line.forget()
            self._over = threading.Event()
            self._ending = self._waiting_for_the_end()

    def _waiting_for_the_end(self) -> threading.Thread:
        # Begun now: a process that ends cannot begin threads any more. Nobody has to wait for a daemon.
        waiting = threading.Thread(target=self._end, name="traces", daemon=True)
        waiting.start()
        return waiting

    def _end(self) -> None:
        self._over.wait()
        self._provider.shutdown()


class RequestSpan:
    """The span of a request, which is the current one until it ends: where it began, in the same task or thread."""

    def __init__(self, traces: Traces, span: Span) -> None:
        self.traces = traces
        self._span = span
        self._token = attach(set_span_in_context(span))

    def end(self, name: str, status: int, **attributes: str | int) -> None:
        """It is answered. A server's failure is an error, a refusal is none."""
        self._span.update_name(name)
        self._span.set_attributes(_named({**attributes, "http__response__status_code": status}))
        if status >= 500:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
        detach(self._token)


class _Line(SpanProcessor):
    """Ended spans on their way to the collector."""

    def __init__(self, exporter: SpanExporter, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._batches = BatchSpanProcessor(_Counted(exporter, self), max_queue_size=waiting_max)
        self.forget()

    def forget(self) -> None:
        """Nothing waits, and nothing was dropped."""
        self._lock = threading.Lock()
        self._waiting = self.dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Have it stand in line, if there is room."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._waiting >= self._waiting_max:
                self.dropped += 1
                return
            self._waiting += 1
        self._batches.on_end(span)

    def taken(self, spans: int, *, arrived: bool) -> None:
        """So many have left the line."""
        with self._lock:
            self._waiting -= spans
            if not arrived:
                self.dropped += spans

    def shutdown(self) -> None:
        """Send what waits."""
        self._batches.shutdown()  # type: ignore[no-untyped-call]


class _Counted(SpanExporter):
    """Sends spans, and says how many arrived."""

    def __init__(self, exporter: SpanExporter, line: _Line) -> None:
        self._exporter = exporter
        self._line = line

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them; takes as long as ``OTEL_EXPORTER_OTLP_TIMEOUT`` at most."""
        arrived = False
        try:
            result = self._exporter.export(spans)
            arrived = result is SpanExportResult.SUCCESS
        finally:
            self._line.taken(len(spans), arrived=arrived)
        return result

    def shutdown(self) -> None:
        """No more will come."""
        self._exporter.shutdown()


def _remote(traceparent: str) -> Context:
    """A context with nothing but a caller's span."""
    return _W3C.extract({"traceparent": traceparent}, Context())


def _tell(span: Span, error: BaseException) -> None:
    """By what kind of error it ended; one that is the caller's is none of ours."""
    span.set_attribute("error.type", type(error).__name__)
    if getattr(error, "code", 500) >= 500:
        span.set_status(Status(StatusCode.ERROR))


def _named(attributes: Attributes) -> dict[str, str | int]:
    return {name.replace("__", "."): value for name, value in attributes.items()}
