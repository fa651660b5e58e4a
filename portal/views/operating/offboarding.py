"""A tenant's way out: begun and called off by operators, its export taken along by its people (GW28)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from audit.recorder import Actor
from kube.requests.status import StatusError
from portal.http.actors import actor_of
from portal.offboarding.export import export_response
from portal.pages.forms import EmptyForm, add_status_error
from portal.pages.operatingforms import ExportForm, OffboardForm
from portal.views.actions import form_status, render_action
from tenants import selectors
from tenants.models import Tenant
from tenants.rights import require_operator
from tenants.services.operating.offboarding import tenant_offboard, tenant_retain


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def offboard(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm, with a reason and a time to keep, and let a tenant leave. Operators only."""
    actor, found = _for_operator(request, name)

    def begin(data: dict[str, Any]) -> object:
        now = timezone.now()
        ends_at = now + timedelta(days=data["days"])
        return tenant_offboard(
            actor=actor, name=name, reason=data["reason"], manner=data["manner"], ends_at=ends_at, now=now
        )

    return render_action(
        request,
        OffboardForm(request.POST or None),
        begin,
        title=f"Offboard {name}",
        submit="Begin",
        done=f"{name} leaves; its page says when it is deleted.",
        points=[
            "It is closed at once, as chosen below. Its people can download all that they may read.",
            "Owners are told now, a week before the end, and a day before.",
            "Until then it can be called off. At the end its deletion begins by itself.",
        ],
        destroys=True,
        **_place(found),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def retain(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and call it off. Operators only."""
    actor, found = _for_operator(request, name)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: tenant_retain(actor=actor, name=name),
        title=f"Keep {name}",
        submit="Call it off",
        done=f"{name} stays.",
        texts=["It is opened again, unless it was closed before it began to leave. Nothing is deleted."],
        **_place(found),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def export(request: HttpRequest, name: str) -> HttpResponseBase:
    """What the archive holds, and (POST) the archive. Members and operators."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    form = ExportForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            return export_response(actor, name, secrets=form.cleaned_data["secrets"], now=timezone.now())
        except StatusError as error:
            add_status_error(request, form, error)
    place = _place(found)
    context = {
        "form": form,
        "title": f"Export {name}",
        "submit": "Download",
        "texts": ["One ZIP archive of what you may read at this moment:"],
        "points": [
            "every object that is stored here, as YAML by namespace and kind",
            "members, workspaces, quota, rules, whom the tenant lets in, and usage",
            "its audit log, for admins",
            "a manifest with the SHA-256 of every file, and what was left out",
        ],
        "warning": "What is on registered clusters stays there: fetch it with kubectl.",
        **place,
    }
    return render(request, "pages/action.html", {**context, "layout": "base.html"}, status=form_status(request, form))


def _for_operator(request: HttpRequest, name: str) -> tuple[Actor, Tenant]:
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    return actor, found


def _place(found: Tenant) -> dict[str, Any]:
    back = reverse("tenant", args=[found.name])
    return {
        "back": back,
        "crumbs": [{"text": "Tenants", "url": reverse("tenants")}, {"text": found.name, "url": back}],
    }
