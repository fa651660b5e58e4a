"""What a web request says about its sender: the ``Actor`` of every service that the portal calls."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest

from audit.recorder import Actor
from portal.database.scopes import NOBODY, Scope, everything
from tenants import actionlimits
from tenants.models import User
from tenants.selectors import user_by_email

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in person as an actor, from where and with what. An access token narrows it (``portal.api``)."""
    user: Any = request.user
    return Actor(
        name=user.email if user.is_authenticated else "",
        user_id=user.pk if user.is_authenticated else None,
        operator=bool(user.is_authenticated and user.is_active and user.is_staff),
        auditor=bool(user.is_authenticated and user.is_active and user.is_auditor),
        **_origin(request),
    )


def require_pace(request: HttpRequest, user: Any) -> None:
    """Count once what a person sends that is no reading; operators are not counted. Raises ``TooManyRequests``."""
    if request.method in _READING or not user.is_authenticated or user.is_staff or hasattr(request, "paced"):
        return
    request.paced = True  # type: ignore[attr-defined]
    actionlimits.take(actionlimits.WRITES, user.pk)


def scope_of(user: Any, tenant: str = "") -> Scope | None:
    """Whose rows a request of this person may see: operators and auditors everybody's, others those of their tenants.

    Of one ``tenant`` alone, where that is said.
    """
    if not user.is_authenticated:
        return NOBODY
    return None if user.is_active and (user.is_staff or user.is_auditor) else Scope(user.pk, tenant)


def person_named(email: str, *, field: str) -> User:
    """Whom the sender names by the whole address, member of a tenant of theirs or not yet.

    Raises ``Invalid`` that names ``field`` when there is nobody.
    """
    with everything():
        return user_by_email(email, field=field)


def visitor_of(request: HttpRequest, name: str, user: User | None = None) -> Actor:
    """Somebody who is not signed in (yet), by the name that they give."""
    return Actor(name=name[:253], user_id=user.pk if user else None, **_origin(request))


def _origin(request: HttpRequest) -> dict[str, Any]:
    return {
        "ip": request.META.get("REMOTE_ADDR", ""),
        "user_agent": request.headers.get("User-Agent", "")[:256],
        "request_id": getattr(request, "request_id", ""),
    }
