"""Sign-in, and the accounts behind it: throttled, audited, and the same answer for every kind of failure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import auth
from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone

from access.credentials.logins import logins_end
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import AlreadyExists, Cause, Conflict, Forbidden, Invalid, NotFound
from portal.database.scopes import everything
from portal.http.actors import actor_of, visitor_of
from portal.signin import attempts, refusals
from tenants.models import User
from tenants.rights import require_operator
from tenants.services.invitations import invitation_accept, invitation_that_counts
from tenants.services.revocation import access_tokens_end, credentials_end

_CHANGEABLE = ("name", "status", "is_staff", "is_superuser", "issuer", "subject")
_SUPERUSERS_ONLY = {"is_superuser", "issuer", "subject"}

MAX_EMAIL = 254

MAX_PASSWORD = 128
"""Longer passwords are refused unread: hashing a megabyte is a cheap way to keep a server busy."""


@everything()
def sign_in(request: HttpRequest, *, email: str, password: str) -> User | None:
    """Sign the person in and return them, or ``None``: which of the two was wrong is never said.

    Counted before any hashing (``portal.signin.attempts``); raises ``TooManyRequests``. Both ends are audited.
    """
    attempt = attempts.attempt(request, email=email)
    found: Any = auth.authenticate(request, username=email, password=password)
    if found is None:
        refusals.record(request, 401, Action.SIGN_IN, name=email, target="session")
        return None
    attempt.succeeded()
    user: User = found
    auth.login(request, user)
    visitor_of(request, user.email, user).record(Action.SIGN_IN, chain=SYSTEM_CHAIN, target="session")
    return user


def come_in(request: HttpRequest, user: User) -> None:
    """Begin the session of somebody who has just set their first password."""
    auth.login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    visitor_of(request, user.email, user).record(Action.SIGN_IN, chain=SYSTEM_CHAIN, target="session")


def sign_out(request: HttpRequest) -> None:
    """End the caller's session in this browser and say so in the audit log."""
    if request.user.is_authenticated:
        actor_of(request).record(Action.SIGN_OUT, chain=SYSTEM_CHAIN, target="session")
    auth.logout(request)


@transaction.atomic
def user_create(
    *,
    actor: Actor,
    email: str,
    name: str = "",
    password: str = "",
    is_staff: bool = False,
    issuer: str = "",
    subject: str = "",
) -> User:
    """Create an account; without a password only single sign-on, as ``subject`` of ``issuer``, opens it.

    Operators only. Raises ``AlreadyExists``, ``Invalid``.
    """
    require_operator(actor)
    return _created(actor, email, name, password, is_staff=is_staff, issuer=issuer, subject=subject)


@transaction.atomic
def user_join(request: HttpRequest, *, digest: str, name: str, password: str, now: datetime) -> User:
    """Make the account of whoever was invited and has none, and let it accept (GW14); they are not signed in yet.

    Raises ``NotFound`` for an invitation that counts no more, ``AlreadyExists`` where there is an account, ``Invalid`` for
    a weak password, and as ``invitation_accept``.
    """
    found = invitation_that_counts(digest, now=now)
    actor = visitor_of(request, found.email)
    user = _created(actor, found.email, name, password)
    invitation_accept(actor=replace(actor, user_id=user.pk), user=user, digest=digest, now=now)
    return user


def _created(
    actor: Actor,
    email: str,
    name: str,
    password: str,
    *,
    is_staff: bool = False,
    issuer: str = "",
    subject: str = "",
) -> User:
    email = email.strip()
    try:
        _check_email(email)
        if password:
            _check_password(password, None)
    except ValidationError as error:
        causes = [
            Cause("FieldValueInvalid", message, "password" if password else "email") for message in error.messages
        ]
        raise Invalid(f"User is invalid: {causes[0].message}", kind="User", causes=causes) from error
    try:
        with transaction.atomic():
            user = User.objects.create_user(
                email, password or None, name=name.strip()[:128], is_staff=is_staff, issuer=issuer, subject=subject
            )
    except IntegrityError:
        raise AlreadyExists(f"There is an account for {email} already.", kind="users") from None
    actor.record(
        Action.USER_CREATED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail={"user": email, "operator": is_staff}
    )
    return user


