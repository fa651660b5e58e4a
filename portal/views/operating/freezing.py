"""Freezing a tenant or a workspace, and thawing it (GW28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from portal.http.actors import actor_of
from portal.pages.forms import EmptyForm, FreezeForm
from portal.views.actions import render_action
from tenants import selectors
from tenants.rights import require_operator
from tenants.services.operating import freezing

_POINTS: Final = (
    "Every write is refused from the next request on, shells and port-forwards too; those that are open end.",
    "Reads, watches and logs go on, and so do tokens and kubeconfigs.",
    "Direct credentials that may write are given out no more; what is out is named on the page.",
)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_freeze(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm, with a reason, and freeze a tenant with all its workspaces. Operators only."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    place = _place("Tenants", "tenants", "tenant", name, name)
    return _freeze(request, found.name, lambda data: freezing.tenant_freeze(actor=actor, name=name, **data), place)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_thaw(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and thaw a tenant. Operators only."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    place = _place("Tenants", "tenants", "tenant", name, name)
    goes_on = "Its people write again. Workspaces that were frozen by themselves stay so."
    return _thaw(request, found.name, lambda _: freezing.tenant_thaw(actor=actor, name=name), goes_on, place)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_freeze(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, with a reason, and freeze a workspace. Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    place = _place("Workspaces", "workspaces", "workspace", found.pk, found.name)
    return _freeze(
        request, found.name, lambda data: freezing.workspace_freeze(actor=actor, workspace_id=found.pk, **data), place
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_thaw(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and thaw a workspace. Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    place = _place("Workspaces", "workspaces", "workspace", found.pk, found.name)
    goes_on = "Its people write again, unless its tenant is frozen."
    return _thaw(
        request, found.name, lambda _: freezing.workspace_thaw(actor=actor, workspace_id=found.pk), goes_on, place
    )


def _freeze(
    request: HttpRequest, name: str, do: Callable[[dict[str, Any]], object], place: dict[str, Any]
) -> HttpResponse:
    require_operator(actor_of(request))
    return render_action(
        request,
        FreezeForm(request.POST or None),
        do,
        title=f"Freeze {name}",
        submit="Freeze now",
        done=f"{name} can be read and not written to.",
        points=_POINTS,
        destroys=True,
        **place,
    )


def _thaw(
    request: HttpRequest, name: str, do: Callable[[dict[str, Any]], object], goes_on: str, place: dict[str, Any]
) -> HttpResponse:
    require_operator(actor_of(request))
    return render_action(
        request,
        EmptyForm(request.POST),
        do,
        title=f"Thaw {name}",
        submit="Thaw",
        done=f"{name} can be written to again.",
        texts=[goes_on],
        **place,
    )


def _place(title: str, many: str, one: str, key: object, name: str) -> dict[str, Any]:
    back = reverse(one, args=[key])
    return {"back": back, "crumbs": [{"text": title, "url": reverse(many)}, {"text": name, "url": back}]}
