"""What operators say on top of every page (GW28)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.selectors import page_of
from portal.http.actors import actor_of
from portal.http.pages import page_behind
from portal.pages import labels
from portal.pages.forms import EmptyForm
from portal.pages.lists import pager
from portal.pages.operatingforms import AnnouncementForm
from portal.views.actions import render_action
from tenants.models import Announcement, Tier
from tenants.rights import require_operator
from tenants.services.operating.announcements import (
    announcement_change,
    announcement_create,
    announcement_dismiss,
    announcement_end,
    announcement_visible_to,
    announcements_of,
)

PAGE = 50


@require_safe
@login_required
def announcements(request: HttpRequest) -> HttpResponse:
    """What is said, was said and will be. Operators and auditors."""
    actor, now = actor_of(request), timezone.now()
    page = page_of(announcements_of(actor), request.GET.get("after", ""), PAGE)
    context = {
        "rows": [_row(each, now) for each in page.rows],
        "listed": "Announcements",
        "operator": actor.operator,
        "pager": pager(request, page.next),
    }
    return render(request, "pages/operating/announcements.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def announcement_new(request: HttpRequest) -> HttpResponse:
    """The form, and a new one. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    form = AnnouncementForm(request.POST or None, tiers=_tiers())
    return render_action(
        request,
        form,
        lambda data: announcement_create(actor=actor, said=form.said(data), now=timezone.now()),
        title="New announcement",
        submit="Announce",
        done="Announced.",
        back=reverse("announcements"),
        crumbs=_crumbs(),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def announcement(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One of them, to change. Operators; auditors look at it."""
    actor = actor_of(request)
    found = announcement_visible_to(actor, pk)
    form = AnnouncementForm(request.POST or None, tiers=_tiers(), of=found)
    return render_action(
        request,
        form,
        lambda data: announcement_change(actor=actor, announcement_id=pk, said=form.said(data), now=timezone.now()),
        title="Announcement",
        submit="Save",
        done="Saved.",
        back=reverse("announcements"),
        crumbs=_crumbs(),
        template="pages/form.html",
        intro=f"By {found.created_by}. Whoever has put it away sees it again when its words are new.",
        other={"url": reverse("announcement-end", args=[pk]), "text": "End it…"},
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def announcement_over(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and end one. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    found = announcement_visible_to(actor, pk)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: announcement_end(actor=actor, announcement_id=pk, now=timezone.now()),
        title="End the announcement",
        submit="End it",
        done="It is shown no more.",
        back=reverse("announcements"),
        texts=[f"“{found.text}” is shown to nobody any more."],
        crumbs=_crumbs(),
    )


@require_POST
@login_required
def announcement_away(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Put it away for oneself (POST), and stay where one was."""
    user: Any = request.user
    announcement_dismiss(user=user, announcement_id=pk, now=timezone.now())
    return redirect(page_behind(request) or "overview")


def _row(found: Announcement, now: datetime) -> dict[str, Any]:
    if found.ends_at is not None and found.ends_at <= now:
        state = labels.State(labels.PASS, "Over")
    elif found.starts_at > now:
        state = labels.State(labels.WAIT, "To come")
    else:
        state = labels.State(labels.ALLOW, "Shown")
    names = [str(each.pk) for each in (*found.tenants.all(), *found.tiers.all())]
    audience = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return {"announcement": found, "state": state, "audience": audience or found.get_audience_display()}


def _tiers() -> list[Tier]:
    return list(Tier.objects.order_by("position", "name")[:200])


def _crumbs() -> list[dict[str, str]]:
    return [{"text": "Announcements", "url": reverse("announcements")}]
