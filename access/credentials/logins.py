"""Logins: machines on which a person has signed in for kubectl, from the wish to the end (D9).

Asked for by a browser (RFC 6749 with PKCE) or by a device (RFC 8628), allowed in a session of the portal, dead with it.
What opens a login is another secret after each use, of one family; only digests are kept. A secret that has been used
before, and followed by another that was used, is in two hands: then the login ends (RFC 9700, 4.14).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.db import transaction
from django.db.models import Q
from django.utils.crypto import constant_time_compare
from django.views.decorators.debug import sensitive_variables

from access.models import Credential, Login
from audit.actions import Action
from audit.addresses import address_of
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import NotFound
from tenants.models import User
from tenants.services.revocation import credentials_changed

CODE_SECONDS: Final = 60
"""The life of an authorization code."""

DEVICE_SECONDS: Final = 600
"""For how long a device's code can be entered."""

DEVICE_INTERVAL: Final = 5
TOKEN_SECONDS: Final = 600
"""The life of a token for the API server."""

_BATCH: Final = 200
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Of codes that people type: no vowels, so no words (RFC 8628, 6.1)."""


@sensitive_variables()
@transaction.atomic
def login_allow_browser(
    *,
    actor: Actor,
    user: User,
    session_key: str,
    machine: str,
    code: str,
    redirect_uri: str,
    challenge: str,
    now: datetime,
) -> None:
    """A person lets a program on the machine of the browser in, by an authorization code: good once and for a minute."""
    login = Login.objects.create(
        user=user,
        session_id=session_key,
        machine=machine,
        ip_address=address_of(actor.ip),
        user_agent=actor.user_agent[:256],
        redirect_uri=redirect_uri,
        code_challenge=challenge,
        code_digest=_digest(code),
        created_at=now,
        expires_at=now + timedelta(seconds=CODE_SECONDS),
    )
    _record(actor, login, Action.LOGIN_ALLOWED, way="browser")


@sensitive_variables()
def login_ask_by_device(
    *, machine: str, device_code: str, user_code: str, ip: str | None, user_agent: str, now: datetime
) -> None:
    """A device, which keeps ``device_code``, asks to be let in by whoever types ``user_code``."""
    Login.objects.create(
        machine=machine,
        ip_address=address_of(ip),
        user_agent=user_agent[:256],
        device_digest=_digest(device_code),
        user_code=user_code,
        created_at=now,
        expires_at=now + timedelta(seconds=DEVICE_SECONDS),
    )


def login_of_user_code(text: str, *, now: datetime) -> Login:
    """The device that waits for this code, typed in any case, with or without the dash. Raises ``NotFound``."""
    letters = "".join(letter for letter in text.upper() if letter in _LETTERS)
    waiting = Login.objects.filter(user=None, denied_at=None, expires_at__gt=now)
    found = waiting.filter(user_code=f"{letters[:4]}-{letters[4:]}").first()
    if found is None:
        raise NotFound("No device waits for this code. Codes end after ten minutes.", kind="logins")
    return found


@transaction.atomic
def login_decide(*, actor: Actor, user: User, session_key: str, user_code: str, allow: bool, now: datetime) -> None:
    """Let the device in that shows this code, or turn it away. Raises ``NotFound``."""
    login = Login.objects.select_for_update(no_key=True).get(pk=login_of_user_code(user_code, now=now).pk)
    if login.user_id is not None or login.denied_at is not None:
        raise NotFound("No device waits for this code.", kind="logins")
    login.user, login.user_code = user, None
    if allow:
        login.session_id = session_key
    else:
        login.denied_at = now
    login.save(update_fields=["user", "user_code", "session", "denied_at"])
    _record(actor, login, Action.LOGIN_ALLOWED if allow else Action.LOGIN_DENIED, way="device")


@sensitive_variables()
def login_of_code(code: str, *, now: datetime) -> Login | None:
    """The login that an authorization code opens, locked; a code that is used again ends what came of it."""
    login = Login.objects.select_for_update(no_key=True).filter(code_digest=_digest(code)).first()
    if login is not None and login.redeemed_at is not None:
        _end(login, "a code that was used twice", now)
        return None
    return login if login is not None and login.expires_at > now and login_lives(login, now=now) else None


@sensitive_variables()
def login_of_device(code: str) -> Login | None:
    """The login of a device's secret, locked, whatever became of it; ``None`` for one that has been opened already."""
    return Login.objects.select_for_update(no_key=True).filter(device_digest=_digest(code), redeemed_at=None).first()


def login_polled(login: Login, *, now: datetime) -> bool:
    """Note that a device has asked; whether it asks too often."""
    before, login.polled_at = login.polled_at, now
    login.save(update_fields=["polled_at"])
    return before is not None and now - before < timedelta(seconds=DEVICE_INTERVAL - 1)


