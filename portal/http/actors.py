"""What a web request says about its sender: the ``Actor`` of every service that the portal calls."""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest

from access.requestlimits import Standing
from audit.recorder import Actor
from portal.database.scopes import NOBODY, Scope, everything
from portal.http.askers import Asker
from tenants import actionlimits
from tenants.models import Membership, User
from tenants.selectors import user_by_email

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_REMEMBERED_SECONDS: Final = 60
"""For so long a process remembers whose tenant somebody is of: what is asked costs no query for being counted."""


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
    """Count once what a person asks, and say whose it is; operators are not counted. Raises ``TooManyRequests`` (AD6, AD8).

    What is read counts for the person's tenant too, of several the one that they have been in for longest: many members
    are no more than one tenant, and who is made a member of another, without being asked, loses nothing by it.
    """
    if not user.is_authenticated:
        return
    # Who looks at the portal as somebody else is an operator.
    viewing = getattr(request, "viewing", None)
    person = viewing.viewer if viewing is not None else user
    request.asker = Asker(person.pk, operator=person.is_staff, name=person.email)  # type: ignore[attr-defined]
    if user.is_staff or hasattr(request, "paced"):
        return
    kinds = [("person-write", actionlimits.WRITES, user.pk)]
    if request.method in _READING:
        kinds = [("person-read", actionlimits.READS, user.pk)]
        tenant = tenant_counted(user.pk)
        if tenant:
            kinds.append(("tenant-read", actionlimits.TENANT_READS, tenant))
            if viewing is None:
                request.asker = Asker(user.pk, tenant, name=user.email)  # type: ignore[attr-defined]
    for name, bucket, key in kinds:
        wait, left = actionlimits.wait_and_left(bucket, key)
        reset, window = (math.ceil(tokens * bucket.interval) for tokens in (bucket.burst - left, bucket.burst))
        known = getattr(request, "paced", None)
        if known is None or left < known.remaining:
            request.paced = Standing(name, bucket.burst, left, reset, window)  # type: ignore[attr-defined]
        actionlimits.require(wait)


def pace_headers(request: HttpRequest) -> dict[str, str]:
    """What is left to whom the request was counted, as the API server says it; nothing where it was not."""
    standing: Standing | None = getattr(request, "paced", None)
    lines = standing.header_lines.decode().splitlines() if standing is not None else []
    return dict(line.split(": ", 1) for line in lines)


def tenant_counted(user_id: UUID) -> str:
    """The tenant that what a person asks counts for; empty for who is in none, and out of date by a minute at most."""
    return _first_tenant(user_id, int(time.monotonic() // _REMEMBERED_SECONDS))


@lru_cache(maxsize=10_000)
def _first_tenant(user_id: UUID, moment: int) -> str:
    with everything():
        of_person = Membership.objects.filter(user_id=user_id).order_by("created_at", "pk")
        return of_person.values_list("tenant_id", flat=True).first() or ""


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
