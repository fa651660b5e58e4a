"""Seeing the portal as a member of a tenant does, and being oneself again (GW28)."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from portal.http.actors import actor_of
from portal.pages.forms import ReasonForm
from portal.signin.ranks import person_named
from portal.signin.viewing import viewing_begin, viewing_end
from portal.views.actions import render_action
from tenants import selectors
from tenants.rights import require_operator


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def view_as(request: HttpRequest, pk: UUID, tenant: str) -> HttpResponse:
    """Ask why, and show the tenant as this member sees it. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    person, found = person_named(actor, pk), selectors.tenant_visible_to(actor, tenant)
    return render_action(
        request,
        ReasonForm(request.POST or None),
        lambda data: viewing_begin(
            actor=actor,
            request=request,
            person=person,
            tenant=found.name,
            reason=data["reason"],
            now=timezone.now(),
        ),
        title=f"View {found.name} as {person.email}",
        submit="View",
        done=f"You see what {person.email} sees.",
        back=reverse("user", args=[pk]),
        after=reverse("tenant", args=[found.name]),
        points=[
            "You see pages as the person sees them, with what the role in this tenant shows, for half an hour.",
            "Nothing can be done meanwhile, no secret is shown and none issued.",
            "It is in the tenant's audit log, and in the person's profile.",
        ],
        crumbs=[
            {"text": "Users", "url": reverse("users")},
            {"text": person.email, "url": reverse("user", args=[pk])},
        ],
    )


@require_POST
@login_required
def view_as_end(request: HttpRequest) -> HttpResponse:
    """Be oneself again (POST)."""
    viewing_end(request, actor_of(request))
    messages.success(request, "You are yourself again.", extra_tags="allow")
    return redirect("overview")
