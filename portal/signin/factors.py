"""The second factor: an authenticator app (TOTP, RFC 6238), and recovery codes that stand in for it, once each (GW16)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from datetime import datetime
from typing import Final
from uuid import UUID

import pyotp
from django.conf import settings
from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Cause, Conflict, Invalid
from portal.signin.ranks import person_below
from tenants.clusters import encryption
from tenants.models import RecoveryCode, SecondFactor, User
from tenants.notices import note_account
from tenants.rights import person_locked

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 30
WINDOW: Final = (-1, 0, 1)
"""Steps beside the present one whose codes are taken: clocks differ, and people are slow."""

_NAMED: Final = 3
"""Passkeys that are told of by their names."""

RECOVERY_CODES: Final = 10
_GROUPS, _LETTERS = 4, 4
"""Of a recovery code: 80 random bits, so that a plain hash cannot be searched."""


def secret_new() -> str:
    """A secret for an app; kept nowhere until it is confirmed."""
    return pyotp.random_base32()


def app_address(user: User, secret: str) -> str:
    """What an app reads from the square (``otpauth://``)."""
    return pyotp.TOTP(secret).provisioning_uri(name=user.email, issuer_name=settings.SECOND_FACTOR_ISSUER)


def factor_of(user: User) -> SecondFactor | None:
    """The person's app, if they have one."""
    return SecondFactor.objects.filter(user=user).first()


def is_asked(user: User) -> bool:
    """Whether something is asked for after the password: a code of an app, or a passkey."""
    return factor_of(user) is not None or user.passkeys.exists()


def needs_factor(user: User) -> bool:
    """Whether this installation lets the person in by a password and a second factor alone."""
    return user.is_staff and bool(settings.SECOND_FACTOR_FOR_OPERATORS)


def codes_left(user: User) -> int:
    """How many recovery codes the person has not used yet."""
    return user.recovery_codes.filter(used_at=None).count()


@sensitive_variables("secret", "code")
@transaction.atomic
def factor_add(*, actor: Actor, user: User, secret: str, code: str, now: datetime) -> list[str]:
    """Ask for codes of the app with this secret from now on, in place of one from before; the new recovery codes.

    Raises ``Invalid`` unless ``code`` is the app's. That code opens nothing again.
    """
    step = _step_of(secret, _digits(code), now)
    if step is None:
        message = "This is not the code that the app shows now. Is the clock of your phone right?"
        raise Invalid(message, kind="User", causes=[Cause("FieldValueInvalid", message, "code")])
    person_locked(user)
    SecondFactor.objects.update_or_create(
        user=user,
        defaults={
            "sealed_secret": encryption.encrypt(secret),
            "last_step": step,
            "created_at": now,
            "last_used_at": now,
        },
    )
    codes = _codes_made(user)
    _record(actor, Action.FACTOR_ADDED, user)
    note_account(actor, user, "An authenticator app was set up for your account, with new recovery codes,")
    return codes


@transaction.atomic
def recovery_codes_renew(*, actor: Actor, user: User) -> list[str]:
    """New recovery codes in place of all from before. Raises ``Conflict`` for whoever has no app."""
    if not SecondFactor.objects.select_for_update(no_key=True).filter(user=user).exists():
        raise Conflict("Set up an authenticator app first.", kind="users")
    codes = _codes_made(user)
    _record(actor, Action.RECOVERY_CODES_MADE, user)
    note_account(actor, user, "New recovery codes were made for your account")
    return codes


@transaction.atomic
def factor_remove(*, actor: Actor, user_id: UUID) -> None:
    """Ask the person for no code any more: they themselves, or an operator for whoever has lost the phone.

    What an operator removes is all of it: the app, its recovery codes, passkeys.

    Raises ``Conflict`` where operators need one, ``NotFound``, ``Forbidden`` as ``person_below``.
    """
    if actor.user_id == user_id:
        user = User.objects.select_for_update(no_key=True).get(pk=user_id)
        if needs_factor(user):
            raise Conflict("Operators need a second factor here. Set up another app instead.", kind="users")
    else:
        user = person_below(actor, user_id)
    factors_end(actor=actor, user=user, passkeys=actor.user_id != user_id)


def factors_end(*, actor: Actor, user: User, passkeys: bool = True) -> bool:
    """Take the app, its recovery codes and passkeys away, in the caller's transaction; whether there was any."""
    removed, _ = SecondFactor.objects.filter(user=user).delete()
    if passkeys:
        removed += user.passkeys.all().delete()[0]
    user.recovery_codes.all().delete()
    if removed:
        _record(actor, Action.FACTOR_REMOVED, user)
        what = "The second factor and all passkeys were" if passkeys else "The second factor was"
        note_account(actor, user, f"{what} removed from your account")
    return bool(removed)


def factors_left(user: User) -> str:
    """What else than the password opens the account, in words for its person; empty for nothing."""
    names = [f"“{name}”" for name in user.passkeys.order_by("created_at").values_list("name", flat=True)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    word = "passkey" if len(names) == 1 else "passkeys"
    parts = [f"the {word} {', '.join(names[:_NAMED])}{more}"] if names else []
    parts += ["your authenticator app"] if factor_of(user) is not None else []
    return " and ".join(parts)


@sensitive_variables("code")
@transaction.atomic
def code_use(*, actor: Actor, user: User, code: str, now: datetime) -> str:
    """What opened by this code: ``app`` or ``recovery code``, and never again; empty for a code that opens nothing.

    Of a recovery code the person is told: whoever has the phone needs none.
    """
    factor = SecondFactor.objects.select_for_update(no_key=True).filter(user=user).first()
    if factor is None:
        return ""
    digits = _digits(code)
    if digits:
        try:
            step = _step_of(encryption.decrypt(factor.sealed_secret), digits, now)
        except encryption.DecryptionError:
            logger.exception("the second factor of %s cannot be opened with the configured sealing keys", user.pk)
            return ""
        if step is None or step <= factor.last_step:
            return ""
        factor.last_step, factor.last_used_at = step, now
        factor.save(update_fields=["last_step", "last_used_at"])
        return "app"
    # Under the lock of the person's factor: of two who use one at once, one finds it used.
    used = RecoveryCode.objects.filter(user=user, digest=_digest(code), used_at=None).update(used_at=now)
    if used:
        note_account(actor, user, f"A recovery code opened your account, {codes_left(user)} are left,")
    return "recovery code" if used else ""


def _codes_made(user: User) -> list[str]:
    user.recovery_codes.all().delete()
    codes = [_code() for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(code)) for code in codes)
    return codes


def _code() -> str:
    letters = base64.b32encode(secrets.token_bytes(_GROUPS * _LETTERS * 5 // 8)).decode().lower()
    return "-".join(letters[start : start + _LETTERS] for start in range(0, len(letters), _LETTERS))


def _step_of(secret: str, digits: str, now: datetime) -> int | None:
    """The time step that shows these digits; all are compared, and each in constant time."""
    app, present = pyotp.TOTP(secret, interval=STEP_SECONDS), int(now.timestamp()) // STEP_SECONDS
    shown = [(present + beside, app.generate_otp(present + beside)) for beside in WINDOW]
    found = [step for step, code in shown if hmac.compare_digest(code.encode(), digits.encode())]
    return max(found, default=None)


def _digits(code: str) -> str:
    """The digits of an app's code, however they were grouped; empty for what is none."""
    digits = "".join(code.split())
    return digits if len(digits) == 6 and digits.isascii() and digits.isdigit() else ""


def _digest(code: str) -> str:
    letters = "".join(letter for letter in code.lower() if letter.isalnum())
    return hashlib.sha256(letters.encode()).hexdigest()


def _record(actor: Actor, action: Action, user: User) -> None:
    actor.record(action, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail={"user": user.email})
