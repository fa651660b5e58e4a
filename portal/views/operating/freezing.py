"""Holding a tenant or a workspace still, and letting it go (GW28)."""

from __future__ import annotations

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
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw, workspace_freeze, workspace_thaw

_POINTS: Final = (
    "Every write is refused from the next request on, shells and port-forwards too; those that are open end.",
    "Reads, watches and logs go on, and so do tokens and kubeconfigs.",
    "Direct credentials that may write are given out no more; what is out is named on the page.",
)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_hold(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm, with a reason, and freeze a tenant with all its workspaces. Operators only."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    return render_action(
        request,
        FreezeForm(request.POST or None),
        lambda data: tenant_freeze(actor=actor, name=name, **data),
        title=f"Freeze {found.name}",
        submit="Freeze now",
        done=f"{found.name} can be read and not written to.",
        points=_POINTS,
        destroys=True,
        **_place("Tenants", "tenants", "tenant", name, name),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_let_go(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and thaw a tenant. Operators only."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: tenant_thaw(actor=actor, name=name),
        title=f"Thaw {found.name}",
        submit="Thaw",
        done=f"{found.name} can be written to again.",
        texts=["Its people write again. Workspaces that were frozen by themselves stay so."],
        **_place("Tenants", "tenants", "tenant", name, name),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_hold(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, with a reason, and freeze a workspace. Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    require_operator(actor)
    return render_action(
        request,
        FreezeForm(request.POST or None),
        lambda data: workspace_freeze(actor=actor, workspace_id=found.pk, **data),
        title=f"Freeze {found.name}",
        submit="Freeze now",
        done=f"{found.name} can be read and not written to.",
        points=_POINTS,
        destroys=True,
        **_place("Workspaces", "workspaces", "workspace", found.pk, found.name),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_let_go(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and thaw a workspace. Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    require_operator(actor)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: workspace_thaw(actor=actor, workspace_id=found.pk),
        title=f"Thaw {found.name}",
        submit="Thaw",
        done=f"{found.name} can be written to again.",
        texts=["Its people write again, unless its tenant is frozen."],
        **_place("Workspaces", "workspaces", "workspace", found.pk, found.name),
    )


def _place(title: str, many: str, one: str, key: object, name: str) -> dict[str, Any]:
    back = reverse(one, args=[key])
    return {"back": back, "crumbs": [{"text": title, "url": reverse(many)}, {"text": name, "url": back}]}
