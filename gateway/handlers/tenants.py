"""``Tenant`` objects: made and ended by the same services as in the portal (TS1)."""

from __future__ import annotations

import asyncio

import orjson

from gateway.handlers.deleting import read_options
from gateway.handlers.reading import find, show
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from gateway.process.tenantservices import in_person
from gateway.resources import objects, writeoptions
from gateway.resources.kinds import Kind
from kube.requests.fielderrors import invalid_object
from kube.requests.names import SYSTEM_TENANT, tenant_name
from kube.requests.status import BadRequest, Cause, NotFound
from store.types import Key, Stored


async def serve(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """POST and DELETE. Reading, watching and changing labels work as for any object."""
    if request.info.verb == "create":
        return await _create(runtime, request, kind)
    return await _delete(runtime, request, kind)


def is_elsewhere(request: Request) -> bool:
    """Whether somebody goes through another tenant's space, which need not be there."""
    info = request.info
    if info.verb not in ("list", "watch", "deletecollection") or info.all_tenants:
        return False
    return info.tenant not in (SYSTEM_TENANT, request.principal.tenant)


async def require(runtime: Runtime, name: str) -> None:
    """Raise ``NotFound`` for a tenant that is not there: it must not seem to be empty."""
    key = _key(name)
    if await runtime.store.get(key, cached=True) is None and await runtime.store.get(key) is None:
        raise NotFound(f'tenants "{name}" not found', kind="tenants", name=name)


async def _create(runtime: Runtime, request: Request, kind: Kind) -> Response:
    user, body = in_person(request.principal), objects.decode_object(request, kind)
    writeoptions.check(request)
    objects.check_namespace_and_name(request.info, kind, body)
    metadata = body["metadata"]
    name = metadata.get("name") or ""
    problems = tenant_name(name) if name else ["name is required"]
    if problems:
        message = f'Invalid value: "{name}": {"; ".join(problems)}'
        raise invalid_object("", "Tenant", name, [Cause("FieldValueInvalid", message, "metadata.name")])
    if request.dry_run:
        objects.new_metadata(request, kind, body)
        return await show(request, kind, Stored(_key(name), 0, orjson.dumps(body)), status=201)
    spec = body.get("spec") or {}
    await asyncio.to_thread(
        runtime.tenants.create,
        user=user,
        name=name,
        display_name=str(spec.get("displayName") or ""),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
    )
    return await show(request, kind, await find(runtime, _key(name), kind), status=201)


async def _delete(runtime: Runtime, request: Request, kind: Kind) -> Response:
    user, options = in_person(request.principal), read_options(request)
    name = request.info.name
    stored = await find(runtime, _key(name), kind)
    metadata = orjson.loads(stored.data)["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        raise BadRequest("the uid in the preconditions is not the tenant's")
    if not request.dry_run:
        await asyncio.to_thread(runtime.tenants.delete, user=user, name=name)
    current = await runtime.store.get(_key(name))
    return await show(request, kind, current or stored)


def _key(name: str) -> Key:
    return Key("root", "", "tenants", "", name)
