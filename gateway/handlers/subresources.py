"""Subresources whose body is not the object: scale, binding, eviction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from access.admission.base import CREATE, UPDATE, Sent
from gateway.handlers import patching
from gateway.handlers.deleting import delete_object, with_preconditions
from gateway.handlers.reading import find
from gateway.handlers.writing import Body, Parting, check_name_of, modified, stated_revision, update_object, write_of
from gateway.http.messages import Request, Response
from gateway.http.negotiation import APPLY_PATCH, JSON_PATCH, PATCHES, negotiate, require_patch_type, respond
from gateway.process.runtime import Runtime
from gateway.resources import objects, writeoptions
from gateway.resources.kinds import Kind
from kube.kinds.resources import Scale
from kube.objects import fieldvalidation, managedfields, tables
from kube.objects.managedfields import Write
from kube.objects.patches import deep_copy, json_patch, merge_patch
from kube.objects.subresources import BUILT_IN_SCALE, reset_of
from kube.quota import disruptionbudgets
from kube.requests.fielderrors import invalid_object, required
from kube.requests.labelselectors import from_object
from kube.requests.names import is_dns_subdomain
from kube.requests.status import BadRequest, Cause, Conflict
from store.types import Operation, Range, Stored, Update


async def scale(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """GET, PUT and PATCH of ``/scale``: an ``autoscaling/v1 Scale`` over the object's replicas."""
    info = request.info
    where = kind.served.scale or BUILT_IN_SCALE
    if info.verb == "get":
        stored = await find(runtime, objects.key_of(info, kind.resource, info.name), kind)
        return _show(request, stored, where)
    part = kind.part(info.subresource)
    if info.verb == "update":
        writeoptions.check(request)
        body = objects.decode_object(request, part)
        objects.check_namespace_and_name(info, part, body)
        check_name_of(request, body["metadata"].get("name"))

        def wanted(current: Body) -> Body:  # noqa: ARG001 - one signature for both
            return body
    else:
        media = require_patch_type(request, *PATCHES)
        writeoptions.check(request, applies=media == APPLY_PATCH)
        if media == APPLY_PATCH:
            return await _apply_scale(runtime, request, kind, where)
        document = patching.decode_patch(request, media)

        def wanted(current: Body) -> Body:
            shown = _scale(current, where)
            result = json_patch(shown, document) if media == JSON_PATCH else merge_patch(shown, document)
            return patching.checked(request, part, result, document)

    def scaled(current: Body) -> Body:
        scale_ = wanted(current)
        replicas = _replicas(scale_, info.name, custom=kind.resource.custom)
        stated = stated_revision(scale_)
        if stated and str(stated) != current["metadata"].get("resourceVersion"):
            raise modified(kind, info.name)
        new: Body = deep_copy(current)
        _place(new, where.replicas, replicas)
        return new

    return _show(request, await update_object(runtime, request, kind, scaled, parting=_parting(where)), where)


async def _apply_scale(runtime: Runtime, request: Request, kind: Kind, where: Scale) -> Response:
    """Server-side apply of a ``Scale``: it owns the object's replicas, and nothing else."""
    part = kind.part(request.info.subresource)
    applied = patching.decode_applied(request, part.api_version, part.name)
    managedfields.check_applied(part.structure, applied, Write(manager="", version=part.api_version, now=""))
    applied = objects.decode_fields(request, part, {**applied, "metadata": applied.get("metadata") or {}})
    objects.check_namespace_and_name(request.info, part, applied)
    configured: Body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": request.info.name}}
    if "replicas" in (applied.get("spec") or {}):
        _place(configured, where.replicas, _replicas(applied, request.info.name, custom=kind.resource.custom))
    write, force = write_of(request, kind), patching.forced(request)

    def merged(current: Body) -> Body:
        return managedfields.apply(kind.structure, current, configured, write, force=force)

    stored = await update_object(runtime, request, kind, merged, managed=True, parting=_parting(where))
    return _show(request, stored, where)


def _parting(where: Scale) -> Parting:
    """What is sent of an object is its ``Scale``."""
    return lambda old, new: Sent(
        operation=UPDATE,
        group="autoscaling",
        version="v1",
        kind="Scale",
        object=_scale(new, where),
        old=_scale(old, where),
    )


