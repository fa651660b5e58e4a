"""Members of tenants; the last owner stays."""

from __future__ import annotations

from django.db import transaction

from audit.actions import Action
from audit.recorder import Actor
from kube.requests.status import Cause, Conflict, Forbidden, Invalid, NotFound
from tenants.models import Membership, Role, User
from tenants.naming import check_manager
from tenants.rights import require_open, require_role, role_at_least, tenant_locked
from tenants.services.revocation import credentials_end


@transaction.atomic
def membership_set(*, actor: Actor, tenant: str, user: User, role: Role, managed_by: str = "") -> Membership:
    """Make ``user`` a member as ``role``, or change the role.

    Admins of the tenant set members up to admin, owners and operators everybody. A lower role ends the credentials that
    the higher one gave. ``managed_by`` names the declaration that makes a member; on a change it is not looked at.
    Raises ``NotFound``, ``Forbidden`` (also where the tenant is closed), ``Invalid`` for an unknown role, ``Conflict``
    when the last owner would be lost.
    """
    if role not in Role.values:
        causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{role}"', "role")]
        raise Invalid(f'Membership is invalid: role: Unsupported value: "{role}"', kind="Membership", causes=causes)
    membership = _current(actor, tenant, user, Role(role))
    before = membership.role if membership else ""
    if membership is None:
        manager = check_manager(managed_by, kind="Membership")
        membership = Membership(tenant_id=tenant, user=user, managed_by=manager)
    membership.role = role
    membership.save()
    detail: dict[str, object] = {"user": user.email, "role": str(role), "before": before}
    if before and _rank(role) < _rank(Role(before)):
        detail["credentials_revoked"] = credentials_end(actor=actor, user=user, tenant=tenant)
    actor.record(Action.MEMBERSHIP_SET, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)
    return membership


@transaction.atomic
def membership_remove(*, actor: Actor, tenant: str, user: User) -> None:
    """End a membership, and every credential that came of it; members may always leave, a closed tenant too.

    Raises as ``membership_set`` does, ``NotFound`` for no member.
    """
    membership = _current(actor, tenant, user, None)
    if membership is None:
        raise NotFound(f"{user.email} is no member of {tenant}.", kind="members", name=str(user.id))
    ended = credentials_end(actor=actor, user=user, tenant=tenant)
    detail = {"user": user.email, "before": membership.role, "credentials_revoked": ended}
    membership.delete()
    actor.record(Action.MEMBERSHIP_REMOVED, chain=tenant, target=f"tenants/{tenant}/members/{user.id}", detail=detail)


def _current(actor: Actor, tenant: str, user: User, role: Role | None) -> Membership | None:
    """The membership as it is, checked that ``actor`` may make it ``role``; the tenant's row is locked.

    The lock makes two owners who remove each other wait for one another.
    """
    found = tenant_locked(tenant)
    leaving = role is None and actor.user_id == user.id
    own = require_role(actor, tenant, Role.VIEWER if leaving else Role.ADMIN)
    if not leaving:
        require_open(actor, found)
    membership = Membership.objects.filter(tenant_id=tenant, user=user).first()
    highest = max((r for r in (role, Role(membership.role) if membership else None) if r), key=_rank, default=None)
    if highest is Role.OWNER and not role_at_least(own, Role.OWNER):
        raise Forbidden("Only owners may make, change or remove owners.", kind="members")
    if membership and membership.role == Role.OWNER and role is not Role.OWNER:
        others = Membership.objects.filter(tenant_id=tenant, role=Role.OWNER).exclude(pk=membership.pk)
        if not others.exists():
            raise Conflict(f"{user.email} is the last owner of {tenant}; make another owner first.", kind="members")
    return membership


def _rank(role: Role) -> int:
    return -list(Role).index(role)
