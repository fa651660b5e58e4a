"""Which handler answers which request."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from gateway.handlers import (
    connecting,
    discovery,
    forwarding,
    health,
    openapi,
    reviews,
    subresources,
    tenants,
    tokenrequest,
    verbs,
    virtualworkspace,
)
from gateway.http.errors import render
from gateway.http.messages import Request, Response, Stream
from gateway.http.negotiation import require_acceptable, warning_headers
from gateway.process.runtime import Runtime
from gateway.process.watches import Recheck
from gateway.resources.selection import OpenNamespaces
from kube.kinds.reststrategies import DEPRECATED
from kube.requests.decoding import HEAVY, weight
from kube.requests.status import Expired, StatusError
from kube.workspaces.apiexports import EXPORTS

COST_VALUES: Final = 100
"""Values in a body whose work costs about as much as a small request."""

_PARTS: Final = {
    "scale": subresources.scale,
    "binding": subresources.bind,
    "eviction": subresources.evict,
    "token": tokenrequest.create_token,
}


async def dispatch(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request: admission, store and the rest. Raises ``StatusError``.

    Heavy bodies are charged to the tenant by what they cost; warnings go with every answer, refusals included.
    """
    request.weight = weight(request.body)
    request.executor = partial(runtime.executor.run, request.principal.tenant)

    def charge(cost: int) -> None:
        runtime.throttle.charge(request.principal, request.info, cost, time.monotonic())

    request.charge = charge
    if request.weight > HEAVY:
        charge(request.weight // COST_VALUES)
    await runtime.custom.ensure(request.info.cluster)
    answer: Response | Stream
    try:
        answer = await _handle(runtime, request, recheck)
    except StatusError as error:
        if not request.warnings:
            raise
        answer = render(error, request.headers.get(b"accept", b""))
    if request.warnings:
        answer.headers = (*answer.headers, *warning_headers(request.warnings))
    return answer


async def _handle(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    info = request.info
    if not info.is_resource:
        return await _non_resource(runtime, request)
    placement = await forwarding.placement_of(runtime, info)
    if placement is not None:
        return await forwarding.forward(runtime, request, placement, recheck)
    require_acceptable(request)
    if (info.group, info.resource, info.subresource) == (*EXPORTS, "content"):
        return await virtualworkspace.serve(runtime, request, recheck)
    kind = runtime.catalogs.require(info)
    verbs.require(request, kind)
    deprecated = DEPRECATED.get((info.group, info.version, info.resource))
    if deprecated is not None:
        request.warnings.append(deprecated)
    if info.subresource in connecting.SUBRESOURCES:
        return await connecting.connect(runtime, request, kind)
    if info.subresource in _PARTS:
        return await _PARTS[info.subresource](runtime, request, kind)
    if not kind.resource.persistent:
        if kind.name == "Binding":
            return await subresources.bind_new(runtime, request)
        return await reviews.review(runtime, request, kind)
    if (kind.name, kind.resource.group) == ("Tenant", "") and info.verb in ("create", "delete"):
        return await tenants.serve(runtime, request, kind)
    if kind.resource.namespaced and not info.namespace and not request.principal.is_system:
        recheck = _outside_closed_namespaces(runtime, request, recheck)
    return await verbs.perform(runtime, request, kind, recheck)


def _outside_closed_namespaces(runtime: Runtime, request: Request, recheck: Recheck) -> Recheck:
    """Have a request for all namespaces reach none that is closed, and a watch end when that changes (GW5)."""
    cluster = request.info.cluster
    closed = runtime.suspensions.namespaces(cluster)
    if closed:
        request.scope_filter = OpenNamespaces(closed)

    async def again() -> None:
        await recheck()
        if runtime.suspensions.namespaces(cluster) != closed:
            raise Expired("what can be seen of the namespaces has changed, please list again")

    return again


async def _non_resource(runtime: Runtime, request: Request) -> Response:
    path = request.info.path
    if request.info.method != "GET" and (path.strip("/") == "version" or discovery.is_version(path)):
        raise verbs.not_allowed()
    if path.startswith("/openapi/"):
        # The documents have media types of their own.
        return await openapi.serve(runtime, request)
    require_acceptable(request)
    if discovery.is_discovery(request.info.path):
        return await discovery.discover(runtime, request)
    return await health.serve(runtime, request)
