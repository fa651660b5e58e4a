"""Which handler answers which request."""

from __future__ import annotations

from typing import Final

from gateway.exchange import Request, Response, Stream
from gateway.handlers import (
    connecting,
    discovery,
    health,
    openapi,
    reviews,
    subresources,
    tenants,
    tokenrequest,
    verbs,
    virtualview,
)
from gateway.negotiation import require_acceptable
from gateway.runtime import Runtime
from gateway.streams import Recheck
from kube.apiexports import EXPORTS
from kube.traits import DEPRECATED

_PARTS: Final = {
    "scale": subresources.scale,
    "binding": subresources.bind,
    "eviction": subresources.evict,
    "token": tokenrequest.create_token,
}


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request. Raises ``StatusError``."""
    info = request.info
    if not info.is_resource:
        return await _non_resource(runtime, request)
    require_acceptable(request)
    if (info.group, info.resource, info.subresource) == (*EXPORTS, "content"):
        return await virtualview.serve(runtime, request, recheck)
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
    return await verbs.perform(runtime, request, kind, recheck)


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
