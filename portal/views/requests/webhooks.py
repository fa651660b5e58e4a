"""Addresses outside that are told what happens in a tenant, or on the platform (GW25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from kube.requests.status import StatusError
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.forms import EmptyForm, add_status_error
from portal.pages.navigation import tenant_tabs
from portal.pages.requestforms import WebhookForm
from portal.views.actions import form_status, render_action
from tenants import selectors
from tenants.rights import lets, require_open
from tenants.services.notices import (
    KEPT_OF_WEBHOOK,
    require_webhooks,
    webhook_create,
    webhook_delete,
    webhook_visible_to,
    webhooks_of,
)


@require_safe
@login_required
def webhooks(request: HttpRequest, name: str = "") -> HttpResponse:
    """Those of a tenant, for its admins; without one those of the platform, for operators."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name) if name else None
    context = {
        "tenant": found,
        "tabs": tenant_tabs(actor, name) if name else None,
        "rows": webhooks_of(actor, name),
        "listed": "Webhooks",
        "new": reverse("tenant-webhook-new", args=[name]) if name else reverse("webhook-new"),
        "may_make": not actor.auditor and (found is None or lets(require_open, actor, found)),
    }
    return render(request, "pages/requests/webhooks.html", context)


@sensitive_variables("made")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def webhook_new(request: HttpRequest, name: str = "") -> HttpResponse:
    """The form, and the secret, which is shown this once."""
    actor = actor_of(request)
    require_webhooks(actor, name)
    form = WebhookForm(request.POST or None)
    back = reverse("tenant-webhooks", args=[name]) if name else reverse("webhooks")
    crumbs = [{"text": "Webhooks", "url": back}]
    if request.method == "POST" and form.is_valid():
        try:
            made = webhook_create(actor=actor, tenant=name, now=timezone.now(), **form.cleaned_data)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            context = {"webhook": made.webhook, "secret": made.secret, "back": back, "crumbs": crumbs}
            return render(request, "pages/requests/webhook_created.html", context)
    context: dict[str, Any] = {  # type: ignore[no-redef]
        "form": form,
        "title": "New webhook",
        "submit": "Make it",
        "back": back,
        "crumbs": crumbs,
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@require_safe
@login_required
def webhook(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One webhook, and what became of its last messages."""
    found = webhook_visible_to(actor_of(request), pk)
    rows = found.deliveries.order_by("-created_at", "-id")[:KEPT_OF_WEBHOOK]
    context = {
        "webhook": found,
        "rows": [{"delivery": each, "state": labels.delivery_state(each.state)} for each in rows],
        "listed": "Messages",
        "back": reverse("tenant-webhooks", args=[found.tenant_id]) if found.tenant_id else reverse("webhooks"),
    }
    return render(request, "pages/requests/webhook.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def webhook_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and delete one."""
    actor = actor_of(request)
    found = webhook_visible_to(actor, pk)
    require_webhooks(actor, found.tenant_id or "")
    back = reverse("tenant-webhooks", args=[found.tenant_id]) if found.tenant_id else reverse("webhooks")
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: webhook_delete(actor=actor, webhook_id=pk),
        title="Delete the webhook",
        submit="Delete",
        done="The address is told nothing any more.",
        back=back,
        texts=[f"{found.url} is told nothing any more; what waits for it is not sent."],
        crumbs=[{"text": "Webhooks", "url": back}],
        destroys=True,
    )
