"""Invitations: a link by which one person joins a tenant, once (GW14)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from audit.actions import Action
from audit.recorder import Actor
from kube.requests.status import AlreadyExists, Cause, Conflict, Forbidden, Invalid, NotFound
from tenants.models import Invitation, Membership, Role, Tenant, User
from tenants.models.mailaddresses import address_key, check_address
from tenants.rights import (
    as_actor,
    require_lasting_role,
    require_open,
    require_role,
    role_at_least,
    tenant_locked,
)
from tenants.services.memberships import membership_lapsed_end

DAYS_MAX: Final = 30
WAITING_MAX: Final = 200
"""Invitations of one tenant that wait at a time."""


@dataclass(frozen=True, slots=True)
class CreatedInvitation:
    """A new invitation: ``secret`` is shown once, in the link, and known to nobody afterwards."""

    invitation: Invitation
    secret: str = field(repr=False)


@transaction.atomic
def invitation_create(
    *, actor: Actor, tenant: str, email: str, role: str, days: int, now: datetime
) -> CreatedInvitation:
    """Invite whoever has an address to a tenant as ``role``, for so many days.

    Admins of the tenant invite up to admin, owners and operators everybody. One that has ended makes room for another.
    Raises ``NotFound``, ``Forbidden`` (also where the tenant is closed), ``Invalid``, ``AlreadyExists`` for somebody who
    is invited already, ``Conflict`` for a member.
    """
    # As accounts are kept: what ends by the one is found by the other.
    email = User.objects.normalize_email(email.strip())
    found = _locked(actor, tenant, _checked(email, role, days))
    if Membership.objects.filter(tenant=found, user__email__same=email).exists():
        raise Conflict(f"{email} is a member of {tenant} already.", kind="invitations")
    waiting = found.invitations.filter(accepted_at=None, revoked_at=None)
    waiting.filter(expires_at__lte=now).update(revoked_at=now)
    if waiting.count() >= WAITING_MAX:
        raise Conflict(f"At most {WAITING_MAX} invitations wait at a time; revoke one first.", kind="invitations")
    secret = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            made = Invitation.objects.create(
                tenant=found,
                email=email,
                role=role,
                digest=digest_of(secret),
                invited_by_id=_author(actor),
                created_at=now,
                expires_at=now + timedelta(days=days),
            )
    except IntegrityError:
        raise AlreadyExists(f"{email} is invited to {tenant} already; revoke that first.", kind="invitations") from None
    detail = {"user": email, "role": role, "expiresAt": made.expires_at.isoformat()}
    actor.record(
        Action.INVITATION_CREATED, chain=tenant, target=f"tenants/{tenant}/invitations/{made.id}", detail=detail
    )
    return CreatedInvitation(made, secret)


@transaction.atomic
def invitation_revoke(*, actor: Actor, tenant: str, invitation_id: UUID, now: datetime) -> Invitation:
    """Let an invitation count no more; one that has ended stays as it is. Admins of the tenant, closed or not.

    Raises ``NotFound``, ``Forbidden``.
    """
    tenant_locked(tenant)
    require_role(actor, tenant, Role.ADMIN)
    found = Invitation.objects.filter(tenant_id=tenant, pk=invitation_id).first()
    if found is None:
        raise NotFound("There is no such invitation.", kind="invitations")
    if found.accepted_at is None and found.revoked_at is None:
        found.revoked_at = now
        found.save(update_fields=["revoked_at"])
        target = f"tenants/{tenant}/invitations/{found.id}"
        actor.record(Action.INVITATION_REVOKED, chain=tenant, target=target, detail={"user": found.email})
    return found


def invitations_waiting(actor: Actor, tenant: str, *, now: datetime) -> list[Invitation]:
    """Those of a tenant that still count, newest first. Admins and auditors. Raises ``NotFound``, ``Forbidden``."""
    require_role(actor, tenant, Role.VIEWER if actor.auditor else Role.ADMIN)
    rows = Invitation.objects.filter(tenant_id=tenant, accepted_at=None, revoked_at=None, expires_at__gt=now)
    return list(rows.select_related("invited_by").order_by("-created_at", "-id")[:WAITING_MAX])


def invitation_that_counts(digest: str, *, now: datetime) -> Invitation:
    """The invitation of a link with this digest, while it counts. Raises ``NotFound``, the same for every other link."""
    found = Invitation.objects.filter(digest=digest).select_related("tenant", "invited_by").first()
    if found is None or found.accepted_at or found.revoked_at or found.expires_at <= now:
        raise NotFound(
            "This invitation does not count any more: it was used, revoked, or its time is over. Ask for another one.",
            kind="invitations",
        )
    return found


@transaction.atomic
def invitation_accept(*, actor: Actor, user: User, digest: str, now: datetime) -> Membership:
    """Make ``user``, whose address the invitation is for, a member; it is used up.

    Whoever invited must still be able to give the role. Raises ``NotFound`` for one that counts no more, ``Forbidden``
    for somebody else, and where the tenant is closed, ``Conflict`` for a member.
    """
    tenant = tenant_locked(invitation_that_counts(digest, now=now).tenant_id)
    # Under the lock: of two who use a link at once, one finds it used.
    found = invitation_that_counts(digest, now=now)
    if address_key(user.email) != address_key(found.email):
        raise Forbidden(f"This invitation is for {found.email}; you are signed in as {user.email}.", kind="invitations")
    require_open(replace(as_actor(user), operator=False), tenant)
    author = found.invited_by
    try:
        _require_giving(as_actor(author), tenant.name, Role(found.role))
    except (Forbidden, NotFound):
        raise Forbidden(
            f"{author.email}, who invited you, may not do so any more. Ask for another invitation.", kind="invitations"
        ) from None
    membership_lapsed_end(tenant.name, user)
    membership, made = Membership.objects.get_or_create(tenant=tenant, user=user, defaults={"role": found.role})
    if not made:
        raise Conflict(f"You are a member of {tenant.name} already.", kind="invitations")
    found.accepted_at = now
    found.save(update_fields=["accepted_at"])
    detail = {"user": user.email, "role": found.role, "invitedBy": author.email}
    target = f"tenants/{tenant.name}/invitations/{found.id}"
    actor.record(Action.INVITATION_ACCEPTED, chain=tenant.name, target=target, detail=detail)
    return membership


def _locked(actor: Actor, tenant: str, role: Role) -> Tenant:
    """The tenant, its row locked, in which the actor may give the role."""
    found = tenant_locked(tenant)
    _require_giving(actor, tenant, role)
    require_open(actor, found)
    return found


def _require_giving(actor: Actor, tenant: str, role: Role) -> None:
    own = require_lasting_role(actor, tenant, Role.ADMIN)
    if role is Role.OWNER and not role_at_least(own, Role.OWNER):
        raise Forbidden("Only owners may make, change or remove owners.", kind="members")


def _checked(email: str, role: str, days: int) -> Role:
    causes = []
    try:
        check_address(email)
    except ValidationError as error:
        causes.append(Cause("FieldValueInvalid", error.messages[0], "email"))
    if role not in Role.values:
        causes.append(Cause("FieldValueNotSupported", f'Unsupported value: "{role[:32]}"', "role"))
    if not 1 <= days <= DAYS_MAX:
        causes.append(Cause("FieldValueInvalid", f"From 1 to {DAYS_MAX} days.", "days"))
    if causes:
        raise Invalid(f"Invitation is invalid: {causes[0].message}", kind="Invitation", causes=causes)
    return Role(role)


def _author(actor: Actor) -> UUID:
    if actor.user_id is None:
        raise Forbidden("People invite people: sign in as one.", kind="invitations")
    return actor.user_id


def digest_of(secret: str) -> str:
    """What is kept of a link's secret, here and in the session of whoever has opened it."""
    return hashlib.sha256(secret.encode()).hexdigest()
