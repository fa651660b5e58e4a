"""Sign-in, and the accounts behind it: throttled, audited, and the same answer for every kind of failure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import auth
from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from access.credentials.logins import logins_end
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import AlreadyExists, Cause, Conflict, Forbidden, Invalid
from portal.database.scopes import everything
from portal.http.actors import actor_of, visitor_of
from portal.signin import attempts, factors, refusals
from portal.signin.ranks import RANKS, is_superuser, person_below
from portal.signin.sessions import sessions_end
from tenants.models import User
from tenants.models.mailaddresses import check_address
from tenants.models.people import next_epoch
from tenants.notices import note_account
from tenants.rights import person_locked, require_operator
from tenants.services.invitations import invitation_accept, invitation_that_counts
from tenants.services.revocation import access_tokens_end, credentials_end

_CHANGEABLE = ("name", "status", *RANKS, "issuer", "subject")
_LINK = {"issuer", "subject"}
_NEVER_ONES_OWN = {"status", *RANKS, *_LINK}
_SUPERUSERS_ONLY = {"is_superuser", *_LINK}

MAX_PASSWORD = 128
"""Longer passwords are refused unread: hashing a megabyte is a cheap way to keep a server busy."""


@everything()
def password_try(request: HttpRequest, *, email: str, password: str) -> User | None:
    """Whose password this is, or ``None``: which of the two was wrong is never said. Nobody is signed in by it alone.

    Counted before any hashing (``portal.signin.attempts``); raises ``TooManyRequests``. A wrong one is audited.
    """
    attempt = attempts.attempt(request, email=email)
    found: Any = auth.authenticate(request, username=email, password=password)
    if found is None:
        refusals.record(request, 401, Action.SIGN_IN, name=email, target="session")
        return None
    attempt.succeeded()
    user: User = found
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
    is_auditor: bool = False,
    issuer: str = "",
    subject: str = "",
) -> User:
    """Create an account; without a password only single sign-on, as ``subject`` of ``issuer``, opens it, or a link.

    The password has to be changed at the first sign-in: whoever has made the account knows it. Operators only. Raises
    ``AlreadyExists``, ``Conflict``, ``Invalid``.
    """
    require_operator(actor)
    if is_staff and is_auditor:
        raise Conflict("An operator is no auditor: auditors change nothing.", kind="users")
    rights = {"is_staff": is_staff, "is_auditor": is_auditor}
    given = bool(password)
    return _created(actor, email, name, password, **rights, issuer=issuer, subject=subject, password_given=given)


@transaction.atomic
def user_join(request: HttpRequest, *, digest: str, name: str, password: str, now: datetime) -> User:
    """Make the account of whoever was invited and has none, and let it accept (GW14); they are not signed in yet.

    Whose the address is, nobody has said but who has the link, and that is whoever made it as well.

    Raises ``NotFound`` for an invitation that counts no more, ``AlreadyExists`` where there is an account, ``Invalid`` for
    a weak password, and as ``invitation_accept``.
    """
    found = invitation_that_counts(digest, now=now)
    actor = visitor_of(request, found.email)
    user = _created(actor, found.email, name, password, address_unproven=True)
    invitation_accept(actor=replace(actor, user_id=user.pk), user=user, digest=digest, now=now)
    return user


def _created(
    actor: Actor,
    email: str,
    name: str,
    password: str,
    **fields: Any,
) -> User:
    email = email.strip()
    try:
        check_address(email)
        if password:
            _check_password(password, None)
    except ValidationError as error:
        causes = [
            Cause("FieldValueInvalid", message, "password" if password else "email") for message in error.messages
        ]
        raise Invalid(f"User is invalid: {causes[0].message}", kind="User", causes=causes) from error
    try:
        with transaction.atomic():
            user = User.objects.create_user(email, password or None, name=name.strip()[:128], **fields)
    except IntegrityError:
        raise AlreadyExists(f"There is an account for {email} already.", kind="users") from None
    detail = {"user": email, "operator": user.is_staff, "auditor": user.is_auditor}
    actor.record(Action.USER_CREATED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
    return user


@transaction.atomic
def user_change(*, actor: Actor, user_id: UUID, **changes: Any) -> User:
    """Change name, status, is_staff, is_auditor, is_superuser, issuer or subject of an account. Operators only.

    Never one's own rights, nor what opens one's own account. Only superusers change superusers or make them (API-23), or
    say whose sign-in at which OpenID Connect provider opens an account. Whoever is made one has chosen their own password,
    and links for another end.
    Nobody is made an operator, auditor or superuser of whom nobody has shown that the address is theirs.

    Disabling ends all that opens anything for the person (``access_end``): who is enabled again signs in again. So does
    the first subject of an account whose address nobody had shown to be theirs. Raises ``NotFound``, ``Conflict``,
    ``Forbidden``, ``Invalid``.
    """
    changes = {field: value for field, value in changes.items() if field in _CHANGEABLE}
    user = person_below(actor, user_id)
    if actor.user_id == user.pk and _NEVER_ONES_OWN & set(changes):
        raise Conflict("You cannot disable, demote or link yourself; ask another operator.", kind="users")
    if _SUPERUSERS_ONLY & set(changes) and not is_superuser(actor):
        raise Forbidden("Only superusers change superusers, or link accounts to a provider.", kind="users")
    if user.address_unproven and any(changes.get(rank) for rank in RANKS):
        raise Conflict(
            f"Nobody has shown yet that {user.email} is theirs: first they set a new password by a link that is mailed there, "
            "or a superuser links the account to the provider.",
            kind="users",
        )
    if changes.get("is_staff") and user.is_auditor:
        # By a provider's groups too, which know of operators alone.
        changes.setdefault("is_auditor", False)
    if changes.get("is_superuser") and not user.is_superuser:
        # What operators could make for this account must not open that of a superuser.
        if user.password_given:
            raise Conflict("The password was given by somebody: its person chooses another one first.", kind="users")
        user.password_resets.filter(ended_at=None).update(ended_at=timezone.now())
    before = {field: getattr(user, field) for field in changes}
    proof = user.get_session_auth_hash()
    for field, value in changes.items():
        setattr(user, field, value)
    if _LINK & set(changes) and user.subject and not user.issuer:
        # Nobody could sign in by it, and what opened the account before may end with it.
        words = "A subject is one of an issuer: name the provider as well."
        raise Invalid(words, kind="User", causes=[Cause("FieldValueRequired", words, "issuer")])
    if user.is_auditor and user.is_staff:
        raise Conflict("An operator is no auditor: auditors change nothing.", kind="users")
    try:
        with transaction.atomic():
            user.save(update_fields=list(changes))
    except IntegrityError:
        raise Conflict("Another account is linked to this subject already.", kind="users") from None
    detail: dict[str, Any] = {"user": user.email, "before": before, "after": changes}
    if changes.get("subject") and user.address_unproven:
        address_prove(actor=actor, user=user)  # a superuser has said whose it is
    elif not user.is_active:
        detail |= _all_ended(actor, user).counts()
    elif user.is_auditor and not before.get("is_auditor", True):
        # What was issued before would go on by itself.
        logins_end(actor=actor, user=user, now=timezone.now())
        detail["credentials_revoked"] = credentials_end(actor=actor, user=user)
    elif before.get("is_staff") and not user.is_staff:
        detail["credentials_revoked"] = credentials_end(actor=actor, user=user)
    if proof != user.get_session_auth_hash():
        sessions_end(actor=actor, user=user, now=timezone.now())
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
    return user


@dataclass(frozen=True, slots=True)
class Ended:
    """What ended with a person's access: how many of each. Credentials of a cluster end there within seconds."""

    sessions: int
    machines: int
    tokens: int
    credentials: int
    links: int

    def counts(self) -> dict[str, int]:
        """The same for the audit."""
        return {f"{name}_ended": number for name, number in asdict(self).items()}


