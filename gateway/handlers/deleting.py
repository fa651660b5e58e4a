"""delete and deletecollection: preconditions, grace, propagation, finalizers, dry run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import orjson

from access.admission.base import DELETE, Sent
from access.authorization.workspaces.state import closing
from gateway.filters.permission import authorize
from gateway.handlers import tenants
from gateway.handlers.guaranteedupdate import guaranteed_update, require_newest
from gateway.handlers.placednamespaces import namespaceorders
from gateway.handlers.reading import read_list, show, show_list
from gateway.handlers.writing import attributes_of, stored_form
from gateway.http.messages import Request, Response
from gateway.http.negotiation import negotiate, preferred, require_content_type, respond
from gateway.process.runtime import Runtime
from gateway.resources import bootstrappolicy, objects
from gateway.resources.kinds import Kind
from gateway.resources.selection import require_selected, selection
from gateway.resources.writeoptions import flag, invalid_options, not_a_number, of_operation, unsupported
from gateway.upstream.placements import cluster_of, workspace_of
from kube.customresources.endings import ending
from kube.kinds.reststrategies import RETURN_DELETED_OBJECT
from kube.objects.patches import deep_copy
from kube.objects.strategies import finished
from kube.requests.fielderrors import invalid
from kube.requests.status import BadRequest, Conflict, NotFound
from kube.workspaces.types import WORKSPACES
from store.types import Check, Delete, Key, Operation, Stored, Update

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_ORPHANING: Final = frozenset({("v1", "ReplicationController"), ("batch/v1", "Job")})
"""Kinds whose dependents stay unless something else is asked: from before there was a choice."""

_POLICIES: Final = ("Orphan", "Background", "Foreground")
_TYPES: Final[dict[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}
_PRECONDITIONS: Final = {"uid": "types.UID", "resourceVersion": "string"}
_INT64: Final = 2**63


Disrupting = Callable[[dict[str, Any]], Awaitable[tuple[dict[str, Any], Sequence[Operation]]]]
"""From an object that is to be deleted to what it is told before, and to what is written with its deletion."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete (meta/v1 DeleteOptions). ``cascades`` says that ``orphanDependents`` was refused in so many words."""

    uid: str | None = None
    revision: str | None = None
    propagation: str = ""
    cascades: bool = False


def read_options(request: Request) -> DeleteOptions:
    """The options from the body or, where there is none, from the query; either says that it is a dry run.

    Admission is told of them as ``request.deletion``. Raises ``BadRequest``, and ``Invalid`` with whatever is wrong with them.
    """
    given = _options_sent(request) if request.body else _options_asked(request.query)
    propagation, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    dry_run, causes = list(given.get("dryRun") or ()), []
    if "dryRun" in request.query:
        dry_run.append(request.query["dryRun"])
    if orphan is not None and propagation is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid("propagationPolicy", propagation, text))
    if propagation is not None and propagation not in _POLICIES:
        causes.append(unsupported("propagationPolicy", propagation, ("Foreground", "Background", "Orphan", "nil")))
    if any(each != "All" for each in dry_run):
        causes.append(unsupported("dryRun", dry_run, ("All",)))
    if causes:
        raise invalid_options("DeleteOptions", causes)
    request.deletion = {name: value for name in _TYPES if (value := given.get(name)) is not None}
    if dry_run:
        request.query = {**request.query, "dryRun": "All"}
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return replace(with_preconditions(given.get("preconditions") or {}, propagation or ""), cascades=orphan is False)


def _options_sent(request: Request) -> dict[str, Any]:
    media = require_content_type(request, *objects.MEDIA_TYPES)
    body = objects.decode(request, media)
    if not isinstance(body, dict | None):
        raise BadRequest(objects.not_an_object(body))
    body = body or {}
    if body.get("kind") not in (None, "", "DeleteOptions"):
        raise BadRequest(objects.unregistered(str(body["kind"]), str(body.get("apiVersion", ""))))
    for field, (python, go) in _TYPES.items():
        _require_type(f"DeleteOptions.{field}", body.get(field), python, go)
    for each in body.get("dryRun") or ():
        _require_type("DeleteOptions.dryRun", each, str, "string")
    for field, go in _PRECONDITIONS.items():
        _require_type(f"Preconditions.preconditions.{field}", (body.get("preconditions") or {}).get(field), str, go)
    return body


def _require_type(field: str, given: Any, python: type, go: str) -> None:
    fits = not isinstance(given, int) or -_INT64 <= given < _INT64
    if given is None or (type(given) is python and fits):
        return
    kind = objects.json_type(given)
    if python is int and kind == "number":
        kind = f"number {given}"
    raise BadRequest(f"json: cannot unmarshal {kind} into Go struct field {field} of type {go}")