@transaction.atomic
def user_change(*, actor: Actor, user_id: UUID, **changes: Any) -> User:
    """Change name, status, is_staff, is_superuser, issuer or subject of an account. Operators only.

    Never one's own rights. Only superusers change superusers or make them (API-23), or say whose sign-in at the
    OpenID Connect provider opens an account.

    Disabling ends the person's sessions with their next request, and their credentials and personal access tokens: who is
    enabled again signs in again. Raises ``NotFound``, ``Conflict``, ``Forbidden``.
    """
    require_operator(actor)
    user = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
    if user is None:
        raise NotFound("There is no such user.", kind="users")
    if actor.user_id == user.pk and {"status", "is_staff", "is_superuser"} & set(changes):
        raise Conflict("You cannot disable or demote yourself; ask another operator.", kind="users")
    if (user.is_superuser or _SUPERUSERS_ONLY & set(changes)) and not _is_superuser(actor):
        raise Forbidden("Only superusers change superusers, or link accounts to a provider.", kind="users")
    changes = {field: value for field, value in changes.items() if field in _CHANGEABLE}
    before = {field: getattr(user, field) for field in changes}
    for field in _CHANGEABLE:
        if field in changes:
            setattr(user, field, changes[field])
    if not user.is_active:
        user.session_epoch += 1
    try:
        with transaction.atomic():
            user.save(update_fields=[*(field for field in _CHANGEABLE if field in changes), "session_epoch"])
    except IntegrityError:
        raise Conflict("Another account is linked to this subject already.", kind="users") from None
    detail: dict[str, Any] = {"user": user.email, "before": before, "after": changes}
    if not user.is_active or (before.get("is_staff") and not user.is_staff):
        detail["credentials_revoked"] = credentials_end(actor=actor, user=user)
    if not user.is_active:
        detail["tokens_revoked"] = access_tokens_end(user)
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
    return user


@transaction.atomic
def email_follow(*, actor: Actor, user: User, email: str) -> None:
    """Take the address that the provider has verified, unless it is malformed or another account's (OIDC-07)."""
    before = user.email
    try:
        _check_email(email)
        with transaction.atomic():
            user.email = email
            user.save(update_fields=["email"])
    except (ValidationError, IntegrityError):
        user.email = before
        return
    detail = {"user": email, "before": {"email": before}, "after": {"email": email}}
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)


@transaction.atomic
def password_change(*, actor: Actor, user: User, password: str) -> None:
    """Set a new password; all other sessions of the person end. Raises ``Invalid`` for a weak one.

    Everybody their own, superusers anybody's; raises ``Forbidden``.
    """
    if actor.user_id != user.pk and not _is_superuser(actor):
        raise Forbidden("Only superusers change other people's passwords.", kind="users")
    try:
        _check_password(password, user)
    except ValidationError as error:
        causes = [Cause("FieldValueInvalid", message, "password") for message in error.messages]
        raise Invalid(f"Password is invalid: {causes[0].message}", kind="User", causes=causes) from error
    user.set_password(password)
    user.save(update_fields=["password"])
    logins_end(actor=actor, user=user, now=timezone.now())
    detail = {"user": user.email, "changed": "sign-in"}
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)


def _is_superuser(actor: Actor) -> bool:
    return actor.user_id is not None and User.objects.filter(pk=actor.user_id, is_superuser=True).exists()


def _check_email(email: str) -> None:
    validate_email(email)
    if len(email) > MAX_EMAIL:
        raise ValidationError(f"At most {MAX_EMAIL} characters.")


def _check_password(password: str, user: User | None) -> None:
    if len(password) > MAX_PASSWORD:
        raise ValidationError(f"At most {MAX_PASSWORD} characters.")
    password_validation.validate_password(password, user)
