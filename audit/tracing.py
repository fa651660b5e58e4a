"""Traces by OpenTelemetry, where an operator names a collector; without one nothing that makes spans is ever imported.

Spans say what took how long, and in which part of the product. They hold no credential, no body, no query and no text of
an error, and of names only what the audit has as well (GW13). What makes them is ``audit.spans``.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from django.conf import settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from audit.spans import Traces

_NOTHING: Final[AbstractContextManager[Span | None]] = nullcontext()
_starting = threading.Lock()
_traces: Traces | None = None


def start(service: str) -> Traces | None:
    """Trace this process from now on if the settings say so; what makes its spans.

    Not before it serves: what is forked from a process has to begin by itself. ``OTEL_SERVICE_NAME`` wins over ``service``.
    """
    global _traces  # noqa: PLW0603 - one of a process
    if not settings.TRACES:
        return None
    if _traces is not None:
        return _traces
    with _starting:
        if _traces is None:
            from audit.spans import Traces

            _traces = Traces(service, headers=settings.TRACES_HEADERS, waiting_max=settings.TRACES_WAITING_MAX)
        return _traces


def stop() -> None:
    """Send what waits, for ``audit.spans.FLUSH_SECONDS`` at most, and trace no more."""
    global _traces
    with _starting:
        ending, _traces = _traces, None
    if ending is not None:
        ending.close()


def running() -> Traces | None:
    """What makes this process' spans, if it is traced."""
    return _traces


def dropped() -> int:
    """Spans that the collector did not take."""
    return _traces.dropped if _traces is not None else 0


def span(name: str, *, calls: bool = False, **attributes: str | int) -> AbstractContextManager[Span | None]:
    """A span for a ``with`` block, a child of the one around it; ``None`` where there is none, or nothing is traced.

    ``calls`` marks a question to another server. ``__`` in attributes stands for a dot.
    """
    return _NOTHING if _traces is None else _traces.span(name, calls, attributes)


def resumed(name: str, traceparent: str, **attributes: str | int) -> AbstractContextManager[Span | None]:
    """A span for work that was asked for elsewhere, where ``traceparent`` was kept; the first of a trace if it is empty."""
    return _NOTHING if _traces is None else _traces.resumed(name, traceparent, attributes)


def traceparent() -> str:
    """The span around this call as the header of the W3C, sampled or not, for whoever goes on with it; empty without one."""
    return "" if _traces is None else _traces.traceparent()
