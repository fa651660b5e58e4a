"""Rows of the inbox that operators put off, and bring back (GW28)."""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from kube.requests.status import NotFound
from portal.http.actors import actor_of
from portal.pages.inbox import inbox_line
from portal.pages.operatingforms import PostponeForm
from portal.views.actions import render_action
from tenants.rights import require_operator
from tenants.services.operating.postponing import inbox_postpone, inbox_resume


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def postpone(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """Ask until when and why, and put the row off for all operators. Operators only."""
    actor, now = actor_of(request), timezone.now()
    require_operator(actor)
    line = inbox_line(actor, kind, name, now=now)
    if line is None:
        raise NotFound("There is no such row in the inbox any more.", kind="inbox", name=f"{kind}/{name}"[:400])
    return render_action(
        request,
        PostponeForm(request.POST or None),
        lambda data: inbox_postpone(
            actor=actor,
            kind=kind,
            name=name,
            cause=line.cause,
            until=datetime.combine(data["until"], time.min, UTC),
            reason=data["reason"],
            now=now,
        ),
        title="Postpone",
        submit="Postpone",
        done="Put off. It is back on that day, or when its cause changes.",
        back=reverse("inbox"),
        texts=[f"{line.title}.", "It is in nobody's inbox until then; owners keep what is their tenants'."],
        crumbs=[{"text": "Inbox", "url": reverse("inbox")}],
    )


@require_POST
@login_required
def bring_back(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """Show a row again at once (POST). Operators only."""
    inbox_resume(actor=actor_of(request), kind=kind, name=name)
    messages.success(request, "It is in the inbox again.", extra_tags="allow")
    return redirect("inbox")
