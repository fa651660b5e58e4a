"""create, update, patch and apply: the one way from a body to a kept object."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes
from gateway import objects, parameters
from gateway.exchange import Request, Response
from gateway.handlers.reading import find, not_found, revision_of, show
from gateway.kinds import Kind
from gateway.negotiation import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_PATCH,
    content_type,
    require_content_type,
)
from gateway.runtime import Runtime
from kube import fieldvalidation, managedfields
from kube.documents import decode_json, decode_yaml, duplicate_fields
from kube.fieldpaths import SPEC, SPEC_AND_LABELS, STATUS
from kube.managedfields import Write
from kube.names import path_segment
from kube.patches import deep_copy, json_patch, merge_patch, same
from kube.status import AlreadyExists, BadRequest, Cause, Conflict, InternalError, Invalid, StatusError
from kube.strategicmerge import strategic_merge
from kube.traits import LABELS_OUTSIDE_STATUS
from kube.validation.causes import immutable, invalid_object
from store.types import Create, Delete, Key, PreconditionFailed, Stored, Update

Body = dict[str, Any]
Transform = Callable[[Body], Awaitable[Body]]
"""From the current object to the wanted one; called again when somebody else wrote in between."""

_ATTEMPTS: Final = 64
"""Writes that lost against others are tried again: every lost round means that another writer won."""

_NAME_BYTES: Final = 1024
"""Bytes of a name that no rule of its kind bounds, such as a role's."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "selfLink",
    "tenant",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)