def _place(body: Body, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    body[path[-1]] = value


def _replicas(body: Body, name: str, *, custom: bool = False) -> int:
    replicas = int((body.get("spec") or {}).get("replicas") or 0)
    if replicas < 0 and not custom:
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
        metadata = {"resourceVersion": body["metadata"].get("resourceVersion", "")}
        body = tables.table(
            tables.scale_convertor(), [body], now=request.now, metadata=metadata, version=accept.version
        )
    elif accept.is_partial:
        body = tables.partial_object(body, accept.version)
    return respond(request, body, accept=accept)


async def bind(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST of a ``Binding``: put a pod on a node, once."""
    body = objects.decode_object(request, kind.part(request.info.subresource))
    writeoptions.check(request)
    _check_named(request, body, "Binding")
    target = body.get("target") or {}
    node, causes = target.get("name"), []
    if target.get("kind") not in (None, "", "Node"):
        causes.append(writeoptions.unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not node:
        causes.append(required("target.name"))
    if causes:
        raise invalid_object("", "Binding", request.info.name, causes)

    def bound(current: Body) -> Body:
        why = _unassignable(current, body.get("metadata") or {})
        if why:
            words = f'Operation cannot be fulfilled on pods/binding "{request.info.name}": {why}'
            raise Conflict(words, kind="pods/binding", name=request.info.name)
        new: Body = deep_copy(current)
        new["spec"]["nodeName"] = node
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": objects.timestamp(request.now)}
        for field in ("labels", "annotations"):
            said = (body.get("metadata") or {}).get(field)
            if said:
                new["metadata"][field] = (new["metadata"].get(field) or {}) | said
        status = new.setdefault("status", {})
        status.pop("nominatedNodeName", None)
        others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
        status["conditions"] = [*others, {"lastProbeTime": None, **scheduled}]
        return new

    # Nobody owns what a scheduler decides.
    sent = _sent("", "v1", "Binding", body)
    await update_object(runtime, request, kind, bound, managed=True, parting=lambda _old, _new: sent)
    return _success()


def _unassignable(pod: Body, said: Body) -> str:
    """Why a pod cannot be put on a node by a binding with this metadata; empty where it can."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if said.get(field) and said[field] != metadata.get(field):
            wanted = f"Precondition failed: {words} in precondition: {said[field]}"
            return f"{wanted}, {words} in object meta: {metadata.get(field, '')}"
    if metadata.get("deletionTimestamp"):
        return f"pod {metadata['name']} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {metadata["name"]} is already assigned to node "{spec["nodeName"]}"'
    return f"pod {metadata['name']} has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


async def bind_new(runtime: Runtime, request: Request) -> Response:
    """POST to ``bindings``: the pod is named in the body."""
    body = objects.decode_body(request, "Binding")
    name = _within(body, "Binding", "metadata").get("name")
    if not isinstance(name, str) or not is_dns_subdomain(name):
        raise BadRequest("metadata.name of the binding names the pod")
    request.info = replace(request.info, resource="pods", subresource="binding", name=name)
    return await bind(runtime, request, runtime.catalogs.require(request.info))


async def evict(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST of an ``Eviction``: delete a pod, unless its PodDisruptionBudget says no (``kube.quota.disruptionbudgets``).

    What the budget allows is counted in the commit that deletes, so that evictions together never exceed it.
    """
    body = objects.decode_object(request, kind.part(request.info.subresource))
    writeoptions.check(request)
    _check_named(request, body, "Eviction")
    options = body.get("deleteOptions") or {}
    if options.get("dryRun"):
        request.query = {**request.query, "dryRun": "All"}
    wanted = with_preconditions(options.get("preconditions") or {})
    key = objects.key_of(request.info, kind.resource, request.info.name)
    sent = _sent("policy", "v1", "Eviction", body)
    disrupting = partial(_disrupting, runtime, request)
    await delete_object(runtime, request, kind, key, wanted, sent=sent, disrupting=disrupting)
    return _success()


async def _disrupting(runtime: Runtime, request: Request, pod: Body) -> tuple[Body, Sequence[Operation]]:
    now = objects.timestamp(request.now)
    beside: list[Operation] = []
    if disruptionbudgets.is_guarded(pod):
        place = Range(request.info.cluster, "policy", "poddisruptionbudgets", request.info.namespace)
        budgets = {}
        for stored in (await runtime.store.list(place)).items:
            request.weigh(stored.data)
            budgets[stored.key.name] = stored, orjson.loads(stored.data)
        new = disruptionbudgets.disrupted([body for _, body in budgets.values()], pod, now=now)
        if new is not None:
            stored, old = budgets[new["metadata"]["name"]]
            beside.append(Update(stored.key, stored.revision, _counted(runtime, request, old, new)))
    return disruptionbudgets.evicted(pod, now=now), beside


def _counted(runtime: Runtime, request: Request, old: Body, new: Body) -> Body:
    """A budget in which the server has counted, with the server as the owner of that."""
    place = replace(request.info, group="policy", version="v1", resource="poddisruptionbudgets", subresource="status")
    kind = runtime.catalogs.require(place)
    write = Write(
        manager="kube-apiserver",
        version=kind.api_version,
        now=objects.timestamp(request.now),
        subresource="status",
        reset=reset_of(kind.resource, "status"),
    )
    return managedfields.update(kind.structure, old, new, write)


def _sent(group: str, version: str, kind: str, body: Body) -> Sent:
    """What is posted to a part of an object."""
    typed = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind}
    return Sent(operation=CREATE, group=group, version=version, kind=kind, object={**body, **typed})


def _check_named(request: Request, body: Body, kind: str) -> None:
    """What is posted to a part names the object that it is about. Raises ``BadRequest``."""
    if _within(body, kind, "metadata").get("name") != request.info.name:
        raise BadRequest(f"name in URL does not match name in {kind} object")


def _within(body: Body, kind: str, field: str) -> Body:
    """An object inside a body, empty where there is none. Raises ``BadRequest`` for anything else."""
    value = body.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {objects.json_type(value)} into Go struct field {kind}.{field}"
        raise fieldvalidation.DecodeError(kind, "v1", problem)
    return value


def _success() -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Response(201, orjson.dumps(body))
