"""Reads of requests: whose they are, who may decide them (GW25)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.db.models import Q, QuerySet

from audit.recorder import Actor
from audit.selectors import Page, page_of
from kube.requests.status import NotFound
from tenants.models import AccessRequest, Approval, Freeze, Membership, RequestState, Role, TenantState, User
from tenants.requests.approvers import OWNERS_MAY
from tenants.rights import as_actor

OPEN_OF_PERSON_MAX: Final = 20
"""Requests of one person that wait at a time."""
OPEN_OF_TENANT_MAX: Final = 200
"""The same of one tenant."""

_BY_OWNERS: Final = Q(approvers=Approval.OWNER) | Q(approvers=Approval.TWO, kind__in=OWNERS_MAY)


def may_decide(actor: Actor, request: AccessRequest) -> bool:
    """Whether the actor is one of those who decide this request, now; never of one's own, and no auditor."""
    if actor.user_id is None or actor.user_id == request.asked_by_id or actor.auditor:
        return False
    if actor.operator:
        return True
    owners = request.approvers == Approval.OWNER or (request.approvers == Approval.TWO and request.kind in OWNERS_MAY)
    return owners and request.tenant_id is not None and _owned(actor.user_id).filter(tenant=request.tenant_id).exists()


def user_may_decide(user: User | None, request: AccessRequest) -> bool:
    """The same of somebody who is not asking now, as their account and memberships are."""
    return user is not None and may_decide(as_actor(user), request)


def requests_to_decide(actor: Actor) -> QuerySet[AccessRequest]:
    """Open requests that the actor may decide, oldest first; not those that wait for a second person after the actor.

    Nor, for owners, those about a tenant that an operator has closed or holds still: there they would be refused (GW5).
    """
    rows = AccessRequest.objects.filter(state=RequestState.OPEN).select_related(
        "asked_by", "tenant", "workspace", "tier"
    )
    if actor.user_id is None or actor.auditor:
        return rows.none()
    rows = rows.exclude(asked_by_id=actor.user_id).exclude(approved_first_id=actor.user_id)
    if not actor.operator:
        rows = rows.filter(_BY_OWNERS, tenant__in=_owned(actor.user_id).values("tenant_id"))
        held = Freeze.objects.filter(workspace=None).values("tenant_id")
        rows = rows.filter(tenant__state=TenantState.ACTIVE).exclude(tenant__in=held)
    return rows.order_by("created_at", "id")


def requests_visible_to(actor: Actor) -> QuerySet[AccessRequest]:
    """One's own, and those about the tenants that one owns; operators and auditors see all."""
    rows = AccessRequest.objects.select_related("asked_by", "tenant", "workspace", "tier")
    if actor.sees_all:
        return rows
    if actor.user_id is None:
        return rows.none()
    return rows.filter(Q(asked_by_id=actor.user_id) | Q(tenant__in=_owned(actor.user_id).values("tenant_id")))


def requests_page(
    actor: Actor,
    *,
    mine: bool = False,
    state: str = "",
    tenant: str = "",
    after: str = "",
    limit: int = 50,
) -> Page[AccessRequest]:
    """Requests, newest first: one's own alone, or all that the actor sees. Raises ``BadRequest`` for a foreign cursor."""
    rows = requests_visible_to(actor)
    if mine:
        rows = rows.filter(asked_by_id=actor.user_id) if actor.user_id else rows.none()
    if state:
        rows = rows.filter(state=state)
    if tenant:
        rows = rows.filter(tenant_id=tenant)
    return page_of(rows, after, limit)


def request_visible_to(actor: Actor, request_id: UUID | None) -> AccessRequest:
    """One of them, with its comments. Raises ``NotFound``."""
    rows = requests_visible_to(actor).prefetch_related("comments")
    found = rows.filter(pk=request_id).first() if request_id is not None else None
    if found is None:
        raise NotFound("There is no such request.", kind="requests", name=str(request_id))
    return found


def _owned(user_id: UUID) -> QuerySet[Membership]:
    # An owner for good: what break-glass gives is never this role.
    return Membership.objects.filter(user_id=user_id, role=Role.OWNER)
