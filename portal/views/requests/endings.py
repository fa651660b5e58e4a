"""When workspaces and memberships end by themselves, and their renewal (GW25)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from portal.http.actors import actor_of
from portal.pages.forms import EndForm
from portal.views.actions import render_action
from tenants import selectors
from tenants.services.endings import workspace_end_at
from tenants.services.memberships import membership_end_at


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Say when a workspace ends, or renew it."""
    actor, now = actor_of(request), timezone.now()
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        EndForm(request.POST or None),
        lambda data: workspace_end_at(actor=actor, workspace_id=pk, expires_at=_end(data, now), now=now),
        title=f"The end of {found.name}",
        submit="Save",
        done="Saved.",
        back=reverse("workspace", args=[pk]),
        texts=[_says(found.expires_at), "At its end it is suspended and kept, until somebody renews it."],
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def member_end(request: HttpRequest, name: str, user_id: UUID) -> HttpResponse:
    """Say when a membership ends, or renew it."""
    actor, now = actor_of(request), timezone.now()
    selectors.tenant_visible_to(actor, name)
    found = selectors.membership_visible_to(actor, name, user_id)
    member = found.user
    return render_action(
        request,
        EndForm(request.POST or None),
        lambda data: membership_end_at(actor=actor, tenant=name, user=member, expires_at=_end(data, now), now=now),
        title=f"The end of {member.email}'s membership",
        submit="Save",
        done="Saved.",
        back=reverse("members", args=[name]),
        texts=[_says(found.expires_at), "At its end the membership is gone, and every credential that came of it."],
    )


def _end(data: dict[str, Any], now: datetime) -> datetime | None:
    return now + timedelta(days=data["days"]) if data["days"] else None


def _says(expires_at: datetime | None) -> str:
    return f"It ends on {expires_at:%d %b %Y %H:%M} UTC." if expires_at else "It has no end."
