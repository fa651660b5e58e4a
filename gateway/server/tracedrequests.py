"""The stages of a request as spans, where the process is traced (``audit.tracing``); elsewhere none of this is imported.

Named as kube-apiserver names them where it has them: the request by its method and the template of its path, its filters
``authentication``, ``authorization`` and ``audit``, its handler by the verb.
"""

from __future__ import annotations

import time

from access.authentication.base import Credentials
from access.requestlimits import Allowance
from audit import tracing
from audit.spans import RequestSpan, Traces
from gateway.filters.authorization import authorize_with_trace, throttle
from gateway.handlers import dispatch
from gateway.http.messages import Request, Response, Stream
from gateway.http.requestresponse import RequestResponseCycle
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.server.pipeline import METHODS, SELDOM, RequestPipeline
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import ParsedRequest, RequestInfo


class TracedPipeline(RequestPipeline):
    """One request, and the span of each stage.

    Whose trace it belongs to is known with the caller, for only users of the system tenant choose one: the spans of what
    came before are made then, with their own times. A stream's ends with the head of its answer.
    """

    __slots__ = ("_arrived", "_span", "_traces")

    def __init__(self, runtime: Runtime, cycle: RequestResponseCycle) -> None:
        super().__init__(runtime, cycle)
        self._arrived = time.time_ns()
        self._traces: Traces | None = tracing.running()
        """Until the span has begun."""
        self._span: RequestSpan | None = None
        """From its beginning to its end."""

    async def _authenticate(self, credentials: Credentials, parsed: ParsedRequest) -> Principal:
        begun, traces = time.time_ns(), self._traces
        failure: BaseException | None = None
        try:
            return await super()._authenticate(credentials, parsed)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._begin()
            if traces is not None:
                traces.past("authentication", begun, failure)

    def _resolve(self, tenant: str | None) -> RequestInfo:
        with tracing.span("resolution"):
            return super()._resolve(tenant)

    @staticmethod
    async def _throttle(runtime: Runtime, principal: Principal, info: RequestInfo) -> Allowance | None:
        with tracing.span("throttling"):
            return await throttle(runtime, principal, info)

    @staticmethod
    async def _authorize(runtime: Runtime, principal: Principal, info: RequestInfo) -> Decision:
        with tracing.span("authorization") as span:
            decision = await authorize_with_trace(runtime, principal, info)
            if span is not None:
                span.set_attribute("tenantry.decision", "allow" if decision.allowed else "forbid")
            return decision

    @staticmethod
    async def _dispatch(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
        with tracing.span((request.info.verb or request.info.method).capitalize()):
            return await dispatch.dispatch(runtime, request, recheck)

    async def _stream(self, stream: Stream) -> None:
        self.status = stream.status
        self._end()
        await super()._stream(stream)

    def _record(self) -> None:
        self._begin()
        with tracing.span("audit"):
            super()._record()
        self._end()

    def _begin(self) -> None:
        """Once: the span of the request, as of its arrival."""
        traces, self._traces = self._traces, None
        if traces is None:
            return
        caller = self.impersonator or self.principal
        # Operators, and workers, which go on with the trace of whoever asked for the work.
        trusted = caller is not None and caller.is_system
        claimed = self._headers.get(b"traceparent", b"").decode("latin-1")
        self._span = traces.request(self._method, claimed, trusted=trusted, begun=self._arrived)

    def _end(self) -> None:
        """Once: with the answer, or with the head of one that goes on."""
        span, self._span = self._span, None
        if span is None:
            return
        info, principal = self.info, self.principal
        told: dict[str, str | int] = {"audit-id": self.audit_id}
        route = ""
        if info is not None:
            route = _route(info)
            told |= {"tenantry__space": info.cluster, "k8s__namespace__name": info.namespace, "http__route": route}
        if principal is not None and principal.tenant:
            told["tenantry__tenant"] = principal.tenant
        name = f"{self._method} {route}" if route else self._method
        span.end(name, self.status, **{key: value for key, value in told.items() if value != ""})

    @property
    def _method(self) -> str:
        method = self._cycle.method
        return method if method in METHODS or method in SELDOM else "_OTHER"


def _route(info: RequestInfo) -> str:
    """The path without anybody's names; empty for what is no resource."""
    if not info.is_resource:
        return ""
    parts = ["apis", info.group, info.version] if info.group else ["api", info.version]
    if info.namespace:
        parts += ["namespaces", "{:namespace}"]
    parts.append(info.resource)
    if info.name:
        parts.append("{:name}")
    if info.subresource:
        parts.append(info.subresource)
    return "/" + "/".join(parts)
