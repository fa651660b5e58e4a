"""Who is in which pod now, the button that ends it, and the recordings of who was: listed, played, taken away."""

from __future__ import annotations

from uuid import UUID

from csp.decorators import csp_update
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_safe

from kube.requests.status import NotFound
from portal.http.actors import actor_of
from portal.http.places import require_large
from portal.pages.forms import EmptyForm
from portal.pages.lists import pager
from portal.views.actions import redirect_out, render_action
from tenants import services
from tenants.models import RecordingMode
from tenants.openstreams import connection_visible_to, connections_visible_to
from tenants.recordings import recording_file, recording_visible_to, recordings_page


@require_safe
@login_required
def connections(request: HttpRequest) -> HttpResponse:
    """The last two hundred connections into pods that are open, of the tenants whose admin one is."""
    found = list(connections_visible_to(actor_of(request))[:200])
    return render(request, "pages/connections/list.html", {"rows": found, "listed": "Connections into pods"})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def connection_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, and end it; one that has ended by itself meanwhile is nobody's error."""
    actor = actor_of(request)
    try:
        found = connection_visible_to(actor, pk)
    except NotFound:
        # Whoever may not see it reads the same.
        text = "There is no such connection any more, or the API server that has it does not answer."
        messages.error(request, text, extra_tags="deny")
        return redirect_out(request, reverse("pod-connections"))
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


@require_safe
@login_required
def recordings(request: HttpRequest) -> HttpResponse:
    """Recordings, the newest first: of the tenants whose admin one is; operators see all."""
    rows, following = recordings_page(actor_of(request), after=request.GET.get("after", ""))
    context = {"rows": rows, "listed": "Recordings", "pager": pager(request, following)}
    return render(request, "pages/recordings/list.html", context)


# The player's terminal is WebAssembly of our own origin, which no other page may compile.
@require_safe
@csp_update({"script-src": ["'wasm-unsafe-eval'"]})  # type: ignore[arg-type] # the stubs know views without arguments
@login_required
def recording(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One, with the player where there is something to play."""
    found = recording_visible_to(actor_of(request), pk)
    context = {"recording": found, "playable": found.mode == RecordingMode.OUTPUT}
    return render(request, "pages/recordings/detail.html", context)


@require_GET
@never_cache
@login_required
def recording_cast(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Its file, for the player or with ``download`` to keep; that it is taken is in the audit before it is sent."""
    actor = actor_of(request)
    found = recording_visible_to(actor, pk)
    require_large(actor, found.tenant)
    content = recording_file(found)
    kept = "download" in request.GET
    services.recording_watch(actor=actor, recording=found, how="file" if kept else "page")
    response = HttpResponse(content, content_type="application/x-asciicast; charset=utf-8")
    if kept:
        response["Content-Disposition"] = f'attachment; filename="{found.pk}.cast"'
    return response
