"""Where people are signed in: browsers, with the machines that were let in from them; seen, and ended (GW16, RV-11)."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone

from access.credentials.logins import logins_end
from audit.actions import Action
from audit.addresses import address_of
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.requests.status import NotFound
from portal.database.scopes import everything
from portal.signin.ranks import person_below
from tenants.models import PortalSession, User

_TOUCH_EVERY: Final = timedelta(minutes=1)
SHOWN: Final = 100
_SWEPT: Final = 10_000


def session_seen(request: HttpRequest) -> None:
    """Note that the request's session is in use, by the minute. One that has ended meanwhile is left alone."""
    user: Any = request.user
    key, now = request.session.session_key, timezone.now()
    if not user.is_authenticated or key is None:
        return
    with everything():
        found = PortalSession.objects.filter(session_id=key, user=user).values_list("last_used_at", flat=True).first()
        if found is None:
            # The session's row may be gone, or not be there yet; another request of it may be as far as this one.
            with contextlib.suppress(IntegrityError), transaction.atomic():
                PortalSession.objects.filter(session_id=key).delete()
                PortalSession.objects.create(
                    session_id=key, user=user, created_at=now, last_used_at=now, **_by(request)
                )
                _end_oldest(user)
        elif found < now - _TOUCH_EVERY:
            PortalSession.objects.filter(session_id=key).update(last_used_at=now, **_by(request))


def _end_oldest(user: User) -> None:
    """Whoever signs in more often than a page can show signs out where they have not been for longest."""
    rows = PortalSession.objects.filter(user=user).order_by("-last_used_at", "-id")
    keys = list(rows.values_list("session_id", flat=True)[SHOWN : 2 * SHOWN])
    if keys:
        Session.objects.filter(session_key__in=keys).delete()


def sessions_forget(*, now: datetime) -> int:
    """Delete sessions whose time is over, some at a time; how many (a worker's sweep)."""
    keys = list(Session.objects.filter(expire_date__lt=now).values_list("session_key", flat=True)[:_SWEPT])
    return Session.objects.filter(session_key__in=keys).delete()[0] if keys else 0


def sessions_of(user: User, *, now: datetime) -> list[PortalSession]:
    """The browsers in which a person is signed in, the last used first; a hundred at most."""
    rows = PortalSession.objects.filter(user=user, session__expire_date__gt=now).select_related("session")
    return list(rows.order_by("-last_used_at")[:SHOWN])


def session_of(actor: Actor, session_id: UUID) -> PortalSession:
    """One of the actor's own; operators know everybody's. Raises ``NotFound``."""
    found = PortalSession.objects.filter(pk=session_id).select_related("user", "session").first()
    if found is None or not (actor.operator or actor.user_id == found.user_id):
        raise NotFound("There is no such session.", kind="sessions")
    return found


@transaction.atomic
def session_end(*, actor: Actor, session_id: UUID, now: datetime) -> None:
    """End one session, and the machines that were let in from it: one's own, or that of a person below (``ranks``).

    Raises ``NotFound``, ``Forbidden``.
    """
    found = session_of(actor, session_id)
    if actor.user_id != found.user_id:
        person_below(actor, found.user_id)
    _end(actor, found.user, [found.session_id], now)
    detail = {"user": found.user.email, "address": found.ip_address}
    actor.record(Action.SESSION_ENDED, chain=SYSTEM_CHAIN, target=f"users/{found.user_id}", detail=detail)


@transaction.atomic
def sessions_end_others(*, actor: Actor, user: User, keep: str, now: datetime) -> int:
    """End all sessions of a person but the one with the key ``keep``; how many there were."""
    ended = sessions_end(actor=actor, user=user, now=now, keep=keep)
    if ended:
        detail = {"user": user.email, "sessions_ended": ended}
        actor.record(Action.SESSION_ENDED, chain=SYSTEM_CHAIN, target=f"users/{user.pk}", detail=detail)
    return ended


def sessions_end(*, actor: Actor, user: User, now: datetime, keep: str = "") -> int:
    """The same in the caller's transaction, which says so in the audit; those that nobody has seen yet end by the hash."""
    keys = list(PortalSession.objects.filter(user=user).exclude(session_id=keep).values_list("session_id", flat=True))
    _end(actor, user, keys, now)
    return len(keys)


def _end(actor: Actor, user: User, keys: list[str], now: datetime) -> None:
    logins_end(actor=actor, user=user, now=now, sessions=keys)
    Session.objects.filter(session_key__in=keys).delete()


def _by(request: HttpRequest) -> dict[str, str | None]:
    agent = request.headers.get("User-Agent", "")[:256]
    return {"ip_address": address_of(request.META.get("REMOTE_ADDR")), "user_agent": agent}
