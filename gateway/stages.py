"""The way of a request behind authentication and resolution, the same for sockets and for callers in the process."""

from __future__ import annotations

import time
from dataclasses import replace

from access.authorization.chain import AuthorizationChain
from gateway.errors import render
from gateway.exchange import Request, Response, Stream
from gateway.handlers import dispatch
from gateway.negotiation import warning_headers
from gateway.permission import forbidden
from gateway.runtime import Runtime
from gateway.streams import Recheck
from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.status import StatusError
from kube.verdicts import Decision


def throttle(runtime: Runtime, principal: Principal, info: RequestInfo) -> None:
    """Count the request against what its tenant may ask. Raises ``TooManyRequests`` (AD6)."""
    runtime.throttle.take(principal, info, time.monotonic())


async def authorize(
    runtime: Runtime, principal: Principal, info: RequestInfo, trace: list[Decision] | None = None
) -> Decision:
    """The decision on a request. Raises ``ServiceUnavailable`` when revocations may have been missed."""
    if not principal.is_system:
        runtime.require_trustworthy()
    return await runtime.authorization.authorize(principal, info, trace)


async def permit(runtime: Runtime, principal: Principal, info: RequestInfo) -> Decision:
    """``authorize`` for a request that is to be served: a refusal carries its trace, for the audit (AZ11)."""
    trace: list[Decision] = []
    decision = await authorize(runtime, principal, info, trace)
    return decision if decision.allowed else replace(decision, trace=tuple(trace))


async def recheck(chain: AuthorizationChain, principal: Principal, info: RequestInfo) -> None:
    """Authorise again. Raises ``Forbidden``."""
    require_allowed(principal, info, await chain.authorize(principal, info))


def require_allowed(principal: Principal, info: RequestInfo, decision: Decision) -> None:
    """Raise ``Forbidden`` unless the decision is to allow."""
    if not decision.allowed:
        raise forbidden(principal, info, decision)


async def serve(runtime: Runtime, request: Request, again: Recheck) -> Response | Stream:
    """Admission, store and the rest, for a request that is authorised."""
    await runtime.custom.ensure(request.info.cluster)
    answer: Response | Stream
    try:
        answer = await dispatch.serve(runtime, request, again)
    except StatusError as error:
        if not request.warnings:
            raise
        answer = render(error, request.headers.get(b"accept", b""))
    if request.warnings:
        answer.headers = (*answer.headers, *warning_headers(request.warnings))
    return answer
