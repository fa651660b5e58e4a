"""The stages of a request in order, nothing else.

authentication → resolution → throttling → authorization → admission and store → audit, which always happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache, partial
from types import coroutine
from typing import Final

from access.authentication.anonymous import NOBODY
from access.authentication.base import Credentials
from access.authentication.clusterwebhooks import cluster_of
from access.authentication.impersonation import asks_for_another, impersonate
from access.authorization.tenancy.isolation import ALWAYS_ALLOWED
from access.outsidebudget import begin_budget
from access.requestlimits import Allowance, RateLimited
from audit.requestnames import request_name
from gateway.filters.auditing import Trail, begin_trail, record_of, with_notes
from gateway.filters.authorization import (
    authorize,
    authorize_with_trace,
    recheck,
    require_allowed,
    throttle,
)
from gateway.filters.requestinfo import parse, resolve
from gateway.filters.standing import require_standing
from gateway.handlers import dispatch
from gateway.http import indentation
from gateway.http.bodies import Disconnected, limit_of, read_body
from gateway.http.errors import as_status_error, render
from gateway.http.messages import Request, Response, Stream
from gateway.http.requestresponse import RequestResponseCycle, header_line
from gateway.process.runtime import Runtime
from gateway.process.streams import PROMPT_SECONDS, Recheck
from gateway.resources.uids import random_uid
from gateway.server import streaming
from kube.auditing.policy import Stage
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.durations import parse_duration
from kube.requests.requestinfo import ParsedRequest, RequestInfo
from kube.requests.status import BadRequest, MethodNotAllowed, StatusError, Timeout
from store.types import Unavailable

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
SELDOM: Final = frozenset({"HEAD", "OPTIONS"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CONNECTION: Final = frozenset({b"close", b"keep-alive", b"upgrade", b""})
_NOT_KEPT: Final = b"cache-control: no-cache, private\r\n"
_ONCE: Final = frozenset({b"host", b"authorization", b"content-length", b"content-type"})


class RequestPipeline:
    """One request on its way through the stages, with what is known of it so far."""

    __slots__ = (
        "_allowance",
        "_cycle",
        "_headers",
        "_is_alone",
        "_query",
        "_runtime",
        "audit_id",
        "decision",
        "impersonator",
        "info",
        "now",
        "principal",
        "request",
        "response",
        "started",
        "status",
        "trail",
    )

    _throttle = staticmethod(throttle)
    _authorize = staticmethod(authorize_with_trace)
    _dispatch = staticmethod(dispatch.dispatch)

    def __init__(self, runtime: Runtime, cycle: RequestResponseCycle) -> None:
        self._runtime = runtime
        self._cycle = cycle
        self._headers: Mapping[bytes, bytes] = {}
        self._query: Mapping[str, str] = {}
        self._allowance: Allowance | None = None
        self._is_alone = False
        self.now = time.time()
        self.started = time.perf_counter()
        self.audit_id = random_uid()
        request_name.set(self.audit_id)
        self.principal: Principal | None = None
        self.impersonator: Principal | None = None
        self.info: RequestInfo | None = None
        self.decision: Decision | None = None
        self.request: Request | None = None
        self.response: Response | None = None
        self.trail: Trail | None = None
        self.status = 0

    async def run(self) -> None:
        """Answer, and record what became of it."""
        begin_budget()
        latest, self._runtime.latest_connection = self._runtime.latest_connection, self._cycle.connection_id
        # Nobody else's came since the same connection's last one: there is nobody to go in step with.
        self._is_alone = latest == self._cycle.connection_id
        answer: Response | Stream | None = None
        try:
            try:
                try:
                    answer = await self._answer()
                except Exception as error:
                    if isinstance(error, Disconnected):
                        raise
                    if isinstance(error, RateLimited):
                        self.decision = error.decision
                    answer = self._refusal(as_status_error(error))
                if not (self._is_alone or isinstance(answer, Stream)):
                    await _in_step()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._cycle.timed_out or task is None:
                    raise
                task.uncancel()
                # What has become known in the last moment is told all the same.
                if answer is None:
                    answer = self._refusal(Timeout("Timeout: request did not complete within the allotted timeout"))
            if isinstance(answer, Stream):
                await self._stream(answer)
            else:
                await self._reply(answer)
        except Disconnected:
            self.status = self.status or 499
        finally:
            self._record()

    async def _answer(self) -> Response | Stream:
        cycle, runtime = self._cycle, self._runtime
        self._headers = _checked_headers(cycle.headers)
        line = cycle.method, cycle.raw_path, cycle.query
        if cycle.method not in METHODS and not (cycle.method in SELDOM and _takes_any_method(parse(*line))):
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        parsed = parse(*line)
        self._query = parsed.query

        authorization = self._headers.get(b"authorization")
        credentials = Credentials(
            cycle.certificate,
            authorization.decode("latin-1") if authorization is not None else None,
            cycle.certificate_refusal,
            shown_at=self.now,
            address=cycle.client,
        )
        try:
            principal = self.principal = await self._authenticate(credentials, parsed)
        except (StatusError, Unavailable):
            with contextlib.suppress(StatusError):
                self._begin_trail(self._resolve(self.principal.tenant if self.principal else None))
            raise
        info = self.info = self._resolve(principal.tenant)
        self._begin_trail(info)
        timeout = self._query.get("timeout")
        if timeout and not info.is_long_running:
            try:
                cycle.answer_within(parse_duration(timeout))
            except ValueError as error:
                raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None
        self._allowance = await self._throttle(runtime, principal, info)
        decision = self.decision = await self._authorize(runtime, principal, info)
        require_allowed(principal, info, decision)

        again = self._recheck(credentials, info)
        if info.is_long_running:
            # It shows them for as long as it lasts: they are kept once.
            cycle.headers = [pair for pair in cycle.headers if pair[0] != b"authorization"]
            self._headers = {name: value for name, value in self._headers.items() if name != b"authorization"}
        if info.connects:
            await again()
        body = b""
        # Whatever comes is read to its end, within bounds: what nobody has asked for, of a GET say, would come for as long
        # as a watch lasts.
        asked = time.perf_counter()
        if cycle.method in _WITH_BODY or b"content-length" in self._headers or b"transfer-encoding" in self._headers:
            body = await read_body(cycle, self._headers, limit_of(info))
        if not self._is_alone:
            await _in_step()
        if time.perf_counter() - asked > PROMPT_SECONDS and info.path not in ALWAYS_ALLOWED:
            # Rights can end while a body trickles in, or a process stands still; what everybody may cannot.
            await require_standing(runtime, principal, again)
        request = self.request = Request(
            principal=principal,
            info=info,
            query=self._query,
            parameters=parsed.parameters,
            headers=self._headers,
            raw_headers=tuple(cycle.headers),
            body=body if cycle.method in _WITH_BODY else b"",
            now=self.now,
            audit_id=self.audit_id,
            decision=decision,
            write=cycle.write_nowait,
            cut=cycle.abort,
        )
        return await self._dispatch(runtime, request, again)

    def _refusal(self, error: StatusError) -> Response:
        answer = render(error, self._headers.get(b"accept", b""))
        path = self.info.path if self.info else ""
        return indentation.indented(answer) if indentation.is_wanted(path, self._query, self._headers) else answer

    async def _authenticate(self, credentials: Credentials, parsed: ParsedRequest) -> Principal:
        if parsed.path in ALWAYS_ALLOWED and credentials.certificate is None and credentials.authorization is None:
            return NOBODY
        return await self._identify(credentials, self.now)

    def _resolve(self, tenant: str | None) -> RequestInfo:
        """What the request is for when a user of this tenant sends it."""
        cycle = self._cycle
        return resolve(cycle.method, cycle.raw_path, cycle.query, tenant)

    async def _identify(self, credentials: Credentials, now: float) -> Principal:
        """Whom the request is served for: whoever shows the credentials, or whom that one may act as."""
        caller = await self._runtime.authentication.authenticate(credentials, now=now)
        if self.principal is None:
            # Should the caller not be allowed to act as another, the refusal is recorded as the caller's.
            self.principal = caller
        if not asks_for_another(self._headers):
            return caller
        allowed = partial(authorize, self._runtime)
        acting = await impersonate(caller, self._cycle.headers, self._resolve, allowed)
        if acting is None:
            return caller
        self.impersonator = caller
        return acting

    def _recheck(self, credentials: Credentials, info: RequestInfo) -> Recheck:
        async def again() -> None:
            principal = await self._identify(credentials, time.time())
            await recheck(self._runtime.authorization, principal, info)

        return again

    def _begin_trail(self, info: RequestInfo) -> None:
        cycle, log = self._cycle, self._runtime.audit_log
        if log is None:
            return
        self.trail = begin_trail(
            log,
            self.audit_id,
            uri=b"?".join(part for part in (cycle.raw_path, cycle.query) if part),
            received=self.now,
            principal=self.principal,
            impersonator=self.impersonator,
            info=info,
            source_ip=cycle.client,
            user_agent=self._user_agent,
        )

    @property
    def _user_agent(self) -> str:
        return self._headers.get(b"user-agent", b"").decode("latin-1")[:256]

    async def _reply(self, response: Response) -> None:
        self.status, self.response = response.status, response
        if response.status in (400, 408, 413, 415, 504) and self._cycle.method in _WITH_BODY:
            # What is left of a body that was not read must not be taken for the next request.
            self._cycle.keep_alive = False
        elif self._cycle.method not in _WITH_BODY and not self._cycle.body_complete:
            # Nobody waits for the end of what nobody has asked for.
            self._cycle.keep_alive = False
        # There is no body with 204 and 304, and with the latter it would take the place of the cached answer's own.
        media = b"" if response.status in (204, 304) else _content_type(response.media)
        lines = b"audit-id: %b\r\n%b%b%b" % (self.audit_id.encode(), _NOT_KEPT, self._rate_lines(), media)
        await self._cycle.send_response(response.status, response.headers, response.body, lines=lines)

    def _rate_lines(self) -> bytes:
        """What is left to the person or the tenant, for whoever gets the answer (AD6)."""
        if self._allowance is not None:
            return self._allowance.header_lines
        if self.principal is None or self.info is None:
            return b""
        standing = self._runtime.throttle.standing(self.principal, self.info, time.monotonic())
        return standing.header_lines if standing is not None else b""

    async def _stream(self, stream: Stream) -> None:
        self.status = stream.status
        cycle = self._cycle
        kept = _content_type(stream.media) + _NOT_KEPT if stream.send is None else b""
        lines = b"%baudit-id: %b\r\n%b" % (kept, self.audit_id.encode(), self._rate_lines())
        await cycle.start_response(stream.status, stream.headers, lines=lines, long_running=stream.long_running)
        if self.trail is not None:
            self.trail.tell(Stage.RESPONSE_STARTED, status=stream.status, decision=self.decision, request=self.request)
        stream.headers = ()
        await streaming.pass_on(cycle, stream)

    def _record(self) -> None:
        info, runtime, principal = self.info, self._runtime, self.principal
        latency = time.perf_counter() - self.started
        decision, request = self.decision, self.request
        if self.trail is not None:
            # As in kube-apiserver, what nobody knows the sender of ends with the stage at which it is refused.
            stage = Stage.RESPONSE_STARTED if principal is None else Stage.RESPONSE_COMPLETE
            self.trail.tell(stage, status=self.status, decision=decision, request=request, response=self.response)
        runtime.metrics.observe(
            verb=info.verb if info is not None else "",
            resource=info.resource if info is not None and self.status != 404 else "",
            tenant=principal.tenant or "" if principal is not None else "",
            code=self.status,
            seconds=latency,
        )
        # The cluster's own audit has the request that it asked about; what was refused is recorded where it was.
        if self.status == 200 and principal is not None and cluster_of(principal):
            return
        if request is not None and request.notes:
            decision = with_notes(decision, request.notes)
        record = record_of(
            self.audit_id,
            time=self.now,
            latency=latency,
            principal=principal,
            impersonator=self.impersonator,
            info=info,
            decision=decision,
            status=self.status,
            source_ip=self._cycle.client,
            user_agent=self._user_agent,
        )
        runtime.audit.put_nowait(record)


@coroutine
def _in_step() -> Generator[None, None, None]:
    """Let the requests that have come together come as far as this one before it goes on.

    So the same code runs for one after the other while the processor has it at hand, and their answers leave together
    (cohort scheduling; docs/decisions/015-cohorts.md). It is ``asyncio.sleep(0)`` without the coroutines around it.
    """
    yield


def _takes_any_method(parsed: ParsedRequest) -> bool:
    """Of what listens in a pod this server knows nothing; of the rest probes alone are asked by more than Kubernetes' methods."""
    return parsed.is_proxied or parsed.path in ALWAYS_ALLOWED


@lru_cache(maxsize=256)
def _content_type(media: bytes) -> bytes:
    return header_line(b"content-type", media)


def _checked_headers(pairs: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """The first value of each header. Raises ``BadRequest`` for what two readers could read in two ways.

    ``Connection`` may not name other headers: a proxy behind would drop what this server has decided by (HDR-02).
    """
    headers = dict(pairs)
    if len(headers) != len(pairs):
        headers = _first_of_each(pairs)
    connection = headers.get(b"connection")
    if connection is not None:
        _check_connection(connection)
    if b"host" not in headers:
        raise BadRequest("the Host header is missing")
    return headers


def _first_of_each(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name == b"connection":
            _check_connection(value)
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise BadRequest(f"the header {name.decode()} is there more than once")
    return headers


def _check_connection(value: bytes) -> None:
    if not _CONNECTION.issuperset(part.strip().lower() for part in value.split(b",")):
        raise BadRequest("the Connection header names other headers")
