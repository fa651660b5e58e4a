"""Which handler answers which request."""

from __future__ import annotations

from typing import Final

from gateway.exchange import Request, Response, Stream
from gateway.handlers import (
    deleting,
    discovery,
    health,
    openapi,
    patching,
    reading,
    reviews,
    subresources,
    tenants,
    tokenrequest,
    virtualview,
    watching,
    writing,
)
from gateway.kinds import Kind
from gateway.negotiation import require_acceptable
from gateway.runtime import Runtime
from gateway.streams import Recheck
from kube.apiexports import EXPORTS
from kube.status import BadRequest, MethodNotAllowed
from kube.traits import DEPRECATED

_PARTS: Final = {
    "scale": subresources.scale,
    "binding": subresources.bind,
    "eviction": subresources.evict,
    "token": tokenrequest.create_token,
}
_STREAMS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request. Raises ``StatusError``."""
    info = request.info
    require_acceptable(request)
    if not info.is_resource:
        return await _non_resource(runtime, request)
    if (info.group, info.resource, info.subresource) == (*EXPORTS, "content"):
        return await virtualview.serve(runtime, request, recheck)
    kind = runtime.catalogs.require(info)
    _require_verb(request, kind)
    deprecated = DEPRECATED.get((info.group, info.version, info.resource))
    if deprecated is not None:
        request.warnings.append(deprecated)
    if info.subresource in _STREAMS:
        raise BadRequest("this server runs no containers: there is nothing to connect to")
    if info.subresource in _PARTS:
        return await _PARTS[info.subresource](runtime, request, kind)
    if not kind.resource.persistent:
        if kind.name == "Binding":
            return await subresources.bind_new(runtime, request)
        return await reviews.review(runtime, request, kind)
    if (kind.name, kind.resource.group) == ("Tenant", "") and info.verb in ("create", "delete"):
        return await tenants.serve(runtime, request, kind)
    match info.verb:
        case "get":
            return await reading.get(runtime, request, kind)
        case "list":
            return await reading.list_(runtime, request, kind)
        case "watch":
            return await watching.watch(runtime, request, kind, recheck)
        case "create":
            return await writing.create(runtime, request, kind)
        case "update":
            return await writing.update(runtime, request, kind)
        case "patch":
            return await patching.patch(runtime, request, kind)
        case "delete":
            return await deleting.delete(runtime, request, kind)
        case "deletecollection":
            return await deleting.delete_collection(runtime, request, kind)
    raise not_allowed()


def not_allowed() -> MethodNotAllowed:
    """The 405."""
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def _require_verb(request: Request, kind: Kind) -> None:
    info = request.info
    named = bool(info.name)
    if info.verb in ("get", "update", "patch", "delete") and not named:
        raise not_allowed()
    if info.verb == "create" and named is not bool(info.subresource):
        raise not_allowed()
    if info.subresource:
        part = kind.subresource(info.subresource)
        if part is None or info.verb not in part.verbs:
            raise not_allowed()
    elif info.verb not in kind.resource.verbs:
        raise not_allowed()


async def _non_resource(runtime: Runtime, request: Request) -> Response:
    path = request.info.path
    if request.info.method != "GET" and (path.strip("/") == "version" or discovery.is_version(path)):
        raise not_allowed()
    if path.startswith("/openapi/"):
        return await openapi.serve(runtime, request)
    if discovery.is_discovery(request.info.path):
        return await discovery.discover(runtime, request)
    return await health.serve(runtime, request)
