"""Which handler answers which request."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import Final

from gateway.filters.standing import require_standing
from gateway.handlers import (
    acrossnamespaces,
    acrosstenants,
    connecting,
    discovery,
    health,
    openapi,
    reviews,
    subresources,
    tenants,
    tokenrequest,
    verbs,
    virtualworkspace,
)
from gateway.handlers.placednamespaces import forwarding
from gateway.handlers.webhooks import serving as webhooks
from gateway.http import indentation, origins, websockets
from gateway.http.errors import render
from gateway.http.messages import COST_VALUES, Request, Response, Stream
from gateway.http.negotiation import require_acceptable, warning_headers
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources.selection import OpenNamespaces
from gateway.upstream.versions import is_merged
from kube.authentication.identity import Principal
from kube.authorization.placedrights import is_for_cluster
from kube.requests.decoding import HEAVY, SMALL, TooHeavy, weight
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Expired, StatusError
from kube.workspaces.apiexports import EXPORTS

_SAFE: Final = frozenset({"GET", "HEAD"})

_PARTS: Final = {
    "scale": subresources.scale,
    "binding": subresources.bind,
    "eviction": subresources.evict,
    "token": tokenrequest.create_token,
}


async def dispatch(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request: admission, store and the rest. Raises ``StatusError``.

    Heavy bodies and large ones are charged by what they cost to the tenant that asks, or to what it has for the cluster that
    asks about it; warnings go with every answer, refusals included.
    """
    # What a small body holds costs nobody much: it is neither weighed nor charged.
    payer, sent, small = request.principal, 0, len(request.body) < SMALL
    line = payer.tenant
    if not small:
        sent = weight(request.body)
        if sent > HEAVY and webhooks.concerns(request.info):
            payer = await webhooks.payer(runtime, request)
            line = webhooks.line(payer)
    request.light = runtime.heavy is not None and request.info.verb != "watch"
    request.in_turn = partial(runtime.compression.run, line)
    # It holds nothing of the request, which would then stay, with its bodies, until the collector of cycles comes by.
    charge = request.charge = partial(_charge, runtime, payer, request.info)
    if not small:
        request.charge_kept(len(request.body), values=sent if sent > HEAVY else 0)
    answer: Response | Stream
    try:
        answer = await _handle(runtime, request, recheck)
    except TooHeavy:
        if runtime.heavy is None:
            raise
        known = max(request.weight, sent)
        charge((known - sent) // COST_VALUES, further=request.charged)
        stands = partial(require_standing, runtime, request.principal, recheck)
        asked = runtime.heavy.answer(request, stands, line)
        answer = await (webhooks.in_time(request, asked) if webhooks.concerns(request.info) else asked)
        # What its bytes did not tell.
        charge(max(request.weight - known, 0) // COST_VALUES, further=True)
        return answer
    except StatusError as error:
        if not request.warnings:
            raise
        answer = render(error, request.headers.get(b"accept", b""))
        if indentation.is_wanted(request.info.path, request.query, request.headers):
            answer = indentation.indented(answer)
    if request.warnings:
        answer.headers = (*answer.headers, *warning_headers(request.warnings))
    return answer


def _charge(runtime: Runtime, principal: Principal, info: RequestInfo, cost: int, *, further: bool = False) -> None:
    runtime.throttle.charge(principal, info, cost, time.monotonic(), further=further)


def _handle(runtime: Runtime, request: Request, recheck: Recheck) -> Awaitable[Response | Stream]:
    info = request.info
    if info.method not in _SAFE or info.is_proxied or websockets.is_wanted(request):
        origins.require_own_page(request)
    if info.is_resource:
        if is_for_cluster(info) and not runtime.placements.is_kept(info.cluster, info.namespace):
            return _where_it_is(runtime, request, recheck)
    elif webhooks.concerns(info):
        return webhooks.serve(runtime, request)
    return _here(runtime, request, recheck)


async def _where_it_is(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    placement = await runtime.placements.of(request.info.cluster, request.info.namespace)
    if placement is not None:
        return await forwarding.forward(runtime, request, placement, recheck)
    return await _here(runtime, request, recheck)


def _here(runtime: Runtime, request: Request, recheck: Recheck) -> Awaitable[Response | Stream]:
    if request.info.verb == "watch" and websockets.is_wanted(request):
        return _over_websocket(runtime, request, recheck)
    if indentation.is_wanted(request.info.path, request.query, request.headers):
        return _indented(runtime, request, recheck)
    return _answer(runtime, request, recheck)


async def _over_websocket(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    agreed, write = websockets.handshake(request), request.write
    request.write = lambda lines: write(websockets.framed(lines))
    answer = await _answer(runtime, request, recheck)
    return websockets.messages(answer, agreed, write) if isinstance(answer, Stream) else answer


async def _indented(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    answer = await _answer(runtime, request, recheck)
    if isinstance(answer, Stream):
        return answer
    request.charge_bytes(len(answer.body))
    return await request.in_thread(len(answer.body), indentation.indented, answer)


async def _answer(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    info = request.info
    if not info.is_resource:
        return await _non_resource(runtime, request)
    if len(request.body) >= SMALL:
        request.weigh(request.body)
    request.evaluate_lightly()
    if not runtime.custom.is_ready(info.cluster):
        await runtime.custom.ensure(info.cluster)
    require_acceptable(request)
    if info.subresource == "content" and (info.group, info.resource) == EXPORTS:
        return await virtualworkspace.serve(runtime, request, recheck)
    kind = runtime.catalogs.require(info)
    verbs.require(request, kind)
    if tenants.is_elsewhere(request):
        await tenants.require(runtime, info.tenant)
    if kind.deprecation:
        request.warnings.append(kind.deprecation)
    if info.subresource:
        if info.subresource in connecting.SUBRESOURCES:
            return await connecting.connect(runtime, request, kind)
        if info.subresource in _PARTS:
            return await _PARTS[info.subresource](runtime, request, kind)
    if not kind.resource.persistent:
        if kind.name == "Binding":
            return await subresources.bind_new(runtime, request)
        return await reviews.review(runtime, request, kind)
    if kind.resource.namespaced and not info.namespace:
        if not request.principal.is_system:
            recheck = _outside_closed_namespaces(runtime, request, recheck)
        if info.all_tenants:
            recheck = await acrosstenants.heed(runtime, request, recheck)
        elif info.verb in ("list", "watch"):
            come = runtime.placements.come(info.cluster)
            placements, since = await runtime.placements.in_space(info.cluster)
            if placements or _is_of_placed(request):
                if info.verb == "list":
                    return await acrossnamespaces.list_(runtime, request, kind, recheck, placements)
                return await acrossnamespaces.watch(runtime, request, kind, recheck, placements, since)
            recheck = _until_placed(runtime, info.cluster, come, recheck)
        request.scope_filter = await runtime.placements.shown(
            (info.group, info.resource), request.scope_filter, spaces=None if info.all_tenants else [info.cluster]
        )
    return await verbs.perform(runtime, request, kind, recheck)


def _is_of_placed(request: Request) -> bool:
    """Whether a request goes on with what placed namespaces were in, though none is left."""
    query = request.query
    return is_merged(query.get("resourceVersion", "")) or acrossnamespaces.is_token(query.get("continue", ""))


def _until_placed(runtime: Runtime, cluster: str, come: int, recheck: Recheck) -> Recheck:
    """Have a watch of the store's alone end once a namespace is placed there, whose objects it would never tell of."""

    async def again() -> None:
        await recheck()
        if runtime.placements.come(cluster) != come:
            raise Expired(acrossnamespaces.CHANGED)

    return again


def _outside_closed_namespaces(runtime: Runtime, request: Request, recheck: Recheck) -> Recheck:
    """Have a request for all namespaces reach none that is closed, and a watch end when that changes (GW5)."""
    cluster = request.info.cluster
    closed = runtime.suspensions.namespaces(cluster)
    if closed:
        request.scope_filter = OpenNamespaces(closed)

    async def again() -> None:
        await recheck()
        if runtime.suspensions.namespaces(cluster) != closed:
            raise Expired(acrossnamespaces.CHANGED)

    return again


async def _non_resource(runtime: Runtime, request: Request) -> Response:
    await runtime.custom.ensure(request.info.cluster)
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
