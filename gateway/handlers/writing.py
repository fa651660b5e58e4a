"""create and update, and the one way from a wanted object to a kept one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, Sent
from gateway.filters import permission
from gateway.handlers import tenants
from gateway.handlers.guaranteedupdate import (
    ATTEMPTS,
    backoff_after_conflict,
    guaranteed_update,
    is_missing,
    replacement,
    require_newest,
    too_many_conflicts,
)
from gateway.handlers.placednamespaces import namespaceorders
from gateway.handlers.reading import revision_of, show
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from gateway.resources import objects, writeoptions
from gateway.resources.kinds import Kind, definitions
from gateway.resources.selection import confine_new, require_selected
from kube.customresources.definitions import CRDS
from kube.kinds.reststrategies import (
    ALLOW_CREATE_ON_UPDATE,
    COUNTED_METADATA,
    NO_UNCONDITIONAL_UPDATE,
    STATUS_FROM_THE_START,
)
from kube.objects import conversion, fieldvalidation, managedfields, subresources
from kube.objects.defaults import fill_defaults
from kube.objects.managedfields import Write
from kube.objects.patches import deep_copy, same
from kube.objects.strategies import finished
from kube.requests.decoding import HEAVY
from kube.requests.fielderrors import invalid, invalid_object, required, unshown
from kube.requests.status import AlreadyExists, BadRequest, Conflict
from kube.validation.objects import create_causes
from store.types import Create, Delete, PreconditionFailed, Stored, Update

Body = dict[str, Any]
Transform = Callable[[Body], Body]
"""From the current object to the wanted one; called again when somebody else wrote in between."""

Parting = Callable[[Body, Body], Sent]
"""From the current object and the wanted one to what of it the request carries."""

_NAME_BYTES: Final = 1024
"""Bytes of a name that no rule of its kind bounds, such as a role's."""

_NAMES_MAX: Final = 9
"""How often another name is generated in the place of one that is taken."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_SERVER_OWNED: Final = ("creationTimestamp", "selfLink", "tenant", "generation", "resourceVersion")
_IMMUTABLE: Final = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


async def create(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST to a collection."""
    writeoptions.check(request)
    body = objects.decode_object(request, kind)
    version = str(body["metadata"].get("resourceVersion") or "")
    if version.isascii() and version.isdigit() and version.strip("0") and not request.dry_run:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    stored = await create_object(runtime, request, kind, body)
    return await show(request, kind, stored, status=201)


async def create_object(
    runtime: Runtime, request: Request, kind: Kind, body: Body, *, write: Write | None = None
) -> Stored:
    """Admit and keep a new object. Raises ``AlreadyExists``; in place of a name that was generated another is tried."""
    generated = not body["metadata"].get("name")
    name = prepare_new(request, kind, body)
    for attempt in range(ATTEMPTS):
        candidate = candidate_of(request, kind, body, write)
        key = objects.key_of(request.info, kind.resource, candidate["metadata"]["name"])
        confine_new(request, kind, key, candidate)
        attributes = attributes_of(request, kind, CREATE, key.name, candidate, None)
        async with runtime.write_locks.of_quotas(key):
            extra = await runtime.admission.admit(attributes)
            cluster = await namespaceorders.wanted_cluster(runtime, request, kind, candidate)
            try:
                if cluster:
                    return await namespaceorders.order(runtime, request, candidate, cluster, extra)
                if tenants.are(kind):
                    return await tenants.order(runtime, request, key, candidate, extra)
                if request.dry_run:
                    if (taken := await runtime.store.get(key)) is not None:
                        raise already_exists(kind, key.name, taken)
                    return Stored(key, 0, orjson.dumps(candidate))
                made = Create(key, stored_form(candidate, kind))
                return (await runtime.store.commit(made, *extra, room=attributes.room))[0]
            except PreconditionFailed as failure:
                lost = failure.key
                if lost == key and not (generated and attempt < _NAMES_MAX):
                    raise already_exists(kind, key.name, await runtime.store.get(key)) from None
            except AlreadyExists as error:
                # A cluster, or a workspace, has the name; what an order calls the workspace itself is no generated one.
                if error.name != key.name or not (generated and attempt < _NAMES_MAX):
                    raise
                lost = key
        if lost == key:
            body["metadata"].pop("name")
            name = objects.new_metadata(request, kind, body)
            objects.set_logical_cluster(request.info, kind, body, name)
        await backoff_after_conflict(runtime, lost, attempt)
    raise too_many_conflicts(kind, name)