@transaction.atomic
def access_end(*, actor: Actor, user_id: UUID) -> tuple[Ended, UUID]:
    """Disable an account and end all that opens anything for its person; what that was, and the event that says so.

    Sessions, machines, personal access tokens, credentials, links for a new password: also of an account that is disabled
    already. Operators, never for themselves. Raises ``NotFound``, ``Conflict``, ``Forbidden``.
    """
    user = person_below(actor, user_id)
    if actor.user_id == user.pk:
        raise Conflict("You cannot end your own access; ask another operator.", kind="users")
    user.status = User.Status.DISABLED
    user.save(update_fields=["status"])
    ended = _all_ended(actor, user)
    detail = {"user": user.email, **ended.counts()}
    entry = actor.record(Action.ACCESS_ENDED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
    return ended, entry.pk


def _all_ended(actor: Actor, user: User) -> Ended:
    now = timezone.now()
    User.objects.filter(pk=user.pk).update(session_epoch=next_epoch(now))
    user.refresh_from_db(fields=["session_epoch"])
    machines = logins_end(actor=actor, user=user, now=now)
    return Ended(
        sessions=sessions_end(actor=actor, user=user, now=now),
        machines=machines,
        tokens=access_tokens_end(user),
        credentials=credentials_end(actor=actor, user=user),
        links=user.password_resets.filter(ended_at=None).update(ended_at=now),
    )


def address_prove(*, actor: Actor, user: User, keep_factors: bool = False) -> None:
    """Let the account be its address's, in the caller's transaction: whoever had it until now may be somebody else.

    All that opens anything ends, password, passkeys and second factor too (GW14), these unless ``keep_factors``.
    """
    user.address_unproven = False
    user.set_unusable_password()
    user.save(update_fields=["address_unproven", "password"])
    if not keep_factors:
        factors.factors_end(actor=actor, user=user)
    detail = {"user": user.email, "changed": "whose the address is", **_all_ended(actor, user).counts()}
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)


