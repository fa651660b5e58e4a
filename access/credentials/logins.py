"""Logins: machines on which a person has signed in for kubectl, from the wish to the end (D9).

Asked for by a browser (RFC 6749 with PKCE) or by a device (RFC 8628), allowed in a session of the portal, dead with it.
What opens a login is another secret after each use; only digests are kept. A secret that has been used before, and
followed by another that was used, is in two hands: then the login ends.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from access.models import Login
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
    login = Login.objects.select_for_update().get(pk=login_of_user_code(user_code, now=now).pk)
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
    login = Login.objects.select_for_update().filter(code_digest=_digest(code)).first()
    if login is not None and login.redeemed_at is not None:
        _end(login, "a code that was used twice", now)
        return None
    return login if login is not None and login.expires_at > now and login_lives(login, now=now) else None


@sensitive_variables()
def login_of_device(code: str) -> Login | None:
    """The login of a device's secret, locked, whatever became of it; ``None`` for one that has been opened already."""
    return Login.objects.select_for_update().filter(device_digest=_digest(code), redeemed_at=None).first()


def login_polled(login: Login, *, now: datetime) -> bool:
    """Note that a device has asked; whether it asks too often."""
    before, login.polled_at = login.polled_at, now
    login.save(update_fields=["polled_at"])
    return before is not None and now - before < timedelta(seconds=DEVICE_INTERVAL - 1)


@sensitive_variables()
def login_of_secret(secret: str, *, now: datetime) -> Login | None:
    """The living login that a secret opens, locked; one that should be forgotten ends it."""
    name, _, _ = secret.partition(".")
    try:
        login = Login.objects.select_for_update().filter(pk=UUID(name)).first()
    except ValueError:
        return None
    if login is None or not login.secret_digest:
        return None
    digest = _digest(secret)
    if hmac.compare_digest(digest, login.secret_digest):
        login.proven_digest = digest
    elif not hmac.compare_digest(digest, login.proven_digest):
        _end(login, "a secret that was used twice", now)
        return None
    return login if login_lives(login, now=now) else None


@sensitive_variables()
def login_next_secret(login: Login, *, now: datetime) -> str:
    """The secret that opens the login next; the first one makes it last as long as the portal's session."""
    secret = f"{login.pk.hex}.{secrets.token_urlsafe(32)}"
    login.secret_digest, login.last_used_at = _digest(secret), now
    if login.redeemed_at is None:
        assert login.session is not None  # noqa: S101 - whoever asks has seen that it lives
        login.redeemed_at, login.expires_at = now, login.session.expire_date
    login.save(update_fields=["secret_digest", "proven_digest", "last_used_at", "redeemed_at", "expires_at"])
    return secret


def login_lives(login: Login, *, now: datetime) -> bool:
    """Whether person and session are still there, and nobody has ended it."""
    return (
        login.revoked_at is None
        and login.user is not None
        and login.user.is_active
        and login.session is not None
        and login.session.expire_date > now
    )


@transaction.atomic
def login_revoke(*, actor: Actor, login_id: UUID, now: datetime) -> None:
    """End a login, and every token that came of it; its own person and operators may. Twice is once. Raises ``NotFound``."""
    login = Login.objects.select_for_update().filter(pk=login_id).first()
    if login is None or not (actor.operator or actor.user_id == login.user_id):
        raise NotFound("There is no such login.", kind="logins", name=str(login_id))
    if login.revoked_at is None:
        login.revoked_at, login.revoked_by = now, actor.name[:254]
        login.save(update_fields=["revoked_at", "revoked_by"])
        _record(actor, login, Action.LOGIN_REVOKED, way="revoked")
        credentials_changed()


def logins_end(*, actor: Actor, user: User, now: datetime) -> int:
    """End all logins of a person, in the caller's transaction; how many there were."""
    ended = user.logins.filter(revoked_at=None).update(revoked_at=now, revoked_by=actor.name[:254])
    credentials_changed()
    return ended


def logins_of(user: User) -> list[Login]:
    """The person's logins that were opened, the last used first; fifty at most."""
    rows = Login.objects.filter(user=user).exclude(redeemed_at=None).select_related("user", "session")
    return list(rows.order_by("-last_used_at")[:50])


def logins_forget(*, now: datetime) -> int:
    """Delete wishes that nobody granted or that were never opened (a worker's sweep); how many."""
    return Login.objects.filter(redeemed_at=None, expires_at__lt=now - timedelta(hours=1)).delete()[0]


def _end(login: Login, why: str, now: datetime) -> None:
    if login.revoked_at is not None:
        return
    login.revoked_at, login.revoked_by = now, "system:portal"
    login.save(update_fields=["revoked_at", "revoked_by"])
    actor = Actor(name="system:portal", user_id=login.user_id)
    _record(actor, login, Action.LOGIN_REVOKED, way=why, outcome=Outcome.DENIED)
    credentials_changed()


def _record(actor: Actor, login: Login, action: Action, *, way: str, outcome: Outcome = Outcome.SUCCESS) -> None:
    detail = {"way": way, "machine": login.machine, "address": login.ip_address}
    actor.record(action, chain=SYSTEM_CHAIN, outcome=outcome, target=f"logins/{login.id}", detail=detail)


def _digest(text: str) -> str:
    # The secrets carry 256 random bits: a plain hash cannot be searched.
    return hashlib.sha256(text.encode()).hexdigest()
