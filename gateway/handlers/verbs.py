"""Kubernetes' verbs on kept objects, each with its handler."""

from __future__ import annotations

from typing import Final

from gateway.handlers import deleting, patching, reading, watching, writing
from gateway.http.messages import Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources.kinds import Kind
from kube.requests.status import MethodNotAllowed

_READING_SCHEMAS: Final = frozenset({"create", "update", "patch"})


async def perform(runtime: Runtime, request: Request, kind: Kind, recheck: Recheck) -> Response | Stream:
    """Answer a request for objects of a kind that are kept. Raises ``StatusError``."""
    if request.info.verb in _READING_SCHEMAS:
        request.require_light(heavy=kind.is_heavy)
        await kind.compile()
    match request.info.verb:
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


def require(request: Request, kind: Kind) -> None:
    """Raise ``MethodNotAllowed`` unless the kind, or its subresource, has the verb for such a path."""
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