@transaction.atomic
def address_change(*, actor: Actor, user_id: UUID, email: str) -> User:
    """Give an account another address: its person signs in by it from then on, and is the person of no other.

    Links for a new password end, for they went to the mailbox from before. Who has the account, and whether somebody has shown
    that the address is theirs, stays. Operators, as ``person_below``, never their own. Raises ``NotFound``, ``Forbidden``,
    ``Conflict``, ``Invalid``, ``AlreadyExists``.
    """
    user = person_below(actor, user_id)
    if actor.user_id == user.pk:
        raise Conflict("You cannot change your own address; ask another operator.", kind="users")
    before, email = user.email, User.objects.normalize_email(email.strip())
    try:
        _address_set(actor, user, email)
    except ValidationError as error:
        causes = [Cause("FieldValueInvalid", message, "email") for message in error.messages]
        raise Invalid(f"User is invalid: {causes[0].message}", kind="User", causes=causes) from error
    except IntegrityError:
        raise AlreadyExists(f"There is an account for {email} already.", kind="users") from None
    user.password_resets.filter(ended_at=None).update(ended_at=timezone.now())
    note_account(actor, user, f"Your address here was changed from {before} to {email}")
    return user


@transaction.atomic
def email_follow(*, actor: Actor, user: User, email: str) -> None:
    """Take the address that the provider has verified, unless it is malformed or another account's (OIDC-07)."""
    with suppress(ValidationError, IntegrityError):
        _address_set(actor, user, email)


def _address_set(actor: Actor, user: User, email: str) -> None:
    """Set and audit it. Raises ``ValidationError``, ``IntegrityError`` where another account has it: then nothing is changed."""
    before = user.email
    check_address(email)
    user.email = email
    try:
        with transaction.atomic():
            user.save(update_fields=["email"])
    except IntegrityError:
        user.email = before
        raise
    detail = {"user": email, "before": {"email": before}, "after": {"email": email}}
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)


@transaction.atomic
def password_change(*, actor: Actor, user: User, password: str, keep: str = "") -> None:
    """Set a new password; all sessions of the person end but the one with the key ``keep``. Raises ``Invalid``.

    Everybody their own, and another one than before; superusers anybody's, which its person has to change then, and with
    which goes what somebody may have added to the account. Raises ``Forbidden``.
    """
    theirs = actor.user_id == user.pk
    if not theirs and not is_superuser(actor):
        raise Forbidden("Only superusers change other people's passwords.", kind="users")
    if theirs:
        person_locked(user)
    else:
        added_end(actor=actor, user=user)
    password_set(actor=actor, user=user, password=password, given=not theirs, keep=keep)


def added_end(*, actor: Actor, user: User) -> None:
    """Take away what whoever had the account may have added to it, in the caller's transaction, and tell its person.

    Passkeys, second factor and access tokens.
    """
    factors.factors_end(actor=actor, user=user)
    ended = access_tokens_end(user)
    if ended:
        detail = {"user": user.email, "changed": "access tokens", "tokens_ended": ended}
        actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
        note_account(actor, user, "The access tokens of your account were revoked")


@sensitive_variables("password")
def password_set(*, actor: Actor, user: User, password: str, given: bool = False, keep: str = "") -> None:
    """The same in the caller's transaction, for whoever has shown a right to it. Raises ``Invalid``."""
    try:
        _check_password(password, user)
        if user.check_password(password):
            raise ValidationError("This is the password from before; choose another one.")
    except ValidationError as error:
        causes = [Cause("FieldValueInvalid", message, "password") for message in error.messages]
        raise Invalid(f"Password is invalid: {causes[0].message}", kind="User", causes=causes) from error
    now = timezone.now()
    user.set_password(password)
    user.password_given = given
    user.save(update_fields=["password", "password_given"])
    logins_end(actor=actor, user=user, now=now)
    ended = sessions_end(actor=actor, user=user, now=now, keep=keep)
    user.password_resets.filter(ended_at=None).update(ended_at=now)
    detail = {"user": user.email, "changed": "sign-in", "sessions_ended": ended}
    actor.record(Action.USER_CHANGED, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail=detail)
    note_account(actor, user, f"Your password was changed and your other sessions ended{left_after(user)}")


def left_after(user: User) -> str:
    """What a new password does not end, for its person to look through; empty where there is nothing."""
    tokens = user.access_tokens.filter(revoked_at=None, expires_at__gt=timezone.now()).count()
    left = factors.factors_left(user)
    said = f"; access tokens still work for you ({tokens}): revoke those that are not yours" if tokens else ""
    return said + (f"; {left} still sign you in: look through them on your profile" if left else "")


def _check_password(password: str, user: User | None) -> None:
    if len(password) > MAX_PASSWORD:
        raise ValidationError(f"At most {MAX_PASSWORD} characters.")
    password_validation.validate_password(password, user)
