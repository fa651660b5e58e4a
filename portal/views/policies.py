"""Whom a tenant has let in, and the end of that (AZ7)."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from access import policies as services
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.pages.forms import EmptyForm
from portal.pages.navigation import tenant_tabs
from portal.views.actions import render_action
from tenants import selectors
from tenants.models import Role
from tenants.rights import require_role


@require_safe
@login_required
def policies(request: HttpRequest, name: str) -> HttpResponse:
    """The policies of a tenant's space in words: whom they let in from elsewhere, to what."""
    actor = actor_of(request)
    with everything():  # whether somebody else's tenant still is the one that was let in
        rows = services.policies_of(actor, name)
    context = {
        "tenant": selectors.tenant_visible_to(actor, name),
        "rows": rows,
        "listed": "Policies",
        "may_end": selectors.may_manage(actor, name),
        "tabs": tenant_tabs(actor, name),
    }
    return render(request, "pages/tenants/policies.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def policy_end(request: HttpRequest, name: str, policy: str) -> HttpResponse:
    """Confirm and delete one policy."""
    actor = actor_of(request)
    selectors.tenant_visible_to(actor, name)
    require_role(actor, name, Role.ADMIN)
    back = reverse("policies", args=[name])
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.policy_end(actor=actor, tenant=name, name=policy),
        title=f"End {policy}",
        submit="End now",
        done="Nobody is let in by it any more.",
        back=back,
        texts=["Whom it lets in is refused with the next request, and open watches end."],
        crumbs=[{"text": "Tenants", "url": reverse("tenants")}, {"text": name, "url": reverse("tenant", args=[name])}],
        destroys=True,
    )