async def create(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST to a collection."""
    parameters.check(request)
    body = objects.decode_object(request, kind)
    if body["metadata"].get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    stored = await keep_new(runtime, request, kind, body)
    return show(request, kind, stored, status=201)


async def keep_new(runtime: Runtime, request: Request, kind: Kind, body: Body, *, write: Write | None = None) -> Stored:
    """Admit and keep a new object. Raises ``AlreadyExists``; with ``generateName`` another name is tried."""
    objects.check_place(request.info, kind, body)
    name = objects.new_metadata(request, kind, body)
    check_name(kind, name, body)
    if kind.has_status:
        body.pop("status", None)
    objects.own_place(request.info, kind, body, name)
    generated = bool(body["metadata"].get("generateName"))
    for attempt in range(_ATTEMPTS):
        candidate = deep_copy(body)
        key = objects.key_of(request.info, kind.resource, candidate["metadata"]["name"])
        attributes = attributes_of(request, kind, CREATE, key.name, candidate, None)
        async with runtime.turns.of(key.space, key.namespace):
            extra = await runtime.admission.admit(attributes)
            if write is None:
                candidate = managedfields.update(kind.structure, None, candidate, _write(request, kind))
            request.warnings.extend(attributes.warnings)
            if request.dry_run:
                if await runtime.store.get(key) is not None:
                    raise already_exists(kind, key.name)
                return Stored(key, 0, orjson.dumps(candidate))
            try:
                return (await runtime.store.commit(Create(key, stored_form(candidate, kind)), *extra))[0]
            except PreconditionFailed as failure:
                if failure.key == key:
                    if not generated or attempt > 8:
                        raise already_exists(kind, key.name) from None
                    body["metadata"].pop("name")
                    name = objects.new_metadata(request, kind, body)
                    objects.own_place(request.info, kind, body, name)
                lost = failure.key
        await yield_to(runtime, lost, attempt)
    raise too_busy(kind, name)


async def update(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """PUT of an object or its status."""
    parameters.check(request)
    body = objects.decode_object(request, kind)
    objects.check_place(request.info, kind, body)
    name = body["metadata"].get("name")
    if not name:
        raise BadRequest(
            f"the name of the object ({request.info.name} based on URL) was undeterminable: name must be provided"
        )
    if name != request.info.name:
        raise BadRequest(
            f"the name of the object ({name or ''}) does not match the name on the URL ({request.info.name})"
        )

    async def replaced(_current: Body) -> Body:
        wanted: Body = deep_copy(body)
        return wanted

    stored = await change(runtime, request, kind, replaced)
    return show(request, kind, stored)


async def patch(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """PATCH in one of its four kinds."""
    media = require_content_type(request, *_patches_of(kind))
    parameters.check(request, applies=media == APPLY_PATCH)
    if media == APPLY_PATCH:
        return await apply(runtime, request, kind)
    document = decode_json(request.body)
    if document is None:
        document = [] if media == JSON_PATCH else {}
    if media != JSON_PATCH and not isinstance(document, dict):
        raise BadRequest("error decoding patch: the patch is not an object")

    async def patched(current: Body) -> Body:
        if media == JSON_PATCH:
            result: Body = json_patch(current, document)
        elif media == MERGE_PATCH:
            result = merge_patch(current, document)
        else:
            result = strategic_merge(kind.structure, current, document)
            result["apiVersion"], result["kind"] = current["apiVersion"], current["kind"]
        return _checked(request, kind, current, result)

    stored = await change(runtime, request, kind, patched)
    return show(request, kind, stored)


def _checked(request: Request, kind: Kind, current: Body, result: Body) -> Body:
    shown = orjson.dumps(result).decode()
    duplicates = []
    if objects.validation_mode(request) == "Strict" and content_type(request) != JSON_PATCH:
        duplicates = duplicate_fields(request.body)
    try:
        objects.check_kind(result, kind)
        result = objects.fit(request, kind, result, duplicates)
    except BadRequest as error:
        message = f"Invalid value: {orjson.dumps(shown).decode()}: {error.message}"
        cause = Cause("FieldValueInvalid", message, "patch")
        raise Invalid(f' "" is invalid: patch: {message}', causes=[cause]) from None
    name = result["metadata"].get("name")
    if not name:
        raise BadRequest(
            f"the name of the object ({request.info.name} based on URL) was undeterminable: name must be provided"
        )
    if name != request.info.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({request.info.name})")
    uid = result["metadata"].get("uid")
    if uid and uid != current["metadata"].get("uid"):
        raise invalid_object(kind.resource.group, kind.name, name, [immutable("metadata.uid", uid)])
    tenant = current["metadata"].get("tenant")
    objects.check_place(request.info, kind, result)
    if tenant and result["metadata"] is current["metadata"]:
        # What a merge patch does not touch is still the current object's own, and keeps its tenant (TS2).
        current["metadata"]["tenant"] = tenant
    return result


async def apply(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Server-side apply: PATCH that creates what is missing (KEP-555)."""
    force = request.query.get("force", "").lower() in ("true", "1")
    applied = decode_yaml(request.body)
    if not isinstance(applied, dict):
        raise BadRequest("error decoding YAML: the body is not an object")
    objects.check_kind(applied, kind)
    _check_declared(kind, applied)
    applied = objects.fit(request, kind, applied)
    objects.check_place(request.info, kind, applied)
    applied["metadata"].setdefault("name", request.info.name)
    if applied["metadata"]["name"] != request.info.name:
        raise BadRequest(
            f"the name of the object ({applied['metadata']['name']}) does not match the name on the URL "
            f"({request.info.name})"
        )
    write = _write(request, kind)

    async def merged(current: Body) -> Body:
        return managedfields.apply(kind.structure, current, applied, write, force=force)

    key = objects.key_of(request.info, kind.resource, request.info.name)
    for _ in range(4):
        if await runtime.store.get(key) is None:
            if request.info.subresource:
                raise not_found(kind, key.name)
            created = managedfields.apply(kind.structure, None, applied, write, force=force)
            try:
                return show(request, kind, await keep_new(runtime, request, kind, created, write=write), status=201)
            except AlreadyExists:
                continue
        return show(request, kind, await change(runtime, request, kind, merged, managed=True))
    raise too_busy(kind, key.name)


def _check_declared(kind: Kind, applied: Body) -> None:
    """An applied field must be one of the kind's, whatever ``fieldValidation`` says: nobody could own it."""
    if kind.schema is None or kind.resource.custom:
        return
    unknown = fieldvalidation.decode_fields(applied, kind.schema, kind=kind.name, version=kind.version).unknown
    if unknown:
        metadata = applied["metadata"]
        place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        typed = f"{kind.resource.group}/{kind.version}" if kind.resource.group else f"/{kind.version}"
        raise InternalError(
            f"failed to create typed patch object ({place}; {typed}, Kind={kind.name}): "
            f".{unknown[0]}: field not declared in schema",
            reason="",
        )


async def change(
    runtime: Runtime, request: Request, kind: Kind, transform: Transform, *, managed: bool = False
) -> Stored:
    """Bring an existing object into the state that ``transform`` wants, with optimistic concurrency.

    With ``managed`` the transform has already settled the managed fields. Raises ``NotFound``, ``Conflict``, and
    whatever admission says.
    """
    info = request.info
    key = objects.key_of(info, kind.resource, info.name)
    for attempt in range(_ATTEMPTS):
        current = await find(runtime, key, kind)
        old = objects.converted(orjson.loads(current.data), kind)
        new = await transform(old)
        _check_preconditions(kind, key.name, current, old, new)
        inherit(kind, info.subresource, old, new)
        attributes = attributes_of(request, kind, UPDATE, key.name, new, old)
        async with runtime.turns.of(key.space, key.namespace):
            extra = await runtime.admission.admit(attributes)
            if not managed:
                new = managedfields.update(kind.structure, old, new, _write(request, kind))
            if unchanged(old, new):
                return current
            count_generation(kind, old, new)
            if request.dry_run:
                return Stored(key, current.revision, orjson.dumps(new))
            kept = stored_form(new, kind)
            try:
                if finished(new):
                    return (await runtime.store.commit(Delete(key, current.revision, kept), *extra))[0]
                return (await runtime.store.commit(Update(key, current.revision, kept), *extra))[0]
            except PreconditionFailed as failure:
                lost = failure.key
        await yield_to(runtime, lost, attempt)
    raise too_busy(kind, key.name)


def inherit(kind: Kind, subresource: str, old: Body, new: Body) -> None:
    """Take over from the current object what this endpoint does not write."""
    if subresource and subresource != "finalize":
        field = "status" if subresource in ("status", "approval") else "spec"
        wanted, metadata_wanted = new.get(field), new["metadata"]
        managed = new["metadata"].get("managedFields")
        version = new["metadata"].get("resourceVersion")
        new.clear()
        new.update(deep_copy(old))
        if wanted is None:
            new.pop(field, None)
        else:
            new[field] = wanted
        if subresource == "status" and not kind.resource.custom:
            new["metadata"] = _beside_status(kind, old["metadata"], metadata_wanted)
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        if version:
            new["metadata"]["resourceVersion"] = version
    elif kind.has_status:
        if "status" in old:
            new["status"] = deep_copy(old["status"])
        else:
            new.pop("status", None)
    if kind.resource.storage_key == ("", "namespaces") and subresource != "finalize":
        # Only its controller takes them off: else the namespace would go before what is in it.
        new["spec"] = deep_copy(old.get("spec") or {})
    metadata, before = new["metadata"], old["metadata"]
    for field in _SERVER_OWNED:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    if "generateName" in before:
        metadata.setdefault("generateName", before["generateName"])
    if before.get("deletionTimestamp"):
        added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            raise Invalid(
                f'{kind.name}{_of_group(kind)} "{before["name"]}" is invalid: metadata.finalizers: Forbidden: '
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"{sorted(added)!r}",
                group=kind.resource.group,
                kind=kind.name,
                name=before["name"],
                causes=[Cause("FieldValueForbidden", "Forbidden: no new finalizers", "metadata.finalizers")],
            )


def _beside_status(kind: Kind, before: Body, wanted: Body) -> Body:
    """Metadata after a write to ``/status``: as asked, but for what only the object's own endpoint changes."""
    if kind.resource.storage_key in LABELS_OUTSIDE_STATUS:
        kept = {"labels": before["labels"]} if "labels" in before else {}
        wanted = {name: value for name, value in wanted.items() if name != "labels"} | kept
    copied: Body = deep_copy(wanted)
    return copied


def count_generation(kind: Kind, old: Body, new: Body) -> None:
    """Bump ``metadata.generation`` when something other than metadata and status changed."""
    if not objects.counts_generations(kind):
        return
    aside = {"metadata", "status"} if kind.has_status or not kind.resource.custom else {"metadata"}
    before = {name: value for name, value in old.items() if name not in aside}
    after = {name: value for name, value in new.items() if name not in aside}
    annotated = kind.resource.storage_key == ("apps", "deployments") and not same(
        old["metadata"].get("annotations"), new["metadata"].get("annotations")
    )
    if annotated or not same(before, after):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def unchanged(old: Body, new: Body) -> bool:
    """Whether a write would change nothing but the times of managed fields."""
    return same(_bare(old), _bare(new))


def _bare(body: Body) -> Body:
    metadata = dict(body["metadata"])
    entries = metadata.pop("managedFields", None) or ()
    metadata["managedFields"] = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    return {**body, "metadata": metadata}


def finished(body: Body) -> bool:
    """Whether a deleted object has nothing left to wait for."""
    metadata = body["metadata"]
    waits = bool(metadata.get("finalizers")) or (
        body.get("kind") == "Namespace" and bool((body.get("spec") or {}).get("finalizers"))
    )
    return bool(metadata.get("deletionTimestamp")) and not waits


def _check_preconditions(kind: Kind, name: str, current: Stored, old: Body, new: Body) -> None:
    version = new["metadata"].get("resourceVersion")
    if version and revision_of(str(version)) != current.revision:
        raise modified(kind, name)
    uid = new["metadata"].get("uid")
    if uid and uid != old["metadata"].get("uid"):
        raise Conflict(
            f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": Precondition failed: '
            f"UID in precondition: {uid}, UID in object meta: {old['metadata'].get('uid')}",
            group=kind.resource.group,
            kind=kind.resource.plural,
            name=name,
        )


def modified(kind: Kind, name: str) -> Conflict:
    """The 409 that tells a client to read again."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
        group=kind.resource.group,
        kind=kind.resource.plural,
        name=name,
    )


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """The 409 of a taken name."""
    resource = kind.resource
    return AlreadyExists(
        f'{resource.qualified_name} "{name}" already exists', group=resource.group, kind=resource.plural, name=name
    )


def too_busy(kind: Kind, name: str) -> StatusError:
    """The answer when other writers won every round."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": too many concurrent changes, '
        "please try again",
        group=kind.resource.group,
        kind=kind.resource.plural,
        name=name,
    )


