"""The portal's way in: the same stages as for kubectl, without a socket, for a principal that it vouches for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import orjson

from access.outsidebudget import begin_budget
from access.requestlimits import RateLimited
from gateway.filters.auditing import begin_trail, record_of, with_notes
from gateway.filters.authorization import authorize_with_trace, require_allowed, throttle
from gateway.handlers import dispatch
from gateway.http.certificates import prepare
from gateway.http.errors import as_status_error, render
from gateway.http.messages import Request, Response, Stream
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.resources.uids import random_uid
from gateway.server import assembly
from kube.auditing.policy import Stage
from kube.authentication.identity import Principal
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import BadRequest

_PATIENCE = 30.0


class Gateway:
    """An API server in a thread of this process. Safe to call from any thread; use it as a context manager.

    It decides, admits, keeps and audits exactly as the server does; only authentication is the caller's.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._stack = contextlib.AsyncExitStack()
        self._runtime: Runtime | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        certificates = prepare(self._options)
        parts = assembly.build_runtime(self._options, certificates, background=False)
        self._runtime = self._run(self._stack.enter_async_context(parts))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(
        self,
        principal: Principal,
        method: str,
        path: str,
        *,
        query: str = "",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        source_ip: str = "",
    ) -> Response:
        """One request, answered. ``path`` is percent-encoded as in a URL, ``body`` JSON.

        Failures are responses with a ``Status`` body, as for any client. Watches are refused.
        """
        fields = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        data = b"" if body is None else orjson.dumps(body)
        response: Response = self._run(self._call(principal, method, path, query, fields, data, source_ip))
        return response

    async def _call(
        self,
        principal: Principal,
        method: str,
        path: str,
        query: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        source_ip: str,
    ) -> Response:
        runtime = self._runtime
        assert runtime is not None, "the gateway has not been started"  # noqa: S101 - a programming error
        started, now, audit_id = time.perf_counter(), time.time(), random_uid()
        info = decision = request = trail = None
        user_agent = headers.get(b"user-agent", b"").decode("latin-1")[:256]
        begin_budget()
        try:
            parsed = parse(method, path.encode(), query.encode())
            info = resolve(parsed, principal.tenant)
            if runtime.audit_log is not None:
                trail = begin_trail(
                    runtime.audit_log,
                    audit_id,
                    uri="?".join(part for part in (path, query) if part).encode(),
                    received=now,
                    principal=principal,
                    impersonator=None,
                    info=info,
                    source_ip=source_ip,
                    user_agent=user_agent,
                )
            await throttle(runtime, principal, info)
            decision = await authorize_with_trace(runtime, principal, info)
            require_allowed(principal, info, decision)
            request = Request(
                principal=principal,
                info=info,
                query=parsed.query,
                parameters=parsed.parameters,
                headers=headers,
                raw_headers=tuple(headers.items()),
                body=body,
                now=now,
                audit_id=audit_id,
                decision=decision,
            )
            response = await answer(runtime, request)
        except Exception as error:  # noqa: BLE001 - every failure has an answer
            if isinstance(error, RateLimited):
                decision = error.decision
            response = render(as_status_error(error))
        if trail is not None:
            trail.tell(
                Stage.RESPONSE_COMPLETE,
                status=response.status,
                decision=decision,
                request=request,
                response=response,
            )
        decision = with_notes(decision, request.notes if request else ())
        runtime.audit.put_nowait(
            record_of(
                audit_id,
                time=now,
                latency=time.perf_counter() - started,
                principal=principal,
                info=info,
                decision=decision,
                status=response.status,
                source_ip=source_ip,
                user_agent=user_agent,
            )
        )
        return response

    def _run(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(_PATIENCE)


async def answer(runtime: Runtime, request: Request) -> Response:
    """Answer an authorised request that needs no connection; failures are answers with a ``Status``."""
    begin_budget()
    try:
        if request.info.verb == "watch":
            raise BadRequest("watches need a connection")
        answered = await dispatch.dispatch(runtime, request, _no_recheck)
        if isinstance(answered, Stream):
            raise BadRequest("streams need a connection")
    except Exception as error:  # noqa: BLE001 - every failure has an answer
        return render(as_status_error(error), request.headers.get(b"accept", b""))
    return answered


async def _no_recheck() -> None:
    return
