"""Whom a tenant has let in: its ``Policy`` objects, as the portal shows and ends them (AZ7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.db import transaction

from access.authorization.tenancy.grants import RESOURCE
from audit.actions import Action
from audit.recorder import Actor
from audit.selectors import PAGE_LIMIT, Page
from kube.authorization.abac import GROUP, InvalidPolicy, policy_of
from kube.authorization.tenantreferences import refers_to, tenants_named
from kube.requests.logicalclusters import space_of
from kube.requests.status import Conflict, NotFound
from store import synchronous
from store.types import Delete, Key, PreconditionFailed, Range
from tenants.models import Role
from tenants.rights import require_role
from tenants.spaces import tenant_key


@dataclass(frozen=True, slots=True)
class GrantedPolicy:
    """One policy. ``opens`` is whether it is understood, and the tenant that it means is still there.

    ``since`` is RFC 3339.
    """

    name: str
    spec: Mapping[str, Any]
    since: str
    opens: bool


def policies_page(actor: Actor, tenant: str, *, after: str = "", limit: int = 50) -> Page[GrantedPolicy]:
    """Whom the tenant has let in, for its members: its policies by name behind ``after``.

    Raises ``NotFound`` for everybody else.
    """
    require_role(actor, tenant, Role.VIEWER)
    limit = max(1, min(limit, PAGE_LIMIT))
    selection = Range(space_of(tenant), GROUP, RESOURCE)
    found, more = synchronous.page(selection, limit=limit, after=("", after))
    bodies = {stored.key.name: orjson.loads(stored.data) for stored in found}
    uids = _uids({named for body in bodies.values() for named in tenants_named(body, space_of(tenant))})
    rows = [_granted(name, body, tenant, uids) for name, body in bodies.items()]
    return Page(rows, rows[-1].name if more else "")


def _granted(name: str, body: dict[str, Any], tenant: str, uids: Mapping[str, str]) -> GrantedPolicy:
    try:
        policy_of(body, space=tenant)
        opens = all(refers_to(body, named, uids.get(named)) for named in tenants_named(body, space_of(tenant)))
    except InvalidPolicy:
        opens = False
    spec = body.get("spec")
    since = body["metadata"].get("creationTimestamp", "")
    return GrantedPolicy(name, spec if isinstance(spec, dict) else {}, since, opens)


def _uids(tenants: Collection[str]) -> dict[str, str]:
    """By name, of those that are there."""
    stored = synchronous.get_all(map(tenant_key, tenants))
    return {each.key.name: str(orjson.loads(each.data)["metadata"]["uid"]) for each in stored}


@transaction.atomic
def policy_end(*, actor: Actor, tenant: str, name: str) -> None:
    """Delete a policy: those whom it let in are out with their next request, and their watches end.

    Finalizers do not keep it. Raises ``Forbidden`` for members who are no admins, ``NotFound``, ``Conflict``.
    """
    require_role(actor, tenant, Role.ADMIN)
    key = Key(space_of(tenant), GROUP, RESOURCE, "", name)
    stored = synchronous.get(key)
    if stored is None:
        raise NotFound("There is no such policy.", kind=RESOURCE, name=name[:253])
    body = orjson.loads(stored.data)
    actor.record(Action.POLICY_CHANGED, chain=tenant, target=name, detail={"ended": True, "spec": body.get("spec")})
    try:
        synchronous.commit([Delete(key, stored.revision, body)])
    except PreconditionFailed:
        raise Conflict("The policy has just been changed: look at it again.", kind=RESOURCE, name=name) from None
