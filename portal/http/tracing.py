"""The portal's requests as spans, where the process is traced; elsewhere this is no middleware (``audit.tracing``)."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from audit import tracing

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TracingMiddleware:
    """A span for each request, named by its route. The portal is open to everybody: it never goes on with a caller's trace."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer; what it waits for is in spans below this one."""
        # Not before a request: the process that is prepared here may be forked into many.
        traces = tracing.start("tenantry-portal")
        if traces is None:
            return self.get_response(request)
        method = request.method if request.method in _METHODS else "_OTHER"
        span = traces.request(method, request.headers.get("traceparent", ""), trusted=False)
        status = 500
        route = told = ""
        try:
            response = self.get_response(request)
            status = response.status_code
            told = response.get("X-Request-ID", "")
            return response
        finally:
            match = request.resolver_match
            route = f"/{match.route}" if match else ""
            span.end(f"{method} {route}".rstrip(), status, http__route=route, **{"audit-id": told})
