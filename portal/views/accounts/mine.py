"""Where I am signed in, and the end of it (GW16)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from access.credentials import logins
from kube.requests.status import NotFound
from portal.http.actors import actor_of
from portal.pages.browsers import browser_name
from portal.pages.forms import EmptyForm
from portal.signin.sessions import session_end as end
from portal.signin.sessions import session_of, sessions_end_others, sessions_of
from portal.views.actions import render_action
from portal.views.credentials import machine_row
from tenants.models import PortalSession

_CRUMBS = ("profile", "Profile"), ("sessions", "Sessions")


@require_safe
@login_required
def sessions(request: HttpRequest) -> HttpResponse:
    """Browsers, this one first, and machines that were let in for kubectl."""
    user: Any = request.user
    now = timezone.now()
    rows = [
        {**session_row(row, here=row.session_id == request.session.session_key), "end_url": _end_url(row)}
        for row in sessions_of(user, now=now)
    ]
    rows.sort(key=lambda row: not row["here"])
    lives = [login for login in logins.logins_of(user) if logins.login_lives(login, now=now)]
    context = {
        "rows": rows,
        "machines": [machine_row(login, lives=True) for login in lives],
        "others": any(not row["here"] for row in rows),
    }
    return render(request, "pages/accounts/sessions.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def session_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and end one of one's own."""
    actor = actor_of(request)
    found = session_of(actor, pk)
    if found.user_id != actor.user_id:
        raise NotFound("There is no such session.", kind="sessions")
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: end(actor=actor, session_id=pk, now=timezone.now()),
        title=f"End the session in {browser_name(found.user_agent)}",
        submit="End session",
        done="The session is over.",
        back=reverse("sessions"),
        texts=["Machines that were signed in for kubectl from it are signed out too."],
        crumbs=_crumbs(),
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def sessions_end(request: HttpRequest) -> HttpResponse:
    """Confirm and end all sessions but this one."""
    user: Any = request.user
    key = str(request.session.session_key)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: sessions_end_others(actor=actor_of(request), user=user, keep=key, now=timezone.now()),
        title="End all other sessions",
        submit="End all others",
        done="Your other sessions are over.",
        back=reverse("sessions"),
        texts=["You stay signed in here. Machines that were signed in from the others are signed out too."],
        crumbs=_crumbs(),
        destroys=True,
    )


def session_row(row: PortalSession, *, here: bool = False) -> dict[str, Any]:
    """A session as pages list it; never its key."""
    return {
        "id": row.pk,
        "browser": browser_name(row.user_agent),
        "ip_address": row.ip_address or "an unknown address",
        "created_at": row.created_at,
        "last_used_at": row.last_used_at,
        "ends_at": row.session.expire_date,
        "here": here,
    }


def _end_url(row: PortalSession) -> str:
    return reverse("session-end", args=[row.pk])


def _crumbs() -> list[dict[str, str]]:
    return [{"text": text, "url": reverse(name)} for name, text in _CRUMBS]
