"""Throttling and authorization of requests, the same for sockets, for callers in the process, and for open watches."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.isolation import is_probe
from access.requestlimits import Allowance, RateLimited
from gateway.filters.permission import forbidden
from gateway.process.runtime import Runtime
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.requestinfo import RequestInfo


async def throttle(runtime: Runtime, principal: Principal, info: RequestInfo) -> Allowance | None:
    """Count the request against what its tenant, and its person, may ask; of what it was taken. Raises ``TooManyRequests`` (AD6).

    Whoever asks again before the time that they were told is refused later: a flood that is refused at once takes as much
    of the loop as its connections can ask for, and slows everybody.
    """
    if not runtime.throttle.is_bound(principal.tenant):
        await runtime.tenant_limits.ensure(principal.tenant)
    try:
        return runtime.throttle.take(principal, info, time.monotonic())
    except RateLimited as refused:
        if refused.pause:
            await asyncio.sleep(refused.pause)
        raise


def decide(runtime: Runtime, principal: Principal, info: RequestInfo) -> Decision | None:
    """What ``authorize`` would say, or ``None`` where only that can tell: where nobody is waited for, no coroutine is made."""
    if principal.is_system or runtime.trustworthy:
        return runtime.authorization.decide(principal, info)
    return None


async def authorize(
    runtime: Runtime, principal: Principal, info: RequestInfo, trace: list[Decision] | None = None
) -> Decision:
    """The decision on a request. Raises ``ServiceUnavailable`` when revocations may have been missed.

    Whoever asks how this process is asks just then: a probe is answered at once, and ends nobody's rights.
    """
    if not principal.is_system and not runtime.trustworthy and not is_probe(info):
        await runtime.require_trustworthy()
    return await runtime.authorization.authorize(principal, info, trace)


async def authorize_with_trace(runtime: Runtime, principal: Principal, info: RequestInfo) -> Decision:
    """``authorize`` for a request that is to be served: a refusal carries its trace, for the audit (AZ11)."""
    decided = decide(runtime, principal, info)
    if decided is not None and decided.allowed:
        return decided
    trace: list[Decision] = []
    decision = await authorize(runtime, principal, info, trace)
    return decision if decision.allowed else replace(decision, trace=tuple(trace))


async def recheck(chain: AuthorizationChain, principal: Principal, info: RequestInfo) -> None:
    """Authorise again. Raises ``Forbidden``.

    A connection into a pod takes the verb ``create`` whatever the method, as in Kubernetes since 1.35: a WebSocket is
    asked for by GET, and who may read may not type.
    """
    require_allowed(principal, info, await chain.authorize(principal, info))
    if info.connects and info.verb != "create":
        await recheck(chain, principal, replace(info, verb="create"))


def require_allowed(principal: Principal, info: RequestInfo, decision: Decision) -> None:
    """Raise ``Forbidden`` unless the decision is to allow."""
    if not decision.allowed:
        raise forbidden(principal, info, decision)
