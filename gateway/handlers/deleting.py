"""delete and deletecollection: preconditions, grace, propagation, finalizers, dry run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from access.admission.base import DELETE
from gateway import objects
from gateway.exchange import Request, Response
from gateway.handlers.reading import find, read_list, show
from gateway.handlers.writing import attributes_of, finished, modified, stored_form, too_busy, yield_to
from gateway.kinds import Kind
from gateway.negotiation import require_content_type
from gateway.parameters import invalid_options, unsupported
from gateway.runtime import Runtime
from gateway.selection import selection
from kube.crds import CRDS, terminating
from kube.patches import deep_copy
from kube.status import BadRequest, Conflict, Invalid, NotFound, StatusError
from kube.traits import SHOWN_WHEN_DELETED
from kube.validation.causes import invalid
from store.types import Delete, Key, PreconditionFailed, Stored, Update

_ATTEMPTS: Final = 64
ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_ORPHANING: Final = frozenset({("v1", "ReplicationController"), ("batch/v1", "Job")})
"""Kinds whose dependents stay unless something else is asked: from before there was a choice."""

_POLICIES: Final = ("Orphan", "Background", "Foreground")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete (meta/v1 DeleteOptions)."""

    uid: str = ""
    revision: str = ""
    propagation: str = ""


def read_options(request: Request) -> DeleteOptions:
    """The options from the body and the query. Raises ``BadRequest`` and ``Invalid``."""
    body: dict[str, Any] = {}
    if request.body:
        value = objects.decode(require_content_type(request, *objects.MEDIA_TYPES), request.body)
        if not isinstance(value, dict):
            raise BadRequest("the body is not DeleteOptions")
        body = value
    if body.get("kind") not in (None, "", "DeleteOptions"):
        raise BadRequest("the body is not DeleteOptions")
    preconditions = body.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise BadRequest("preconditions is not an object")
    grace = body.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    if grace is not None and not (isinstance(grace, int) or (isinstance(grace, str) and grace.lstrip("-").isdigit())):
        raise BadRequest("gracePeriodSeconds is not a number")
    dry_run = body.get("dryRun")
    if dry_run is not None and not isinstance(dry_run, list):
        given = objects.json_type(dry_run)
        text = f"json: cannot unmarshal {given} into Go struct field DeleteOptions.dryRun of type []string"
        raise BadRequest(text, reason="")
    if dry_run and not request.dry_run:
        if dry_run != ["All"]:
            raise _unsupported("dryRun", dry_run, "All")
        request.query = {**request.query, "dryRun": "All"}
    if request.query.get("dryRun", "All") != "All":
        raise _unsupported("dryRun", [request.query["dryRun"]], "All")
    if "orphanDependents" in body and not isinstance(body["orphanDependents"], bool | None):
        given = objects.json_type(body["orphanDependents"])
        text = f"json: cannot unmarshal {given} into Go struct field DeleteOptions.orphanDependents of type bool"
        raise BadRequest(text, reason="")
    propagation = body.get("propagationPolicy") or request.query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents", {"true": True, "false": False}.get(request.query.get("orphanDependents", "")))
    if orphan is not None and propagation:
        text = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", [invalid("propagationPolicy", propagation, text)])
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    if propagation and propagation not in _POLICIES:
        raise _unsupported("propagationPolicy", propagation, "Background", "Foreground", "Orphan")
    return DeleteOptions(
        str(preconditions.get("uid") or ""), str(preconditions.get("resourceVersion") or ""), propagation
    )


def _unsupported(field: str, value: Any, *supported: str) -> Invalid:
    return invalid_options("DeleteOptions", [unsupported(field, value, supported)])