def _options_asked(query: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {name: query[name] for name in ("propagationPolicy",) if name in query}
    grace = query.get("gracePeriodSeconds")
    if grace is not None:
        number = grace.removeprefix("-")
        if not (number.isascii() and number.isdigit() and len(number) < 20 and -_INT64 <= int(grace) < _INT64):
            raise not_a_number(grace)
        given["gracePeriodSeconds"] = int(grace)
    if "orphanDependents" in query:
        given["orphanDependents"] = flag(query["orphanDependents"])
    return given


def with_preconditions(preconditions: dict[str, Any], propagation: str = "") -> DeleteOptions:
    """Options from their decoded ``preconditions``."""
    uid, revision = preconditions.get("uid"), preconditions.get("resourceVersion")
    return DeleteOptions(None if uid is None else str(uid), None if revision is None else str(revision), propagation)


async def delete(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """DELETE of one object: a ``Status`` when it is gone, the object when something still holds it.

    Kubernetes says 202 of what is still there to those alone who ask for it with ``orphanDependents: false``.
    """
    options = read_options(request)
    if kind.name == "Job" and not options.propagation:
        request.warnings.append(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
            "them or set propagationPolicy=Orphan to suppress this warning"
        )
    key = objects.key_of(request.info, kind.resource, request.info.name)
    gone, body = await delete_object(runtime, request, kind, key, options)
    if not gone or kind.resource.storage_key in RETURN_DELETED_OBJECT:
        left = Stored(key, int(body["metadata"]["resourceVersion"]), orjson.dumps(body))
        return await show(request, kind, left, status=202 if options.cascades and not gone else 200)
    resource = kind.resource
    details = {"name": key.name, "kind": resource.plural, "uid": body["metadata"].get("uid", "")}
    if resource.group:
        details["group"] = resource.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond(request, status, accept=preferred(request.headers.get(b"accept", b"")))


async def delete_collection(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """DELETE of a collection. What was in it is shown, as it was, to those who may list it."""
    options, accept = read_options(request), negotiate(request)
    chosen = selection(request, kind)
    page = await read_list(runtime, request, kind, chosen)
    for item in page.items:
        request.weigh(item.data)
    for item in page.items:
        try:
            await delete_object(runtime, request, kind, item.key, options)
        except NotFound:
            continue
    if not (await authorize(runtime, request, "list")).allowed:
        return respond(request, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
    return await show_list(request, kind, page, accept)


async def delete_object(
    runtime: Runtime,
    request: Request,
    kind: Kind,
    key: Key,
    options: DeleteOptions,
    *,
    sent: Sent | None = None,
    disrupting: Disrupting | None = None,
) -> tuple[bool, dict[str, Any]]:
    """Delete one object, or mark it when finalizers hold it. Returns whether it is gone, and its last state.

    ``sent`` is what a request that only comes to a deletion carries, ``disrupting`` what is asked and written before it.
    """

    async def once(current: Stored) -> tuple[bool, dict[str, Any]]:
        require_selected(request, kind, current)
        bootstrappolicy.require_kept(current, kind.resource.qualified_name)
        request.weigh(current.data)
        old = orjson.loads(current.data)
        _check_preconditions(kind, key, options, old)
        new = deep_copy(old)
        _propagate(new, options)
        attributes = attributes_of(request, kind, DELETE, key.name, None, old)
        attributes.namespace = key.namespace
        if sent is not None:
            attributes.sent, attributes.options = sent, partial(of_operation, request, sent.operation)
        async with runtime.write_locks.of_quotas(key):
            extra = await runtime.admission.admit(attributes)
            new, beside = await disrupting(new) if disrupting is not None else (new, ())
            new = ending(key[1:3], new, now=objects.timestamp(request.now))
            gone = finished(new)
            if gone and kind.name != "Pod" and "deletionTimestamp" not in old["metadata"]:
                # What never waited was never marked.
                new = old
            placed = key[1:3] == ("", "namespaces") and cluster_of(old) and workspace_of(old)
            is_tenant = tenants.are(kind)
            if (request.dry_run and not (placed or is_tenant)) or (not gone and new == old):
                await require_newest(runtime, key, current)
                return gone, new
            if placed:
                ended = await namespaceorders.end(runtime, request, old)
                if request.dry_run:
                    return gone, new
                return ended is None, orjson.loads(ended.data) if ended is not None else old
            kept = stored_form(new, kind)
            # What still stands counts against quotas until it is gone; what has to hold holds for the mark as well.
            holds = [held for held in extra if isinstance(held, Check)]
            if is_tenant:
                ended = await tenants.end(runtime, request, Update(key, current.revision, kept), holds)
                return False, orjson.loads(ended.data)
            if gone:
                await runtime.store.commit(Delete(key, current.revision, kept), *extra, *beside)
                return True, new
            # A workspace is closed as soon as it is deleted, however long it takes to empty it.
            doors = await closing(runtime.store, f"{key.space}:{key.name}") if key[1:3] == WORKSPACES else ()
            marked = Update(key, current.revision, kept)
            stored = (await runtime.store.commit(marked, *doors, *holds, *beside))[0]
            return False, orjson.loads(stored.data)

    return await guaranteed_update(runtime, kind, key, once)


def _propagate(body: dict[str, Any], options: DeleteOptions) -> None:
    """Turn the propagation policy into the finalizers that the garbage collector waits on."""
    metadata = body["metadata"]
    finalizers = [name for name in metadata.get("finalizers") or () if name not in (ORPHAN, FOREGROUND)]
    if options.propagation == "Orphan":
        finalizers.append(ORPHAN)
    elif options.propagation == "Foreground":
        finalizers.append(FOREGROUND)
    elif not options.propagation:
        finalizers = list(metadata.get("finalizers") or ())
        waits = {ORPHAN, FOREGROUND}.intersection(finalizers)
        if (body["apiVersion"], body["kind"]) in _ORPHANING and not waits:
            finalizers.append(ORPHAN)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _check_preconditions(kind: Kind, key: Key, options: DeleteOptions, body: dict[str, Any]) -> None:
    metadata, group = body["metadata"], kind.resource.group
    for what, wanted, found, why in (
        ("UID", options.uid, metadata.get("uid"), "deleted and then recreated"),
        ("ResourceVersion", options.revision, metadata.get("resourceVersion"), "modified"),
    ):
        if wanted is not None and wanted != found:
            raise Conflict(
                f'Operation cannot be fulfilled on {kind.name}{"." if group else ""}{group} "{key.name}": '
                f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
                f"The object might have been {why}",
                group=group,
                kind=kind.name,
                name=key.name,
            )
