"""Asking for something, saying more about it, and taking it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.quota.podresources import amounts
from kube.quota.quantities import InvalidQuantity
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import AlreadyExists, Cause, Conflict, Forbidden, Invalid, NotFound
from tenants import actionlimits
from tenants.models import (
    AccessRequest,
    Membership,
    NoticeKind,
    RequestComment,
    RequestKind,
    RequestState,
    Role,
    Tenant,
    Tier,
    Workspace,
)
from tenants.naming import check_tenant_name, check_text
from tenants.notices import note
from tenants.quotas import tenant_quota
from tenants.requests.selectors import OPEN_OF_PERSON_MAX, OPEN_OF_TENANT_MAX, may_decide
from tenants.rights import (
    require_lasting_role,
    require_open,
    require_retained,
    require_role,
    role_at_least,
    role_of,
    tenant_locked,
)
from tenants.services.memberships import BREAK_GLASS_MINUTES, BREAK_GLASS_MINUTES_MAX

COMMENTS_MAX: Final = 50
_AMOUNTS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDraft:
    """What somebody asks for; of which fields there must be something, ``kind`` decides."""

    kind: str
    reason: str
    tenant: str = ""
    display_name: str = ""
    workspace: UUID | None = None
    tier: str = ""
    role: str = ""
    hard: Mapping[str, str] = field(default_factory=dict)
    minutes: int = BREAK_GLASS_MINUTES


@transaction.atomic
def request_create(*, actor: Actor, draft: RequestDraft, now: datetime) -> AccessRequest:
    """Ask for something that others decide about; who they are is told by the row.

    A role can be asked for in a tenant by its very name without being a member; whether there is one of the name is
    not told. It ends after ``REQUEST_DAYS``. Raises ``TooManyRequests``, ``NotFound`` for a tenant or a workspace that
    is not the actor's, ``Forbidden`` (also where the tenant is closed), ``Invalid``, ``AlreadyExists`` while the same
    was asked for and is not decided, ``Conflict`` when too much waits.
    """
    if actor.user_id is None:
        raise Forbidden("People ask for things: sign in as one.", kind="requests")
    actionlimits.take(actionlimits.REQUEST, actor.user_id)
    if draft.kind not in RequestKind.values:
        raise _invalid("kind", f'Unsupported value: "{draft.kind[:40]}"')
    # A reason is somebody's own words; paragraphs of it would be comments.
    reason = check_text(draft.reason, field="reason", kind="Request", limit=1024, required=True)
    row = AccessRequest(
        kind=draft.kind,
        asked_by_id=actor.user_id,
        reason=reason,
        approvers=settings.REQUEST_APPROVERS[draft.kind],
        created_at=now,
        expires_at=now + timedelta(days=settings.REQUEST_DAYS),
    )
    _CHECKS[RequestKind(draft.kind)](actor, draft, row)
    _require_room(actor, row)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        words = "You have asked for this already; withdraw that first, or say more there."
        raise AlreadyExists(words, kind="requests") from None
    actor.record(
        Action.REQUEST_CREATED,
        chain=_own_chain_of(actor, row),
        target=f"requests/{row.pk}",
        detail={**facts_of(row), "reason": reason},
    )
    note(
        NoticeKind.REQUEST_OPENED,
        f"{actor.name} asks for {row}",
        actor=actor,
        tenant=row.tenant_id,
        request=row,
    )
    return row


@transaction.atomic
def request_withdraw(*, actor: Actor, request_id: UUID, now: datetime) -> AccessRequest:
    """Take back what one has asked for; what is decided stays. Callers see all rows, as of ``request_create``.

    Raises ``NotFound``, ``Forbidden``, ``Conflict``.
    """
    found = request_locked(actor, request_id)
    if found.asked_by_id != actor.user_id:
        raise Forbidden("Only whoever asked takes a request back.", kind="requests")
    require_undecided(found)
    found.state, found.decided_at, found.decided_by = RequestState.WITHDRAWN, now, actor.name[:254]
    found.save()
    chain, target = _own_chain_of(actor, found), f"requests/{found.pk}"
    actor.record(Action.REQUEST_WITHDRAWN, chain=chain, target=target, detail=facts_of(found))
    return found


@transaction.atomic
def request_comment(*, actor: Actor, request_id: UUID, text: str, now: datetime) -> RequestComment:
    """Say something about a request: whoever asked, and those who decide it. Called and raises as above; ``Invalid``."""
    found = request_locked(actor, request_id)
    if found.asked_by_id != actor.user_id and not may_decide(actor, found):
        raise Forbidden("Only whoever asked, and those who decide, talk about a request.", kind="requests")
    require_undecided(found)
    if found.tenant is not None and role_of(actor, found.tenant.name) is not None:
        # To whoever is no member it is no tenant, so it cannot be closed.
        require_open(actor, found.tenant)
    text = " ".join(text.split())
    text = check_text(text, field="text", kind="Comment", limit=2048, required=True)
    if found.comments.count() >= COMMENTS_MAX:
        raise Conflict(f"At most {COMMENTS_MAX} comments: talk to each other.", kind="requests")
    comment = RequestComment.objects.create(request=found, author=actor.name[:254], text=text, created_at=now)
    actor.record(Action.REQUEST_COMMENTED, chain=_own_chain_of(actor, found), target=f"requests/{found.pk}")
    words = f"{actor.name} on the request for {found}: {text}"
    note(NoticeKind.REQUEST_COMMENTED, words, actor=actor, tenant=found.tenant_id, request=found)
    return comment


def request_locked(actor: Actor, request_id: UUID) -> AccessRequest:
    """The request, its row locked, and before it the tenant's: the order of every service.

    Raises ``NotFound`` for whoever may not know of it: neither asked it, nor decides, nor owns the tenant.
    """
    tenant = AccessRequest.objects.filter(pk=request_id).values_list("tenant_id", flat=True).first()
    if tenant:
        tenant_locked(tenant)
    rows = AccessRequest.objects.select_for_update(no_key=True, of=("self",))
    found = rows.select_related("tenant", "workspace", "tier", "asked_by").filter(pk=request_id).first()
    owns = found is not None and found.tenant_id is not None and role_of(actor, found.tenant_id) is Role.OWNER
    if found is None or not (owns or actor.operator or found.asked_by_id == actor.user_id):
        raise NotFound("There is no such request.", kind="requests", name=str(request_id))
    return found


def require_undecided(found: AccessRequest) -> None:
    """Conflict for a request that has ended: it is decided once."""
    if found.state != RequestState.OPEN:
        by = f" by {found.decided_by}" if found.decided_by else ""
        words = f"The request is {found.get_state_display().lower()} already{by}."
        raise Conflict(words, kind="requests", name=str(found.pk))


def chain_of(row: AccessRequest) -> str:
    """Where its events are recorded: with its tenant's, or the platform's."""
    return row.tenant_id or SYSTEM_CHAIN


def _own_chain_of(actor: Actor, row: AccessRequest) -> str:
    """The same for what a person reads among their own events: of no tenant that is nothing to them."""
    return chain_of(row) if row.tenant_id and role_of(actor, row.tenant_id) is not None else SYSTEM_CHAIN


def facts_of(row: AccessRequest) -> dict[str, Any]:
    """What was asked for, for the audit."""
    facts = {
        "kind": row.kind,
        "tenant": row.tenant_id or row.name,
        "workspace": str(row.workspace) if row.workspace else "",
        "tier": row.tier_id or "",
        "role": row.role,
        "hard": row.hard,
        "minutes": row.minutes,
        "user": row.asked_by.email,
    }
    return {name: value for name, value in facts.items() if value}


def more_than(present: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """``present`` with what is asked for, where that is more. Raises ``Invalid`` where it is not, or nothing is bounded."""
    causes = []
    for name, amount in asked.items():
        try:
            wanted = amounts({name: amount})[name]
            if name not in present:
                causes.append(
                    Cause("FieldValueInvalid", f"{name[:80]} is not bounded: there is nothing to ask for.", "hard")
                )
            elif wanted <= amounts({name: present[name]})[name]:
                causes.append(Cause("FieldValueInvalid", f"{name[:80]} is {present[name]} already.", "hard"))
        except InvalidQuantity:
            causes.append(Cause("FieldValueInvalid", f'"{amount[:40]}" is no amount of {name[:80]}.', "hard"))
    if not asked or len(asked) > _AMOUNTS_MAX:
        causes.append(Cause("FieldValueRequired", f"From 1 to {_AMOUNTS_MAX} amounts.", "hard"))
    if causes:
        raise Invalid(f"Request is invalid: {causes[0].message}", kind="Request", causes=causes)
    return {**present, **asked}


def _wants_tenant(_actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    # Whether the name is free is not told before somebody decides who may know.
    row.name = check_tenant_name(draft.tenant)
    row.display_name = check_text(draft.display_name, field="display_name", kind="Request", limit=128)


def _wants_tier(actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    rows = Workspace.objects.select_related("tenant")
    found = rows.filter(pk=draft.workspace).first() if draft.workspace else None
    if found is None or role_of(actor, found.tenant_id) is None:
        raise NotFound("There is no such workspace.", kind="workspaces", name=str(draft.workspace))
    tenant = tenant_locked(found.tenant_id)
    require_role(actor, tenant.name, Role.EDITOR)
    require_open(actor, tenant, found)
    tier = Tier.objects.filter(name=draft.tier, is_available=True).first()
    if tier is None:
        raise _invalid("tier", f'Unsupported value: "{draft.tier[:63]}"')
    if tier.pk == found.tier_id:
        raise _invalid("tier", "The workspace has this tier.")
    row.workspace, row.tenant, row.tier = found, found.tenant, tier
    row.approvers = tier.approval or row.approvers


def _wants_quota(actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    row.tenant = tenant_locked(draft.tenant)
    require_role(actor, draft.tenant, Role.EDITOR)
    require_open(actor, row.tenant)
    more_than(tenant_quota(draft.tenant).hard, draft.hard)
    row.hard = {str(name)[:253]: str(amount)[:40] for name, amount in draft.hard.items()}


def _wants_role(actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    if draft.role not in Role.values:
        raise _invalid("role", f'Unsupported value: "{draft.role[:32]}"')
    row.role = draft.role
    own = role_of(actor, draft.tenant)
    if own is not None and role_at_least(own, Role(draft.role)):
        raise _invalid("role", f"You have the role {own.label} there.")
    found = None if draft.tenant == SYSTEM_TENANT else Tenant.objects.filter(name=draft.tenant).first()
    if own is not None and found is not None:
        require_open(actor, tenant_locked(found.name))
    # Of others' tenants nobody learns by asking whether they are there: such a request reaches operators all the same.
    row.tenant, row.name = found, "" if found else check_tenant_name(draft.tenant)


def _wants_break_glass(actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    if draft.role == Role.OWNER:
        raise _invalid("role", "Break-glass gives admin, editor or viewer.")
    if not 1 <= draft.minutes <= BREAK_GLASS_MINUTES_MAX:
        raise _invalid("minutes", f"From 1 to {BREAK_GLASS_MINUTES_MAX} minutes.")
    _wants_role(actor, draft, row)
    row.minutes = draft.minutes


def _wants_leave(actor: Actor, draft: RequestDraft, row: AccessRequest) -> None:
    row.tenant = tenant_locked(draft.tenant)
    require_lasting_role(actor, draft.tenant, Role.OWNER)
    require_open(actor, row.tenant)
    require_retained(row.tenant)


_CHECKS: Final = {
    RequestKind.TENANT: _wants_tenant,
    RequestKind.TIER: _wants_tier,
    RequestKind.QUOTA: _wants_quota,
    RequestKind.ROLE: _wants_role,
    RequestKind.BREAK_GLASS: _wants_break_glass,
    RequestKind.LEAVE: _wants_leave,
}


def _require_room(actor: Actor, row: AccessRequest) -> None:
    waiting = AccessRequest.objects.filter(state=RequestState.OPEN)
    if waiting.filter(asked_by_id=row.asked_by_id).count() >= OPEN_OF_PERSON_MAX:
        raise Conflict(f"At most {OPEN_OF_PERSON_MAX} of your requests wait at a time; withdraw one.", kind="requests")
    if row.tenant_id is None or role_of(actor, row.tenant_id) is None:
        return
    # What others ask for is bounded for each of them, and takes no member's place.
    members = Membership.objects.filter(tenant=row.tenant_id).values("user")
    if waiting.filter(tenant=row.tenant_id, asked_by__in=members).count() >= OPEN_OF_TENANT_MAX:
        raise Conflict(f"At most {OPEN_OF_TENANT_MAX} requests of a tenant wait at a time.", kind="requests")


def _invalid(name: str, words: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", words, name)]
    return Invalid(f"Request is invalid: {name}: {words}", kind="Request", causes=causes)
