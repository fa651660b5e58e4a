"""Subresources whose body is not the object: scale, binding, eviction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from gateway import objects, parameters
from gateway.exchange import Request, Response
from gateway.handlers.deleting import DeleteOptions, remove
from gateway.handlers.reading import find
from gateway.handlers.writing import Body, change, modified
from gateway.kinds import Kind
from gateway.negotiation import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    negotiate,
    require_content_type,
    respond,
)
from gateway.runtime import Runtime
from kube import fieldvalidation, tables
from kube.names import is_dns_subdomain
from kube.patches import deep_copy, json_patch, merge_patch
from kube.resources import Scale
from kube.selectors import from_object
from kube.status import BadRequest, Cause, Conflict
from kube.validation.causes import invalid_object
from store.types import Stored

_BUILT_IN: Final = Scale(("spec", "replicas"), ("status", "replicas"))


async def scale(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """GET, PUT and PATCH of ``/scale``: an ``autoscaling/v1 Scale`` over the object's replicas."""
    info = request.info
    where = kind.served.scale or _BUILT_IN
    if info.verb == "get":
        stored = await find(runtime, objects.key_of(info, kind.resource, info.name), kind)
        return _show(request, stored, where)
    parameters.check(request)
    if info.verb == "update":
        body = objects.decode_body(request, "Scale")
        if (body.get("kind") or "Scale", body.get("apiVersion") or "autoscaling/v1") != ("Scale", "autoscaling/v1"):
            given, version = str(body.get("kind") or "Scale"), str(body.get("apiVersion") or "autoscaling/v1")
            raise objects.not_a("Scale", "autoscaling", given, version)
        named = _within(body, "Scale", "metadata").get("name")
        if named != info.name:
            raise BadRequest(f"the name of the object ({named or ''}) does not match the name on the URL ({info.name})")

        async def wanted(current: Body) -> Body:  # noqa: ARG001 - one signature for both
            return body
    else:
        media = require_content_type(request, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
        document = objects.decode("application/yaml" if media == APPLY_PATCH else "application/json", request.body)

        async def wanted(current: Body) -> Body:
            shown = _scale(current, where)
            return json_patch(shown, document) if media == JSON_PATCH else merge_patch(shown, document)

    async def scaled(current: Body) -> Body:
        scale_ = await wanted(current)
        replicas = _replicas(scale_, info.name)
        version = (scale_.get("metadata") or {}).get("resourceVersion")
        if version and version != current["metadata"].get("resourceVersion"):
            raise modified(kind, info.name)
        new: Body = deep_copy(current)
        node = new
        for part in where.replicas[:-1]:
            node = node.setdefault(part, {})
        node[where.replicas[-1]] = replicas
        return new

    return _show(request, await change(runtime, request, kind, scaled), where)


def _replicas(body: Body, name: str) -> int:
    spec = body.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas > 2**31 - 1:
        raise BadRequest("spec.replicas is not a number")
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid_object("autoscaling", "Scale", name, [Cause("FieldValueInvalid", message, "spec.replicas")])
    return replicas


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        body = body.get(part) if isinstance(body, dict) else None
    return body


def _scale(body: Body, where: Scale) -> Body:
    metadata = body["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "tenant", "selfLink")
    status: Body = {"replicas": _at(body, where.status_replicas) or 0}
    if where.selector:
        selector = str(_at(body, where.selector) or "")
    else:
        found = (body.get("spec") or {}).get("selector") or {}
        labelled = "matchLabels" in found or "matchExpressions" in found
        selector = str(from_object(found if labelled else {"matchLabels": found}))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": _at(body, where.replicas) or 0},
        "status": status,
    }


def _show(request: Request, stored: Stored, where: Scale) -> Response:
    accept = negotiate(request)
    body = _scale(orjson.loads(stored.data), where)
    if accept.is_table:
        body = tables.table(tables.scale_layout(), [body], now=request.now, version=accept.version)
    elif accept.is_partial:
        body = tables.partial_object(body, accept.version)
    return respond(request, body, accept=accept)


async def bind(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST of a ``Binding``: put a pod on a node, once."""
    body = objects.decode_body(request, "Binding")
    parameters.check(request)
    node = _within(body, "Binding", "target").get("name")
    if not isinstance(node, str) or not node:
        message = "Required value"
        raise invalid_object("", "Binding", request.info.name, [Cause("FieldValueRequired", message, "target.name")])

    async def bound(current: Body) -> Body:
        assigned = (current.get("spec") or {}).get("nodeName")
        if assigned:
            raise Conflict(
                f'Operation cannot be fulfilled on pods/binding "{request.info.name}": pod {request.info.name} is '
                f'already assigned to node "{assigned}"',
                kind="pods/binding",
                name=request.info.name,
            )
        new: Body = deep_copy(current)
        new["spec"]["nodeName"] = node
        return new

    await change(runtime, request, kind, bound)
    return _success()


async def bind_new(runtime: Runtime, request: Request) -> Response:
    """POST to ``bindings``: the pod is named in the body."""
    body = objects.decode_body(request, "Binding")
    name = _within(body, "Binding", "metadata").get("name")
    if not isinstance(name, str) or not is_dns_subdomain(name):
        raise BadRequest("metadata.name of the binding names the pod")
    request.info = replace(request.info, resource="pods", subresource="binding", name=name)
    return await bind(runtime, request, runtime.catalogs.require(request.info))


async def evict(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST of an ``Eviction``: delete a pod."""
    body = objects.decode_body(request, "Eviction")
    parameters.check(request)
    named = _within(body, "Eviction", "metadata").get("name")
    if named and named != request.info.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    options = _within(body, "Eviction", "deleteOptions")
    if options.get("dryRun") == ["All"]:
        request.query = {**request.query, "dryRun": "All"}
    preconditions = _within(options, "DeleteOptions", "preconditions")
    wanted = DeleteOptions(str(preconditions.get("uid") or ""), str(preconditions.get("resourceVersion") or ""))
    await remove(runtime, request, kind, objects.key_of(request.info, kind.resource, request.info.name), wanted)
    return _success()


def _within(body: Body, kind: str, field: str) -> Body:
    """An object inside a body, empty where there is none. Raises ``BadRequest`` for anything else."""
    value = body.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {objects.json_type(value)} into Go struct field {kind}.{field}"
        raise fieldvalidation.cannot_be_handled(kind, "v1", problem)
    return value


def _success() -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Response(201, orjson.dumps(body))
