"""``Tenant`` objects: made, renamed and ended by the same services as in the portal, whichever way a client writes them (TS1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.process.tenantservices import Caller, caller_of, never_kept
from gateway.resources.kinds import Kind
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import AlreadyExists, NotFound
from store.types import Key, Operation, PreconditionFailed, Stored, Update


def are(kind: Kind) -> bool:
    """Whether objects of the kind are tenants."""
    return kind.resource.storage_key == ("", "tenants")


def is_elsewhere(request: Request) -> bool:
    """Whether somebody goes through another tenant's space, which need not be there."""
    info = request.info
    if info.verb not in ("list", "watch", "deletecollection") or info.all_tenants:
        return False
    return info.tenant not in (SYSTEM_TENANT, request.principal.tenant)


async def require(runtime: Runtime, name: str) -> None:
    """Raise ``NotFound`` for a tenant that is not there: it must not seem to be empty."""
    key = Key("root", "", "tenants", "", name)
    if await runtime.store.get(key, cached=True) is None and await runtime.store.get(key) is None:
        raise NotFound(f'tenants "{name}" not found', kind="tenants", name=name)


async def order(
    runtime: Runtime, request: Request, key: Key, body: Mapping[str, Any], held: Sequence[Operation]
) -> Stored:
    """Make the tenant of an admitted object, together with what must hold; in a dry run see whether that may be.

    Raises ``PreconditionFailed`` for a name that is taken, and as ``tenants.services.tenants.tenant_create``.
    """
    try:
        stored = await asyncio.to_thread(
            runtime.tenants.create,
            caller=_operator(request),
            name=key.name,
            display_name=_display_name(body),
            body=body,
            held=held,
        )
    except AlreadyExists:
        raise PreconditionFailed(key, None) from None
    return never_kept(stored) if request.dry_run else stored


def is_renamed(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a write gives a tenant another display name, which its row has as well."""
    return are(kind) and _display_name(old) != _display_name(new)


async def rename(runtime: Runtime, request: Request, write: Update, held: Sequence[Operation]) -> Stored:
    """Keep an admitted change of the object, and the name in the row. Raises as ``tenant_change``."""
    stored = await asyncio.to_thread(
        runtime.tenants.change,
        caller=_operator(request),
        name=write.key.name,
        display_name=_display_name(write.body),
        together=[write, *held],
    )
    return never_kept(stored, write.expected) if request.dry_run else stored


async def end(runtime: Runtime, request: Request, write: Update, held: Sequence[Operation]) -> Stored:
    """Begin the end of a tenant by ``write``, the object with its mark. Raises as ``tenant_delete``."""
    stored = await asyncio.to_thread(
        runtime.tenants.delete, caller=_operator(request), name=write.key.name, together=[write, *held]
    )
    return never_kept(stored, write.expected) if request.dry_run else stored


def _display_name(body: Mapping[str, Any]) -> str:
    return str((body.get("spec") or {}).get("displayName") or "")


def _operator(request: Request) -> Caller:
    """Whoever may write the objects of tenants does an operator's work."""
    return replace(caller_of(request), operator=True)