async def delete(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """DELETE of one object: a ``Status`` when it is gone, the object when something still holds it."""
    options = read_options(request)
    if kind.name == "Job" and not options.propagation:
        request.warnings.append(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
            "them or set propagationPolicy=Orphan to suppress this warning"
        )
    key = objects.key_of(request.info, kind.resource, request.info.name)
    gone, body = await remove(runtime, request, kind, key, options)
    if gone and kind.resource.storage_key in SHOWN_WHEN_DELETED and kind.name != "Pod":
        # What never waited was never marked.
        metadata = {name: value for name, value in body["metadata"].items() if not name.startswith("deletion")}
        return show(request, kind, Stored(key, 0, orjson.dumps({**body, "metadata": metadata})))
    if not gone or kind.name == "Pod":
        return show(request, kind, Stored(key, int(body["metadata"]["resourceVersion"]), orjson.dumps(body)))
    resource = kind.resource
    details = {"name": key.name, "kind": resource.plural, "uid": body["metadata"].get("uid", "")}
    if resource.group:
        details["group"] = resource.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return Response(200, orjson.dumps(status))


async def delete_collection(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """DELETE of a collection. What was deleted is not shown: the verb gives no right to read."""
    options = read_options(request)
    chosen = selection(request, kind)
    items, _, _, _ = await read_list(runtime, request, kind, chosen)
    for item in items:
        try:
            await remove(runtime, request, kind, item.key, options)
        except NotFound:
            continue
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Response(200, orjson.dumps(status))


async def remove(
    runtime: Runtime, request: Request, kind: Kind, key: Key, options: DeleteOptions
) -> tuple[bool, dict[str, Any]]:
    """Delete one object, or mark it when finalizers hold it. Returns whether it is gone, and its last state."""
    for attempt in range(_ATTEMPTS):
        current = await find(runtime, key, kind)
        old = orjson.loads(current.data)
        _check_preconditions(kind, key, options, old)
        new = deep_copy(old)
        metadata = new["metadata"]
        _propagate(new, options)
        attributes = attributes_of(request, kind, DELETE, key.name, None, old)
        attributes.namespace = key.namespace
        async with runtime.turns.of(key.space, key.namespace):
            extra = await runtime.admission.admit(attributes)
            if "deletionTimestamp" not in metadata:
                metadata["deletionTimestamp"] = objects.timestamp(request.now)
                if (key.group, key.resource) != ("", "namespaces"):
                    metadata["deletionGracePeriodSeconds"] = 0
                waits = not finished(new) and (key.group, key.resource) != CRDS
                if metadata.get("generation") and (waits or kind.name == "Pod"):
                    metadata["generation"] += 1
                if key.resource == "namespaces" and not key.group:
                    new.setdefault("status", {})["phase"] = "Terminating"
                elif (key.group, key.resource) == CRDS:
                    new = terminating(new, now=metadata["deletionTimestamp"])
            gone = finished(new)
            if request.dry_run or (not gone and new == old):
                return gone, new
            kept = stored_form(new, kind)
            try:
                if gone:
                    await runtime.store.commit(Delete(key, current.revision, kept), *extra)
                    return True, new
                # What still stands counts against quotas until it is gone.
                stored = (await runtime.store.commit(Update(key, current.revision, kept)))[0]
                return False, orjson.loads(stored.data)
            except PreconditionFailed as failure:
                lost = failure.key
        await yield_to(runtime, lost, attempt)
    raise too_busy(kind, key.name)


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
    metadata = body["metadata"]
    if options.uid and options.uid != metadata.get("uid"):
        raise _precondition(kind, key, "UID", options.uid, str(metadata.get("uid")))
    if options.revision and options.revision != metadata.get("resourceVersion"):
        raise _precondition(kind, key, "ResourceVersion", options.revision, str(metadata.get("resourceVersion")))


def _precondition(kind: Kind, key: Key, what: str, wanted: str, found: str) -> StatusError:
    if not wanted:
        return modified(kind, key.name)
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{key.name}": Precondition failed: '
        f"{what} in precondition: {wanted}, {what} in object meta: {found}",
        group=kind.resource.group,
        kind=kind.resource.plural,
        name=key.name,
    )