def check_name(kind: Kind, name: str, body: Body) -> None:
    """A new object has a name that can stand in a path. Raises ``Invalid``."""
    if not name:
        reason, message = "FieldValueRequired", "Required value: name or generateName is required"
    else:
        problems = path_segment(name) if isinstance(name, str) else ["must be a string"]
        if not problems and (len(name.encode()) > _NAME_BYTES or _CONTROL.search(name)):
            problems = [f"must be no more than {_NAME_BYTES} bytes, without control characters"]
        if not problems:
            return
        reason, message = "FieldValueInvalid", f'Invalid value: "{name}": {"; ".join(problems)}'
    shown = name or body["metadata"].get("generateName") or ""
    raise Invalid(
        f'{kind.name}{_of_group(kind)} "{shown}" is invalid: metadata.name: {message}',
        group=kind.resource.group,
        kind=kind.name,
        name=shown,
        causes=[Cause(reason, message, "metadata.name")],
    )


def stored_form(body: Body, kind: Kind) -> Body:
    """The object as it is kept: in the storage version, whichever version the client speaks."""
    if kind.is_stored_version:
        return body
    resource = kind.resource
    group = resource.group if resource.storage_group is None else resource.storage_group
    version = resource.storage_version.name
    return {**body, "apiVersion": f"{group}/{version}" if group else version}


