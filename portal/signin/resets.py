"""A new password for whoever has lost theirs: a link, once and for a short time, or a password that has to be changed (GW16).

Of a link only a digest is kept. Links by e-mail are made by a worker: an answer to whoever asks takes as long, and says
the same, whether there is an account or not, and the secret is in no message of the queue.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import Conflict, NotFound
from portal.database.scopes import everything
from portal.signin import accounts
from portal.signin.ranks import has_rank, person_below
from portal.signin.sessions import sessions_end
from tenants.models import PasswordReset, User
from tenants.notices import note_account

BY_OPERATOR: Final = timedelta(hours=24)
BY_MAIL: Final = timedelta(hours=1)
MAILED: Final = 10
"""Links of one account that were asked for by e-mail and wait: more than its pace makes within their time."""
_PRODUCT: Final = "system:portal"


@dataclass(frozen=True, slots=True)
class CreatedReset:
    """A new link's row; ``secret`` is in the link, shown once, and known to nobody afterwards."""

    reset: PasswordReset
    secret: str = field(repr=False)


@transaction.atomic
def password_link_create(*, actor: Actor, user_id: UUID, now: datetime, keep_factors: bool = False) -> CreatedReset:
    """A link by which a person sets a new password; it ends those from before. The present password goes on until then.

    Passkeys, second factor and access tokens go with it, for whoever had the account may have added them, unless
    ``keep_factors``.
    Operators; raises ``NotFound``, ``Forbidden`` as ``person_below``, ``Conflict`` for a disabled account.
    """
    user = _reachable(actor, user_id)
    links_end(user, now=now)
    return _created(actor, user, now, BY_OPERATOR, made_by=actor.name, removes_factors=not keep_factors)


@sensitive_variables("password")
@transaction.atomic
def password_give(*, actor: Actor, user_id: UUID, now: datetime, keep_factors: bool = False) -> str:
    """Another password, made up, which opens nothing but the choice of a new one; all sessions of the person end.

    So do passkeys, second factor and access tokens, unless ``keep_factors``.

    As ``password_link_create``.
    """
    user = _reachable(actor, user_id)
    password = secrets.token_urlsafe(15)
    user.set_password(password)
    user.password_given = True
    user.save(update_fields=["password", "password_given"])
    ended = sessions_end(actor=actor, user=user, now=now)
    links_end(user, now=now)
    _record(actor, Action.PASSWORD_GIVEN, user, sessions_ended=ended)
    note_account(actor, user, "You were given another password")
    if not keep_factors:
        accounts.added_end(actor=actor, user=user)
    return password


def password_link_that_counts(digest: str, *, now: datetime) -> PasswordReset:
    """The row of a link with this digest, while it counts. Raises ``NotFound``, the same for every other link."""
    found = PasswordReset.objects.filter(digest=digest).select_related("user").first()
    if found is None or found.ended_at or found.expires_at <= now or not found.user.is_active:
        raise NotFound(
            "This link does not count any more: it was used, replaced, or its time is over. Ask for another one.",
            kind="users",
        )
    return found


@sensitive_variables("password")
@transaction.atomic
def password_link_use(*, actor: Actor, digest: str, password: str, now: datetime) -> User:
    """Set the password of whoever a link is for; it is used up, and all their sessions end.

    They are not signed in by it: a second factor is still asked for, unless the link takes it away, or shows whose the
    account is, with which all from before ends. Raises ``NotFound``, ``Invalid``.
    """
    person = password_link_that_counts(digest, now=now).user_id
    user = User.objects.select_for_update(no_key=True).get(pk=person)
    # Under the lock: of two who use a link at once, one finds it used.
    link = password_link_that_counts(digest, now=now)
    if not link.made_by and user.address_unproven:
        # It went to the address and to nobody else. A mailbox alone opens nothing that is everybody's.
        accounts.address_prove(actor=actor, user=user, keep_factors=has_rank(user))
    if link.removes_factors:
        accounts.added_end(actor=actor, user=user)
    accounts.password_set(actor=actor, user=user, password=password)
    return user


@everything()  # whoever asks is nobody yet
def password_link_ask(*, email: str, now: datetime) -> bool:
    """Send a link to whoever has this address and a password here; whether one was sent is for the caller alone.

    Anybody may ask, so it ends no link that waits: an operator's least of all. The first that is used ends the others.
    """
    user = User.objects.filter(email__same=email, status=User.Status.ACTIVE).first()
    if user is None or not user.has_usable_password():
        return False
    with transaction.atomic():
        mailed = user.password_resets.filter(ended_at=None, expires_at__gt=now, made_by="").order_by("-created_at")
        oldest = list(mailed.values_list("pk", flat=True)[MAILED - 1 :])
        user.password_resets.filter(pk__in=oldest).update(ended_at=now)
        made = _created(Actor(name=_PRODUCT, user_id=user.pk), user, now, BY_MAIL)
    # The host of the question is the asker's choice: the installation's own address leads here.
    send(user, settings.PORTAL_URL + reverse("reset-by", args=[made.secret]), hours=1)
    return True


@sensitive_variables("link")
def send(user: User, link: str, *, hours: int) -> None:
    """Send a link by e-mail. Raises ``OSError`` (also of ``smtplib``) when the server does not take it."""
    text = (
        f"Somebody asked for a new password for {user.email} at {settings.PORTAL_URL}.\n\n"
        f"Set it here, within {hours} hour{'' if hours == 1 else 's'} and once:\n\n{link}\n\n"
        "If it was not you, do nothing: the password stays as it is.\n"
    )
    send_mail("A new password", text, settings.DEFAULT_FROM_EMAIL, [user.email])


def links_end(user: User, *, now: datetime) -> int:
    """Let no link of the person count any more, in the caller's transaction; how many there were."""
    return user.password_resets.filter(ended_at=None).update(ended_at=now)


def digest_of(secret: str) -> str:
    """What is kept of a link's secret, here and in the session of whoever has opened it."""
    # 256 random bits: a plain hash cannot be searched.
    return hashlib.sha256(secret.encode()).hexdigest()


def _reachable(actor: Actor, user_id: UUID) -> User:
    user = person_below(actor, user_id)
    if not user.is_active:
        raise Conflict("The account is disabled; enable it first.", kind="users")
    if actor.user_id == user.pk:
        raise Conflict("Change your own password on your profile.", kind="users")
    return user


def _created(
    actor: Actor, user: User, now: datetime, lives: timedelta, *, made_by: str = "", removes_factors: bool = False
) -> CreatedReset:
    secret = secrets.token_urlsafe(32)
    made = PasswordReset.objects.create(
        user=user,
        digest=digest_of(secret),
        made_by=made_by[:254],
        removes_factors=removes_factors,
        created_at=now,
        expires_at=now + lives,
    )
    _record(actor, Action.PASSWORD_LINK_MADE, user, expiresAt=made.expires_at, removes_factors=removes_factors)
    return CreatedReset(made, secret)


def _record(actor: Actor, action: Action, user: User, **detail: object) -> None:
    actor.record(action, chain=SYSTEM_CHAIN, target=f"users/{user.id}", detail={"user": user.email, **detail})
