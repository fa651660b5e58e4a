"""Who is in which pod now, and the button that ends it."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from portal.http.actors import actor_of
from portal.pages.forms import EmptyForm
from portal.views.actions import render_action
from tenants import services
from tenants.openstreams import connection_visible_to, connections_visible_to


@require_safe
@login_required
def connections(request: HttpRequest) -> HttpResponse:
    """The last two hundred connections into pods that are open, of the tenants whose admin one is."""
    found = list(connections_visible_to(actor_of(request))[:200])
    return render(request, "pages/connections/list.html", {"rows": found, "listed": "Connections into pods"})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def connection_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, and end it."""
    actor = actor_of(request)
    found = connection_visible_to(actor, pk)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.pod_connection_end(actor=actor, connection_id=pk),
        title="End this connection",
        submit="End it",
        done="The connection is being ended.",
        back=reverse("pod-connections"),
        texts=[
            f"{found.caller} is in the pod {found.pod} of {found.namespace}, and is told that you have ended it.",
            "Who still may comes again: to keep somebody out, revoke the credential, or end the membership.",
        ],
        crumbs=[{"text": "In pods now", "url": reverse("pod-connections")}],
        destroys=True,
    )
