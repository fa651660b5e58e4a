"""A collector of traces: takes OTLP over HTTP as OpenTelemetry's own does, decodes it, and keeps it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.story.product import eventually


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    begun: int
    ended: int
    failed: bool
    links: tuple[str, ...]
    attributes: Mapping[str, Any]


class Collector:
    """Where it listens, and what it was sent; one that ``hangs`` takes requests and never answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hangs = threading.Event()
        self.over = threading.Event()
        self.raw = b""
        self.headers: list[Mapping[str, str]] = []
        self.spans: list[Seen] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to know of it."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def wait_for(self, found: Callable[[Seen], object]) -> Seen:
        """The first span that fits, when it is there."""
        return eventually(lambda: next((span for span in self.spans if found(span)), None))

    def children(self, parent: Seen) -> list[Seen]:
        """Its children so far, in the order in which they began."""
        found = [span for span in self.spans if (span.trace, span.parent) == (parent.trace, parent.id)]
        return sorted(found, key=lambda span: (span.begun, span.ended))

    def take(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.raw += body
        self.headers.append(headers)
        told = ExportTraceServiceRequest.FromString(body)
        for resource in told.resource_spans:
            service = _plain(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_seen(service, span) for span in scope.spans]


def _seen(service: str, span: Any) -> Seen:
    return Seen(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        begun=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        failed=span.status.code == 2,
        links=tuple(link.trace_id.hex() for link in span.links),
        attributes=_plain(span.attributes),
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector, as long as it is wanted."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if collector.hangs.is_set():
                collector.over.wait()
            else:
                assert self.path == "/v1/traces"
                collector.take(body, dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """It is no story."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