def prepare_new(request: Request, kind: Kind, body: Body) -> str:
    """Give a new object what the server alone gives; its name. Raises ``BadRequest`` and ``Invalid``."""
    objects.check_namespace_and_name(request.info, kind, body)
    name = objects.new_metadata(request, kind, body)
    check_name(request, kind, name, body)
    if kind.has_status and kind.resource.storage_key not in STATUS_FROM_THE_START:
        body.pop("status", None)
    objects.set_logical_cluster(request.info, kind, body, name)
    return name


def candidate_of(request: Request, kind: Kind, body: Body, write: Write | None = None) -> Body:
    """A new object as it is admitted. With ``write`` its managed fields are settled already. Raises ``Invalid``."""
    if request.weight > HEAVY:
        objects.check_lengths(kind, body)
    candidate = objects.apply_defaults(request, kind, deep_copy(body))
    if write is None:
        candidate = managedfields.update(kind.structure, None, candidate, write_of(request, kind))
    return candidate


async def update(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """PUT of an object or its status."""
    writeoptions.check(request)
    body = objects.decode_object(request, kind)
    objects.check_namespace_and_name(request.info, kind, body)
    check_name_of(request, body["metadata"].get("name"))

    def replaced(_current: Body) -> Body:
        copied: Body = deep_copy(body)
        return copied

    info = request.info
    key = objects.key_of(info, kind.resource, info.name)
    creates = not info.subresource and kind.resource.storage_key in ALLOW_CREATE_ON_UPDATE
    if creates and await is_missing(runtime, key):
        stated_revision(body)
        await permission.require(runtime, request, "create")
        # Who is overtaken by another maker replaces what that one has made, as with kube-apiserver.
        with suppress(AlreadyExists):
            made = await create_object(runtime, request, kind, deep_copy(body))
            return await show(request, kind, made, status=201)
    stored = await update_object(runtime, request, kind, replaced)
    return await show(request, kind, stored)


def check_name_of(request: Request, name: str | None) -> None:
    """The object's own name is the one in the path. Raises ``BadRequest``."""
    url = request.info.name
    if not name:
        raise BadRequest(f"the name of the object ({url} based on URL) was undeterminable: name must be provided")
    if name != url:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({url})")


async def update_object(
    runtime: Runtime,
    request: Request,
    kind: Kind,
    transform: Transform,
    *,
    managed: bool = False,
    parting: Parting | None = None,
) -> Stored:
    """Bring an existing object into the state that ``transform`` wants, with optimistic concurrency.

    With ``managed`` the transform has already settled the managed fields; ``parting`` is for parts that are no form of the
    object. Raises ``NotFound``, ``Conflict``, and
    whatever admission says.
    """
    info = request.info
    key = objects.key_of(info, kind.resource, info.name)

    def settled(current: Stored, old: Body, new: Body) -> Body:
        _check_preconditions(kind, key.name, current, old, new, replaces=info.verb == "update")
        sent = deep_copy(new) if _is_counted_as_sent(kind, info.subresource) and not managed else None
        new = prepare_for_update(kind, info.subresource, old, new)
        if request.weight > HEAVY:
            objects.check_lengths(kind, new)
        new = objects.apply_defaults(request, kind, new)
        if not managed:
            counted = new if sent is None else objects.apply_defaults(request, kind, sent)
            owned = managedfields.update(kind.structure, old, counted, write_of(request, kind))
            new = owned if sent is None else _with_owners(new, owned)
        return new

    async def once(current: Stored) -> Stored:
        require_selected(request, kind, current)
        request.weigh(current.data)
        request.charge_kept(len(current.data))
        old = _read(current, kind)
        new = settled(current, old, transform(old))
        confine_new(request, kind, key, new)
        attributes = attributes_of(request, kind, UPDATE, key.name, new, old)
        if parting is not None:
            attributes.sent = parting(old, new)
        async with runtime.write_locks.of_quotas(key, updates=True):
            extra = await runtime.admission.admit(attributes)
            as_before = unchanged(old, new) and unchanged(_kept(current, kind), new)
            if as_before or request.dry_run:
                await require_newest(runtime, key, current)
            if as_before:
                return current
            if info.subresource not in ("binding", "status"):
                bump_generation(kind, old, new)
            kept = stored_form(new, kind)
            if tenants.is_renamed(kind, old, new):
                return await tenants.rename(runtime, request, Update(key, current.revision, kept), extra)
            if request.dry_run:
                return Stored(key, current.revision, orjson.dumps(new))
            if finished(new):
                return (await runtime.store.commit(Delete(key, current.revision, kept), *extra))[0]
            return (await runtime.store.commit(replacement(current, kept), *extra, room=attributes.room))[0]

    return await guaranteed_update(runtime, kind, key, once)


def _kept(current: Stored, kind: Kind) -> Body:
    return objects.converted(orjson.loads(current.data), kind)


def _read(current: Stored, kind: Kind) -> Body:
    """An object as writes find it: defaults that are newer than it count as if it had been kept with them."""
    body = _kept(current, kind)
    if not kind.resource.custom:
        fill_defaults(body)
    return body


def prepare_for_update(kind: Kind, subresource: str, old: Body, new: Body) -> Body:
    """The wanted object with what this endpoint does not write as the current object has it."""
    if subresource:
        new = subresources.written(kind.resource, subresource, kind.served.scale, old, new)
    elif kind.has_status:
        if "status" in old:
            new["status"] = deep_copy(old["status"])
        else:
            new.pop("status", None)
    if subresource != "finalize" and kind.resource.storage_key == ("", "namespaces"):
        # Only its controller takes them off: else the namespace would go before what is in it.
        new["spec"] = deep_copy(old.get("spec") or {})
    if subresource == "status" and kind.resource.storage_key == ("", "tenants"):
        # What a tenant is in is decided by its services, and shown there.
        new["status"] = {**new["status"], "phase": (old.get("status") or {}).get("phase", "")}
    metadata, before = new["metadata"], old["metadata"]
    for field in _SERVER_OWNED:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    for field in _IMMUTABLE:
        # What was not there and is there now, or is another, is for validation to refuse.
        if field in before and (field == "deletionTimestamp" or not metadata.get(field)):
            metadata[field] = before[field]
    return new


def _with_owners(body: Body, owned: Body) -> Body:
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    entries = owned["metadata"].get("managedFields")
    return {**body, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


def _is_counted_as_sent(kind: Kind, part: str) -> bool:
    """Whether who writes the part owns, as with kube-apiserver, what was sent, although all but the part is dropped."""
    return part in ("ephemeralcontainers", "finalize", "resize") or (kind.resource.storage_key, part) == (
        CRDS,
        "status",
    )


def bump_generation(kind: Kind, old: Body, new: Body) -> None:
    """Bump ``metadata.generation`` when something other than metadata and status changed."""
    if not objects.counts_generations(kind):
        return
    aside = {"metadata", "status"} if kind.has_status or not kind.resource.custom else {"metadata"}
    before = {name: value for name, value in old.items() if name not in aside}
    after = {name: value for name, value in new.items() if name not in aside}
    counted = COUNTED_METADATA.get(kind.resource.storage_key, "")
    described = bool(counted) and not same(old["metadata"].get(counted), new["metadata"].get(counted))
    if described or not same(before, after):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def unchanged(old: Body, new: Body) -> bool:
    """Whether a write would change nothing but the times of managed fields."""
    for name, value in new.items():
        if name != "metadata" and old.get(name) != value:
            return False
    return same(_bare(old), _bare(new))


def _bare(body: Body) -> Body:
    metadata = dict(body["metadata"])
    entries = metadata.pop("managedFields", None) or ()
    metadata["managedFields"] = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    return {**body, "metadata": metadata}


def _check_preconditions(kind: Kind, name: str, current: Stored, old: Body, new: Body, *, replaces: bool) -> None:
    stated = stated_revision(new)
    resource = kind.resource
    if not stated and (resource.custom or resource.storage_key in NO_UNCONDITIONAL_UPDATE):
        cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid_object(resource.group, resource.plural, name, [cause])
    if stated and str(stated) != old["metadata"]["resourceVersion"]:
        raise modified(kind, name)
    uid = new["metadata"].get("uid")
    if replaces and uid and uid != old["metadata"].get("uid"):
        place = "/".join(part for part in (kind.resource.plural, current.key.namespace, name) if part)
        raise Conflict(
            f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": StorageError: invalid object, '
            f"Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            f"UID in precondition: {uid}, UID in object meta: {old['metadata'].get('uid')}",
            group=kind.resource.group,
            kind=kind.resource.plural,
            name=name,
        )


def stated_revision(body: Body) -> int:
    """The revision that a write is about: 0 for any. Raises ``BadRequest`` for what is none."""
    return revision_of(str(body["metadata"].get("resourceVersion") or "0"))


def modified(kind: Kind, name: str) -> Conflict:
    """The 409 that tells a client to read again."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource.qualified_name} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
        group=kind.resource.group,
        kind=kind.resource.plural,
        name=name,
    )


def already_exists(kind: Kind, name: str, taken: Stored | None = None) -> AlreadyExists:
    """The 409 of a name that is taken, by this object where it is known."""
    resource = kind.resource
    ending = taken is not None and "deletionTimestamp" in orjson.loads(taken.data)["metadata"]
    return AlreadyExists(
        f'{"object is being deleted: " if ending else ""}{resource.qualified_name} "{name}" already exists',
        group=resource.group,
        kind=resource.plural,
        name=name,
    )


def check_name(request: Request, kind: Kind, name: Any, body: Body) -> None:
    """A new object has a name that can be kept; what is wrong with it else, admission says. Raises ``Invalid``."""
    if not isinstance(name, str):
        causes = [unshown("metadata.name", f'"{name}": must be a string')]
    elif name and (len(name.encode()) > _NAME_BYTES or _CONTROL.search(name)):
        problem = f"must be no more than {_NAME_BYTES} bytes, without control characters"
        causes = [unshown("metadata.name", f'"{name[:_NAME_BYTES]}": {problem}')]
    elif name:
        return
    elif kind.resource.custom:
        causes = [required("metadata.name", "name or generateName is required")]
    else:
        # Nobody else is asked about what cannot be kept: all that is wrong with it is said here.
        causes = create_causes(kind.resource, kind.version, candidate_of(request, kind, body), definitions())
    shown = name or body["metadata"].get("generateName") or ""
    raise invalid_object(kind.resource.storage_key[0], kind.name, shown, causes)


def stored_form(body: Body, kind: Kind) -> Body:
    """The object as it is kept: in the storage version, whichever version the client speaks."""
    if kind.is_stored_version:
        return body
    resource = kind.resource
    group = resource.group if resource.storage_group is None else resource.storage_group
    version = resource.storage_version.name
    kept = f"{group}/{version}" if group else version
    if resource.custom:
        return {**body, "apiVersion": kept}
    converted = conversion.converted(body, kept)
    schema = definitions().schema(group, version, kind.name)
    if schema is None:
        return converted
    # What travelled in annotations are a client's words.
    decoded: Body = fieldvalidation.decode_fields(converted, schema, kind=kind.name, version=version).value
    return decoded


def write_of(request: Request, kind: Kind) -> Write:
    """The circumstances of the request's write, for the owners of its fields."""
    manager = request.query.get("fieldManager") or managedfields.manager_from_user_agent(request.user_agent)
    subresource = request.info.subresource
    reset = subresources.reset_of(kind.resource, subresource) if subresource or kind.has_status else {}
    return Write(
        manager=manager,
        version=kind.api_version,
        # kube-apiserver's scale keeps no time.
        now="" if subresource == "scale" else objects.timestamp(request.now),
        subresource=subresource,
        reset=reset,
    )


def attributes_of(
    request: Request, kind: Kind, operation: str, name: str, new: Body | None, old: Body | None
) -> Attributes:
    """The write as the admission plugins see it. What they note of it is what they noted last."""
    info = request.info
    request.notes.clear()
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
        warnings=request.warnings,
        notes=request.notes,
        options=partial(writeoptions.of_operation, request, operation),
    )
