"""Who a verified token is here: accounts by issuer and subject, never by e-mail address (GW16, OIDC-07)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import Actor
from kube.authentication.userinfo import name_reasons
from kube.requests.status import AlreadyExists, Conflict, Invalid, NotFound
from portal.signin import accounts
from portal.signin.oidc.mapping import Rights
from tenants.models import Membership, Role, Tenant, User
from tenants.services.memberships import membership_remove, membership_set

logger = logging.getLogger(__name__)

SUBJECT_MAX = 255


class SignInRefused(Exception):
    """Who it is is known, and they may not come in: ``text`` and ``remedy`` are for them, ``reason`` for the audit."""

    def __init__(self, reason: str, text: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Person:
    """What verified claims say about somebody; ``email`` is empty unless the provider has verified it."""

    issuer: str
    subject: str
    email: str
    name: str


def person_of(issuer: str, claims: Mapping[str, Any]) -> Person:
    """The person of claims whose ``sub`` has been checked."""
    email, name = claims.get("email"), claims.get("name")
    verified = claims.get("email_verified") is True
    return Person(
        issuer=issuer,
        subject=claims["sub"],
        email=email if verified and isinstance(email, str) else "",
        name=name[:128] if isinstance(name, str) and not name_reasons(name) else "",
    )


def user_of(issuer: str, subject: object) -> User | None:
    """The account that is linked to the subject, disabled or not."""
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_MAX or "\0" in subject:
        return None
    return User.objects.filter(issuer=issuer, subject=subject).first()


@transaction.atomic
def user_admit(*, actor: Actor, person: Person, rights: Rights) -> User:
    """The person's account, made with their first sign-in, with the rights that the groups give.

    ``actor`` is the product itself. Raises ``SignInRefused``.
    """
    if len(person.subject) > SUBJECT_MAX:
        raise SignInRefused(
            "the subject is too long", "Your account at the provider cannot be used here.", "Tell an operator."
        )
    known = user_of(person.issuer, person.subject)
    _tenants_locked(known, rights)
    user = known or _made(actor, person)
    if not user.is_active:
        raise SignInRefused("the account is disabled", "Your account is disabled.", "Ask an operator of this platform.")
    if user.address_unproven:
        # The release before has linked it, beside this one, and left what opened it: a superuser has said whose it is.
        accounts.address_prove(actor=actor, user=user)
    email = User.objects.normalize_email(person.email)
    if email and email != user.email:
        accounts.email_follow(actor=actor, user=user, email=email)
    _apply(actor, user, rights)
    user.refresh_from_db()
    return user


def _made(actor: Actor, person: Person) -> User:
    if not person.email:
        raise SignInRefused(
            "the e-mail address is not verified",
            "The provider has not verified your e-mail address, and a new account needs one.",
            "Verify the address at the provider, then sign in again.",
        )
    try:
        return accounts.user_create(
            actor=actor, email=person.email, name=person.name, issuer=person.issuer, subject=person.subject
        )
    except AlreadyExists:
        # Two first sign-ins at once: the other one made the account.
        made = user_of(person.issuer, person.subject)
        if made is not None:
            return made
        raise SignInRefused(
            "the e-mail address is another account's",
            "There is an account with your e-mail address that does not belong to this sign-in.",
            "Sign in with your password. To sign in this way, ask an operator to link the account to the "
            f"OpenID subject “{person.subject}”.",
        ) from None
    except Invalid:
        raise SignInRefused(
            "the e-mail address is malformed",
            "The provider gave an e-mail address that cannot be used.",
            "Correct the address at the provider, then sign in again.",
        ) from None


def _tenants_locked(user: User | None, rights: Rights) -> None:
    """Lock the tenants where a role may change, before the person, as whoever issues something does (``rights_locked``)."""
    held = _held(user, rights)
    names = [tenant for tenant, role in rights.roles.items() if role != held.get(tenant)]
    if names:
        list(Tenant.objects.select_for_update(no_key=True).filter(name__in=names).order_by("name"))


def _held(user: User | None, rights: Rights) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user, tenant__in=rights.roles).values_list("tenant_id", "role"))


def _apply(actor: Actor, user: User, rights: Rights) -> None:
    """Make roles and operators' rights what the groups say; superusers keep theirs."""
    if rights.operator is not None and rights.operator != user.is_staff and not user.is_superuser:
        accounts.user_change(actor=actor, user_id=user.pk, is_staff=rights.operator)
    held = _held(user, rights)
    for tenant, role in rights.roles.items():
        if role == held.get(tenant):
            continue
        try:
            if role is not None:
                membership_set(actor=actor, tenant=tenant, user=user, role=Role(role))
            else:
                membership_remove(actor=actor, tenant=tenant, user=user)
        except NotFound:
            logger.warning("OIDC_GROUP_MAPPING names the tenant %s, which does not exist", tenant)
        except Conflict as error:
            # The last owner stays, whatever the groups say; the tenant's own log tells that they should not.
            action = Action.MEMBERSHIP_SET if role else Action.MEMBERSHIP_REMOVED
            detail = {"user": user.email, "role": role or "", "reason": error.message}
            target = f"tenants/{tenant}/members/{user.pk}"
            actor.record(action, chain=tenant, outcome=Outcome.DENIED, target=target, detail=detail)
