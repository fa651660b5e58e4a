"""Kubernetes' verbs on kept objects, each with its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from gateway.handlers import deleting, patching, reading, watching, writing
from gateway.http.messages import Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources.kinds import Kind
from kube.requests.status import MethodNotAllowed

_Handler = Callable[[Runtime, Request, Kind], Coroutine[Any, Any, Response]]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    "get": reading.get,
    "list": reading.list_,
    "create": writing.create,
    "update": writing.update,
    "patch": patching.patch,
    "delete": deleting.delete,
    "deletecollection": deleting.delete_collection,
}
_READING_SCHEMAS: Final = frozenset({"create", "update", "patch"})


def perform(runtime: Runtime, request: Request, kind: Kind, recheck: Recheck) -> Awaitable[Response | Stream]:
    """Answer a request for objects of a kind that are kept. Raises ``StatusError``."""
    verb = request.info.verb
    if verb == "watch":
        return watching.watch(runtime, request, kind, recheck)
    handler = _HANDLERS.get(verb)
    if handler is None:
        raise not_allowed()
    if verb in _READING_SCHEMAS:
        request.require_light(heavy=kind.is_heavy)
        if kind.resource.custom:
            return _compiled(handler, runtime, request, kind)
    return handler(runtime, request, kind)


async def _compiled(handler: _Handler, runtime: Runtime, request: Request, kind: Kind) -> Response:
    await kind.compile()
    return await handler(runtime, request, kind)


def not_allowed() -> MethodNotAllowed:
    """The refusal of a verb that a resource does not have, in kube-apiserver's words."""
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
        if part is None or (info.verb not in part.verbs and not info.is_proxied):
            raise not_allowed()
    elif info.verb not in kind.resource.verbs:
        raise not_allowed()
