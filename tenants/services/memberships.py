"""Members of tenants; the last owner stays. Some memberships end by themselves, and some give more for a while (GW25)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from audit.actions import Action
from audit.recorder import WORKER, Actor
from kube.requests.status import Cause, Conflict, Forbidden, Invalid, NotFound
from tenants.models import Membership, NoticeKind, Role, User
from tenants.naming import check_manager
from tenants.notices import note
from tenants.rights import (
    require_lasting_role,
    require_open,
    require_role,
    require_unlocked,
    role_at_least,
    tenant_locked,
)
from tenants.services.revocation import credentials_changed, credentials_end, invitations_end
from tenants.services.sweeping import apart

BREAK_GLASS_MINUTES: Final = 60
BREAK_GLASS_MINUTES_MAX: Final = 8 * 60
_BATCH: Final = 200


@transaction.atomic
def membership_set(*, actor: Actor, tenant: str, user: User, role: Role, managed_by: str = "") -> Membership:
    """Make ``user`` a member as ``role``, or change the role.

    Admins of the tenant set members up to admin, owners and operators everybody. A lower role ends the credentials that
    the higher one gave. What break-glass gave is over with it; an end that was set stays. ``managed_by`` names the
    declaration that makes a member; on a change it is not looked at.
    Raises ``NotFound``, ``Forbidden`` (also where the tenant is closed), ``Invalid`` for an unknown role, ``Conflict``
    when the last owner would be lost.
    """
    if role not in Role.values:
        causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{role}"', "role")]
        raise Invalid(f'Membership is invalid: role: Unsupported value: "{role}"', kind="Membership", causes=causes)
    membership = _current(actor, tenant, user, Role(role))
    before = membership.present_role if membership else ""
    if membership is None:
        _require_proven(actor, user)
        manager = check_manager(managed_by, kind="Membership")
        membership = Membership(tenant_id=tenant, user=user, managed_by=manager)
    membership.role = role
    membership.raised_role, membership.raised_until = "", None
    if membership.break_glass:
        membership.break_glass, membership.expires_at = False, None
    membership.save()
    detail: dict[str, object] = {"user": user.email, "role": str(role), "before": before}
    detail |= _invitations_ended(user, tenant)
    if before and _rank(role) < _rank(Role(before)):
        detail["credentials_revoked"] = credentials_end(actor=actor, user=user, tenant=tenant)
    actor.record(Action.MEMBERSHIP_SET, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)
    _tell(actor, user, tenant, f"You are {Role(role).label.lower()} in {tenant}")
    return membership


@transaction.atomic
def membership_remove(*, actor: Actor, tenant: str, user: User) -> None:
    """End a membership, and every credential that came of it; members may always leave, a closed tenant too.

    What is held still keeps nobody in: who is put out reads no more.

    Raises as ``membership_set`` does, ``NotFound`` for no member.
    """
    membership = _current(actor, tenant, user, None)
    if membership is None:
        raise NotFound(f"{user.email} is no member of {tenant}.", kind="members", name=str(user.id))
    ended = credentials_end(actor=actor, user=user, tenant=tenant)
    detail = {"user": user.email, "before": membership.role, "credentials_revoked": ended}
    detail |= _invitations_ended(user, tenant)
    membership.delete()
    _tell(actor, user, tenant, f"You are no member of {tenant} any more")
    actor.record(Action.MEMBERSHIP_REMOVED, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)


@transaction.atomic
def membership_end_at(
    *, actor: Actor, tenant: str, user: User, expires_at: datetime | None, now: datetime
) -> Membership:
    """Let a membership end by itself, later than it would, or not at all; nobody does so with their own but operators.

    Who may set the role. Raises as ``membership_set`` does, ``NotFound`` for no member, ``Conflict`` for break-glass, and
    for the last owner who stays.
    """
    found = Membership.objects.filter(tenant_id=tenant, user=user).first()
    membership = _current(actor, tenant, user, Role(found.role) if found else Role.VIEWER)
    if membership is None:
        raise NotFound(f"{user.email} is no member of {tenant}.", kind="members", name=str(user.id))
    if actor.user_id == user.id and not actor.operator:
        raise Forbidden("Somebody else says when a membership ends.", kind="members")
    if membership.break_glass:
        raise Conflict("This is break-glass, which has an end of its own.", kind="members")
    if expires_at is not None and expires_at <= now:
        causes = [Cause("FieldValueInvalid", "An end is ahead.", "expires_at")]
        raise Invalid("Membership is invalid: expires_at: An end is ahead.", kind="Membership", causes=causes)
    if membership.role == Role.OWNER and expires_at is not None and not _other_owners(membership):
        raise Conflict(f"{user.email} is the last owner of {tenant} who stays; make another one first.", kind="members")
    membership.expires_at, membership.warned_days = expires_at, None
    membership.save(update_fields=["expires_at", "warned_days"])
    credentials_changed()
    invitations_end(user, tenant)
    words = f"until {expires_at:%d %b %Y %H:%M} UTC" if expires_at else "without an end"
    detail = {"user": user.email, "role": membership.role, "expires_at": expires_at and expires_at.isoformat()}
    actor.record(Action.MEMBERSHIP_SET, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)
    _tell(actor, user, tenant, f"You are {Role(membership.role).label.lower()} in {tenant} {words}")
    return membership


@transaction.atomic
def membership_break_glass(
    *, actor: Actor, tenant: str, user: User, role: Role, minutes: int, now: datetime
) -> Membership:
    """Give ``user`` a role for so many minutes; a member goes back to the own role afterwards, others are none again.

    Operators, and owners of the tenant for others than themselves. Never the role of an owner, who could stay one; and
    it lets in nobody else (``require_lasting_role``). Raises ``NotFound``, ``Forbidden``, ``Invalid``, ``Conflict`` for
    whoever has as much already.
    """
    causes = []
    if role not in Role.values or role == Role.OWNER:
        causes.append(Cause("FieldValueNotSupported", "Break-glass gives admin, editor or viewer.", "role"))
    if not 1 <= minutes <= BREAK_GLASS_MINUTES_MAX:
        causes.append(Cause("FieldValueInvalid", f"From 1 to {BREAK_GLASS_MINUTES_MAX} minutes.", "minutes"))
    if causes:
        raise Invalid(f"Membership is invalid: {causes[0].message}", kind="Membership", causes=causes)
    found = tenant_locked(tenant)
    require_lasting_role(actor, tenant, Role.OWNER)
    require_open(actor, found)
    if actor.user_id == user.id:
        raise Forbidden("Nobody breaks the glass for themselves.", kind="members")
    membership_lapsed_end(tenant, user)
    until = now + timedelta(minutes=minutes)
    membership = Membership.objects.filter(tenant_id=tenant, user=user).first()
    if membership is None:
        _require_proven(actor, user)
        membership = Membership(tenant_id=tenant, user=user, role=role, break_glass=True, expires_at=until)
    elif role_at_least(membership.present_role, role):
        own = Role(membership.present_role).label
        raise Conflict(f"{user.email} has the role {own} in {tenant} already.", kind="members")
    elif membership.break_glass:
        membership.role, membership.expires_at = role, until
    else:
        membership.raised_role, membership.raised_until = role, until
    membership.save()
    credentials_changed()
    detail = {"user": user.email, "role": str(role), "until": until.isoformat(), **_invitations_ended(user, tenant)}
    actor.record(Action.MEMBERSHIP_RAISED, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)
    _tell(actor, user, tenant, f"You are {Role(role).label.lower()} in {tenant} until {until:%d %b %H:%M} UTC")
    return membership


def membership_lapsed_end(tenant: str, user: User) -> bool:
    """Take away a membership of ``user`` that is over, or what break-glass gave and is over; whether there was one.

    In the caller's transaction, which has the tenant's row. Both gave nothing any more since their time came; now the
    credentials end as well that came of them.
    """
    over = Membership.stored.filter(Q(expires_at__lte=Now()) | Q(raised_until__lte=Now()), tenant_id=tenant, user=user)
    membership = over.first()
    if membership is None:
        return False
    target = f"tenants/{tenant}/members/{user.id}"
    detail: dict[str, object] = {
        "user": user.email,
        "credentials_revoked": credentials_end(actor=WORKER, user=user, tenant=tenant),
    }
    if Membership.objects.filter(pk=membership.pk).exists():
        detail |= {"before": membership.raised_role, "role": membership.role}
        membership.raised_role, membership.raised_until = "", None
        membership.save(update_fields=["raised_role", "raised_until"])
        WORKER.record(Action.MEMBERSHIP_LOWERED, chain=tenant, target=target, detail=detail)
        _tell(WORKER, user, tenant, f"Break-glass has ended: you are {Role(membership.role).label.lower()} in {tenant}")
        return True
    detail |= {"before": membership.role, "ended": str(membership.expires_at)}
    # Who was invited since then is to come back.
    invitations_end(user, tenant, before=membership.expires_at)
    membership.delete()
    _tell(WORKER, user, tenant, f"Your membership in {tenant} has ended")
    WORKER.record(Action.MEMBERSHIP_REMOVED, chain=tenant, target=target, detail=detail)
    return True


def memberships_lapse() -> int:
    """Take away what is over of memberships, each in a transaction of its own; how many there were (a worker's sweep)."""
    over = Membership.stored.filter(Q(expires_at__lte=Now()) | Q(raised_until__lte=Now()))
    ended = 0
    for tenant, user in list(over.order_by("pk").values_list("tenant_id", "user_id")[:_BATCH]):
        with apart(f"the end of a membership in {tenant}"), transaction.atomic():
            tenant_locked(tenant)
            ended += membership_lapsed_end(tenant, User.objects.get(pk=user))
    return ended


def _current(actor: Actor, tenant: str, user: User, role: Role | None) -> Membership | None:
    """The membership as it is, checked that ``actor`` may make it ``role``; the tenant's row is locked.

    The lock makes two owners who remove each other wait for one another.
    """
    found = tenant_locked(tenant)
    leaving = role is None and actor.user_id == user.id
    own = require_role(actor, tenant, Role.VIEWER) if leaving else require_lasting_role(actor, tenant, Role.ADMIN)
    if role is not None:
        require_open(actor, found)
    elif not leaving:
        # Who is put out reads no more: what is held still goes on to be read.
        require_unlocked(actor, found)
    membership_lapsed_end(tenant, user)
    membership = Membership.objects.filter(tenant_id=tenant, user=user).first()
    highest = max((r for r in (role, Role(membership.role) if membership else None) if r), key=_rank, default=None)
    if highest is Role.OWNER and not role_at_least(own, Role.OWNER):
        raise Forbidden("Only owners may make, change or remove owners.", kind="members")
    if membership and membership.role == Role.OWNER and role is not Role.OWNER and not _other_owners(membership):
        raise Conflict(f"{user.email} is the last owner of {tenant}; make another owner first.", kind="members")
    return membership


def _other_owners(membership: Membership) -> bool:
    """Whether somebody else owns the tenant and stays."""
    owners = Membership.objects.filter(tenant_id=membership.tenant_id, role=Role.OWNER, expires_at=None)
    return owners.exclude(pk=membership.pk).exists()


def _require_proven(actor: Actor, user: User) -> None:
    """``Conflict`` for an account whose address only some tenant's admin vouches for: it could be anybody's.

    A link that is sent to the address reaches whose it is, and nobody else.
    """
    if user.address_unproven and not actor.operator:
        words = f"Nobody has shown yet that {user.email} is theirs: invite the address, and send the link there."
        raise Conflict(words, kind="members", name=str(user.id))


def _invitations_ended(user: User, tenant: str) -> dict[str, int]:
    ended = invitations_end(user, tenant)
    return {"invitations_revoked": ended} if ended else {}


def _tell(actor: Actor, user: User, tenant: str, words: str) -> None:
    note(NoticeKind.MEMBERSHIP_CHANGED, words, actor=actor, tenant=tenant, user=user)


def _rank(role: Role) -> int:
    return -list(Role).index(role)