def _of_group(kind: Kind) -> str:
    return f".{kind.resource.group}" if kind.resource.group else ""


def _patches_of(kind: Kind) -> tuple[str, ...]:
    if kind.resource.custom:
        return tuple(media for media in PATCHES if media != STRATEGIC_PATCH)
    return PATCHES


def _write(request: Request, kind: Kind) -> Write:
    manager = request.query.get("fieldManager") or managedfields.manager_from_user_agent(request.user_agent)
    subresource = request.info.subresource
    reset = STATUS if kind.has_status else {}
    if subresource == "status":
        reset = SPEC_AND_LABELS if kind.resource.storage_key in LABELS_OUTSIDE_STATUS else SPEC
    return Write(
        manager=manager,
        version=kind.api_version,
        now=objects.timestamp(request.now),
        subresource=subresource,
        reset=reset,
    )


def attributes_of(
    request: Request, kind: Kind, operation: str, name: str, new: Body | None, old: Body | None
) -> Attributes:
    """The write as the admission plugins see it."""
    info = request.info
    return Attributes(
        principal=request.principal,
        info=info,
        resource=kind.resource,
        schema=kind.schema,
        operation=operation,
        namespace=info.namespace if kind.resource.namespaced else "",
        name=name,
        object=new,
        old=old,
        now=request.now,
        dry_run=request.dry_run,
    )


async def yield_to(runtime: Runtime, lost: Key, attempt: int) -> None:
    """Let the cache learn of the write that won, then step aside for a moment."""
    await runtime.store.get(lost)
    if attempt > 2:
        await asyncio.sleep(random.random() * 0.002 * min(attempt, 10))  # noqa: S311 - jitter