@sensitive_variables()
def login_of_secret(secret: str, *, now: datetime) -> Login | None:
    """The living login that a secret opens, locked; one of its family that should be forgotten ends it."""
    family, _, _ = secret.partition(".")
    login = Login.objects.select_for_update(no_key=True).filter(family_digest=_digest(family)).first()
    if login is None:
        return None
    digest = _digest(secret)
    if constant_time_compare(digest, login.secret_digest):
        login.proven_digest = digest
    elif not constant_time_compare(digest, login.proven_digest):
        _end(login, "a secret that was used twice", now)
        return None
    return login if login_lives(login, now=now) else None


@sensitive_variables()
def login_next_secret(login: Login, before: str, *, now: datetime) -> str:
    """The secret that opens a living login after ``before``; the first one, after nothing, begins the family."""
    family = before.partition(".")[0] or secrets.token_urlsafe(32)
    secret = f"{family}.{secrets.token_urlsafe(32)}"
    login.family_digest, login.secret_digest = _digest(family), _digest(secret)
    login.last_used_at, login.redeemed_at = now, login.redeemed_at or now
    login.expires_at = login_end(login)
    login.save(
        update_fields=[
            *("family_digest", "secret_digest", "proven_digest"),
            *("last_used_at", "redeemed_at", "expires_at"),
        ]
    )
    return secret


def login_end(login: Login) -> datetime:
    """When a living login ends by itself: with the portal's session, which goes on while it is used."""
    assert login.session is not None  # noqa: S101 - whoever asks has seen that it lives
    return login.session.expire_date


def login_lives(login: Login, *, now: datetime) -> bool:
    """Whether nobody has ended it, and the session is there and still signs this person in."""
    user, session = login.user, login.session
    if login.revoked_at is not None or user is None or session is None:
        return False
    if not user.is_active or session.expire_date <= now:
        return False
    said = session.get_decoded()
    return said.get(SESSION_KEY) == str(user.pk) and constant_time_compare(
        said.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash()
    )


@transaction.atomic
def login_revoke(*, actor: Actor, login_id: UUID, now: datetime) -> None:
    """End a login, and every token that came of it; its own person and operators may. Twice is once. Raises ``NotFound``."""
    login = Login.objects.select_for_update(no_key=True).filter(pk=login_id).first()
    if login is None or not (actor.operator or actor.user_id == login.user_id):
        raise NotFound("There is no such login.", kind="logins", name=str(login_id))
    if login.revoked_at is None:
        _revoke([login], actor, now)
        _record(actor, login, Action.LOGIN_REVOKED, way="revoked")


def logins_end(*, actor: Actor, user: User, now: datetime, sessions: Iterable[str] | None = None) -> int:
    """End all logins of a person, or those of some sessions, in the caller's transaction; how many there were."""
    rows = Login.objects.filter(user=user, revoked_at=None)
    return _revoke(rows if sessions is None else rows.filter(session__in=list(sessions)), actor, now)


def logins_of(user: User) -> list[Login]:
    """The person's logins that were opened, the last used first; fifty at most."""
    rows = Login.objects.filter(user=user).exclude(redeemed_at=None).select_related("user", "session")
    return list(rows.order_by("-last_used_at")[:50])


@transaction.atomic
def logins_sweep(*, now: datetime) -> int:
    """Delete wishes that nobody granted or that were never opened, and write down the end of logins whose session is gone.

    Those have ended already: whoever asks about one asks about its session. How many there were (a worker's sweep).
    """
    forgotten, _ = Login.objects.filter(redeemed_at=None, expires_at__lt=now - timedelta(hours=1)).delete()
    opened = (
        Login.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        .filter(revoked_at=None)
        .exclude(redeemed_at=None)
    )
    gone = list(opened.filter(Q(session=None) | Q(session__expire_date__lte=now))[:_BATCH])
    for login in gone:
        _end(login, "the session has ended", now, outcome=Outcome.SUCCESS)
    return forgotten + len(gone)


def _end(login: Login, why: str, now: datetime, *, outcome: Outcome = Outcome.DENIED) -> None:
    if login.revoked_at is not None:
        return
    actor = Actor(name="system:portal", user_id=login.user_id)
    _revoke([login], actor, now)
    _record(actor, login, Action.LOGIN_REVOKED, way=why, outcome=outcome)


def _revoke(logins: Iterable[Login], actor: Actor, now: datetime) -> int:
    """Mark logins and the credentials that came of them as ended; the API servers hear of it with the commit."""
    ended = [login.pk for login in logins]
    by = {"revoked_at": now, "revoked_by": actor.name[:254]}
    Login.objects.filter(pk__in=ended).update(**by)
    Credential.objects.filter(login__in=ended, revoked_at=None).update(**by, revocation_confirmed_at=now)
    credentials_changed()
    return len(ended)


def _record(actor: Actor, login: Login, action: Action, *, way: str, outcome: Outcome = Outcome.SUCCESS) -> None:
    detail = {"way": way, "machine": login.machine, "address": login.ip_address}
    actor.record(action, chain=SYSTEM_CHAIN, outcome=outcome, target=f"logins/{login.id}", detail=detail)


def _digest(text: str) -> str:
    # The secrets carry 256 random bits: a plain hash cannot be searched.
    return hashlib.sha256(text.encode()).hexdigest()
