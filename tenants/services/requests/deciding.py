"""Deciding what others ask for; approving does it, by the services that do it otherwise too, with the approver's rights."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from audit.actions import Action
from audit.recorder import WORKER, Actor
from kube.requests.status import Conflict, Forbidden
from tenants.models import AccessRequest, Approval, NoticeKind, RequestKind, RequestState, Role, User
from tenants.naming import check_text
from tenants.notices import note
from tenants.quotas import tenant_quota
from tenants.requests.selectors import may_decide, user_may_decide
from tenants.rights import as_actor, require_open, role_at_least, role_of
from tenants.services.memberships import membership_break_glass, membership_set
from tenants.services.operating.offboarding import DAYS_KEPT, REASON_MAX, tenant_offboard
from tenants.services.requests.asking import chain_of, facts_of, more_than, request_locked, require_undecided
from tenants.services.sweeping import apart
from tenants.services.tenants import tenant_create, tenant_quota_change
from tenants.services.workspaces import workspace_change_tier

_BATCH: Final = 200


@transaction.atomic
def request_approve(*, actor: Actor, request_id: UUID, answer: str = "", now: datetime) -> AccessRequest:
    """Say yes, and do it: all of it or nothing, in this transaction.

    Those who decide are asked for their rights now, the first of two again at the second's; never whoever asked. What
    cannot be done any more is refused with the service's words, and the request stays open. Raises ``NotFound``,
    ``Forbidden``, ``Conflict`` for one that is decided or over, or of a kind that only a later release knows, and what the
    service raises.
    """
    found, answer = _to_decide(actor, request_id, now), _answer(answer)
    carry_out = _CARRIED_OUT.get(found.kind)
    if carry_out is None:
        raise Conflict("A later release was asked for this, and this one cannot do it: deny it.", kind="requests")
    if found.approvers == Approval.TWO and not user_may_decide(found.approved_first, found):
        found.approved_first_id = actor.user_id
        found.save(update_fields=["approved_first"])
        actor.record(
            Action.REQUEST_SECONDED, chain=chain_of(found), target=f"requests/{found.pk}", detail=facts_of(found)
        )
        return found
    if found.approvers == Approval.TWO and found.approved_first_id == actor.user_id:
        raise Conflict("You have approved it; it needs a second person.", kind="requests")
    first = found.approved_first.email if found.approved_first else ""
    _decide(actor, found, RequestState.APPROVED, Action.REQUEST_APPROVED, answer, now, first=first)
    # Last, for some of it ends with the store's write.
    carry_out(actor, found, now)
    return found


@transaction.atomic
def request_deny(*, actor: Actor, request_id: UUID, answer: str, now: datetime) -> AccessRequest:
    """Say no, and why. Raises as above, ``Invalid`` without a reason."""
    found, answer = _to_decide(actor, request_id, now), _answer(answer, required=True)
    _decide(actor, found, RequestState.DENIED, Action.REQUEST_DENIED, answer, now)
    return found


def requests_expire(*, now: datetime) -> int:
    """End those that nobody has decided in time; how many (a worker's sweep)."""
    over = AccessRequest.objects.filter(state=RequestState.OPEN, expires_at__lte=now)
    ended = 0
    for identifier in list(over.order_by("expires_at").values_list("pk", flat=True)[:_BATCH]):
        with apart(f"the end of request {identifier}"), transaction.atomic():
            found = request_locked(WORKER, identifier)
            if found.state == RequestState.OPEN:
                _decide(WORKER, found, RequestState.EXPIRED, Action.REQUEST_EXPIRED, "", now)
                ended += 1
    return ended


def _to_decide(actor: Actor, request_id: UUID, now: datetime) -> AccessRequest:
    found = request_locked(actor, request_id)
    if found.asked_by_id == actor.user_id:
        raise Forbidden("Nobody decides what they have asked for themselves.", kind="requests")
    if not may_decide(actor, found):
        raise Forbidden(f"This is decided by others: {found.get_approvers_display()}.", kind="requests")
    require_undecided(found)
    if found.expires_at <= now:
        raise Conflict("The request is over; it has to be asked again.", kind="requests", name=str(found.pk))
    if found.tenant is not None:
        require_open(actor, found.tenant)
    return found


def _decide(
    actor: Actor,
    found: AccessRequest,
    state: RequestState,
    action: Action,
    answer: str,
    now: datetime,
    *,
    first: str = "",
) -> None:
    found.state, found.decided_at, found.answer = state, now, answer
    found.decided_by = f"{first}, {actor.name}"[:254] if first else actor.name[:254]
    found.save()
    detail = {**facts_of(found), "answer": answer, "first": first}
    actor.record(action, chain=chain_of(found), target=f"requests/{found.pk}", detail=detail)
    words = f"{found.get_state_display()}: {found}{answer and f' ({answer})'}"
    note(NoticeKind.REQUEST_DECIDED, words, actor=actor, tenant=found.tenant_id, request=found, user=found.asked_by)


def _answer(text: str, *, required: bool = False) -> str:
    return check_text(text, field="answer", kind="Request", limit=512, required=required)


def _give_tenant(actor: Actor, found: AccessRequest, _now: datetime) -> None:
    tenant_create(actor=actor, name=found.name, display_name=found.display_name, owner=_asker(found))


def _give_tier(actor: Actor, found: AccessRequest, _now: datetime) -> None:
    _require_member(found)
    if found.workspace_id is None or found.tier_id is None:
        raise Conflict("The tier is gone that was asked for.", kind="requests")
    workspace_change_tier(actor=actor, workspace_id=found.workspace_id, tier=found.tier_id)


def _give_quota(actor: Actor, found: AccessRequest, _now: datetime) -> None:
    _require_member(found)
    tenant = _of_tenant(found)
    tenant_quota_change(actor=actor, name=tenant, hard=more_than(tenant_quota(tenant).hard, found.hard))


def _give_role(actor: Actor, found: AccessRequest, _now: datetime) -> None:
    tenant, asker = _of_tenant(found), _asker(found)
    own = role_of(as_actor(asker), tenant)
    if own is not None and role_at_least(own, Role(found.role)):
        raise Conflict(f"{asker.email} has the role {own.label} in {tenant} meanwhile.", kind="requests")
    membership_set(actor=actor, tenant=tenant, user=asker, role=Role(found.role))


def _give_break_glass(actor: Actor, found: AccessRequest, now: datetime) -> None:
    membership_break_glass(
        actor=actor,
        tenant=_of_tenant(found),
        user=_asker(found),
        role=Role(found.role),
        minutes=found.minutes,
        now=now,
    )


def _give_leave(actor: Actor, found: AccessRequest, now: datetime) -> None:
    tenant, asker = _of_tenant(found), _asker(found)
    if role_of(as_actor(asker), tenant) is not Role.OWNER:
        raise Conflict(f"{asker.email} is no owner of {tenant} any more.", kind="requests")
    ends_at = now + timedelta(days=DAYS_KEPT)
    tenant_offboard(actor=actor, name=tenant, reason=found.reason[:REASON_MAX], ends_at=ends_at, now=now)


_CARRIED_OUT: Final[dict[str, Callable[[Actor, AccessRequest, datetime], None]]] = {
    RequestKind.TENANT: _give_tenant,
    RequestKind.TIER: _give_tier,
    RequestKind.QUOTA: _give_quota,
    RequestKind.ROLE: _give_role,
    RequestKind.BREAK_GLASS: _give_break_glass,
    RequestKind.LEAVE: _give_leave,
}


def _asker(found: AccessRequest) -> User:
    if not found.asked_by.is_active:
        raise Conflict(f"The account of {found.asked_by.email} is disabled.", kind="requests")
    return found.asked_by


def _of_tenant(found: AccessRequest) -> str:
    """The very tenant that was asked about. Raises ``Conflict`` where there was none of the name then."""
    if found.tenant_id is None:
        raise Conflict(f"There was no tenant {found.name!r} when it was asked; deny it.", kind="requests")
    return found.tenant_id


def _require_member(found: AccessRequest) -> None:
    asker = _asker(found)
    own = role_of(as_actor(asker), _of_tenant(found))
    if own is None or not role_at_least(own, Role.EDITOR):
        raise Conflict(f"{asker.email} may not ask for this in {found.tenant_id} any more.", kind="requests")
