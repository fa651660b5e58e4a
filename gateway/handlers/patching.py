"""patch and apply: what a body of changes makes of an object."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import orjson

from gateway.filters import permission
from gateway.handlers.guaranteedupdate import is_missing, too_many_conflicts
from gateway.handlers.reading import not_found, show
from gateway.handlers.writing import Body, check_name_of, create_object, update_object, write_of
from gateway.http.messages import Request, Response
from gateway.http.negotiation import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_PATCH,
    content_type,
    require_content_type,
    require_patch_type,
)
from gateway.process.runtime import Runtime
from gateway.resources import objects, writeoptions
from gateway.resources.kinds import Kind
from kube.objects import fieldvalidation, managedfields
from kube.objects.patches import json_patch, merge_patch, not_a
from kube.objects.strategicmerge import go_text, strategic_merge
from kube.requests.decoding import decode_json, read_yaml
from kube.requests.status import AlreadyExists, BadRequest, Cause, Conflict, InternalError, Invalid, NotFound

_COPIES: Final = 4
"""Copies in one JSON patch of a small object whose result is still small."""

_CUSTOM: Final = tuple(media for media in PATCHES if media != STRATEGIC_PATCH)


async def patch(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """PATCH in one of its four kinds."""
    custom = kind.resource.custom
    media = require_content_type(request, *_CUSTOM) if custom else require_patch_type(request, *PATCHES)
    writeoptions.check(request, applies=media == APPLY_PATCH)
    if media == APPLY_PATCH:
        return await apply(runtime, request, kind)
    document = decode_patch(request, media)

    def merged(current: Body) -> Body:
        if media == JSON_PATCH:
            # Each copy may double what is there.
            request.require_light(heavy=sum(map(_copies, document)) > _COPIES if isinstance(document, list) else False)
            result: Body = json_patch(current, document)
        elif media == MERGE_PATCH:
            result = merge_patch(current, document)
        else:
            result = strategic_merge(kind.structure, current, document)
            result["apiVersion"], result["kind"] = current["apiVersion"], current["kind"]
        return checked(request, kind, result, document)

    stored = await update_object(runtime, request, kind, merged)
    return await show(request, kind, stored)


def _copies(operation: Any) -> bool:
    return isinstance(operation, dict) and operation.get("op") == "copy"


def decode_patch(request: Request, media: str) -> Any:
    """The value of a patch other than apply. Raises ``BadRequest`` in kube-apiserver's words."""
    try:
        return decode_json(request.body)
    except BadRequest as error:
        prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
        raise BadRequest(f"{prefix}{error.message}") from None


def decode_applied(request: Request, group_version: str, kind: str) -> Body:
    """The configuration that is applied, of this kind. Raises ``BadRequest`` in kube-apiserver's words."""
    try:
        applied, twice = request.counted(partial(read_yaml, request.body))
    except BadRequest as error:
        raise BadRequest(f"error decoding YAML: error converting YAML to JSON: {error.message}") from None
    if not isinstance(applied, dict | None):
        problem = not_a(applied, "map[string]interface {}")
        raise BadRequest(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {problem}")
    applied = applied or {}
    said = [value if isinstance(value := applied.get(field), str) else "" for field in ("apiVersion", "kind")]
    if said != [group_version, kind]:
        raise BadRequest(f"invalid object type: {said[0] if '/' in said[0] else '/' + said[0]}, Kind={said[1]}")
    mode = objects.validation_mode(request)
    if twice and mode == "Strict":
        lines = "".join(f"\n  {each}" for each in twice)
        raise BadRequest(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{lines}")
    if mode == "Warn":
        request.warnings.extend(twice)
    return applied


def checked(request: Request, kind: Kind, result: Body, document: Any) -> Body:
    """What a patch made of an object, fit to be kept. Raises ``Invalid`` and ``BadRequest`` in kube-apiserver's words."""
    patched, media = dict(result), content_type(request)
    repeated = objects.repeated(request, document)
    if media == JSON_PATCH:
        repeated = [f"json patch {text}" for text in repeated]
    try:
        converted = media == STRATEGIC_PATCH
        objects.check_patched_kind(kind, result, converted=converted)
        result = objects.decode_fields(request, kind, result, repeated, converted=converted)
    except fieldvalidation.DecodeError as error:
        shown = go_text(document) if media == STRATEGIC_PATCH else orjson.dumps(patched).decode()
        message = f"Invalid value: {orjson.dumps(shown).decode()}: {error.problem}"
        cause = Cause("FieldValueInvalid", message, "patch")
        raise Invalid(f' "" is invalid: patch: {message}', causes=[cause]) from None
    check_name_of(request, result["metadata"].get("name"))
    # What a patch does not touch is still the current object's own, and must keep its tenant (TS2).
    result = {**result, "metadata": dict(result["metadata"])}
    objects.check_namespace_and_name(request.info, kind, result)
    return result


async def apply(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Server-side apply: PATCH that creates what is missing (KEP-555)."""
    force = forced(request)
    write = write_of(request, kind)
    applied = decode_applied(request, kind.api_version, kind.name)
    managedfields.check_applied(kind.structure, applied, write)
    if applied.get("metadata") is None:
        applied["metadata"] = {}
    _check_declared(kind, applied)
    given, applied = applied, objects.decode_fields(request, kind, applied)
    schema = None if kind.resource.custom else kind.schema
    configured = applied
    if schema is not None:
        configured = fieldvalidation.with_zeros(given, applied, schema)
    objects.check_namespace_and_name(request.info, kind, applied)
    named = applied["metadata"].get("name")
    if named:
        check_name_of(request, named)

    def settled(current: Body | None) -> Body:
        result = managedfields.apply(kind.structure, current, configured, write, force=force)
        if configured is applied or schema is None:
            return result
        kept: Body = fieldvalidation.decode_fields(result, schema, kind=kind.name, version=kind.version).value
        return kept

    key = objects.key_of(request.info, kind.resource, request.info.name)
    for _ in range(4):
        if await is_missing(runtime, key):
            if request.info.subresource:
                raise not_found(kind, key.name)
            await permission.require(runtime, request, "create")
            _check_new(request, kind, applied)
            created = settled(None)
            try:
                return await show(
                    request, kind, await create_object(runtime, request, kind, created, write=write), status=201
                )
            except AlreadyExists:
                continue
        try:
            return await show(request, kind, await update_object(runtime, request, kind, settled, managed=True))
        except NotFound:
            if request.info.subresource:
                raise
    raise too_many_conflicts(kind, key.name)


def forced(request: Request) -> bool:
    """Whether an apply may take fields from others."""
    return writeoptions.flag(request.query.get("force"))


def _check_new(request: Request, kind: Kind, applied: Body) -> None:
    """What an apply that creates must say, and must not. Raises ``Conflict`` and ``BadRequest``."""
    metadata, resource = applied["metadata"], kind.resource
    if metadata.get("uid"):
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.qualified_name} "{request.info.name}": uid mismatch: the '
            f"provided object specified uid {metadata['uid']}, and no existing object was found",
            group=resource.group,
            kind=resource.plural,
            name=request.info.name,
        )
    check_name_of(request, metadata.get("name"))


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
