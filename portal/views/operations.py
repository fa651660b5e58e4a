"""What workers were asked to do and could not yet: the operators' list, with what can be done about it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.backup.opening import restored_open, unconfirmed
from portal.bulk.deeds import SORTS
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.forms import EmptyForm, ReasonForm
from portal.pages.lists import chosen, pager
from portal.pages.progress import TITLES
from portal.views.actions import render_action
from tenants import selectors, services
from tenants.models import Desired, Operation
from tenants.rights import require_operator, require_overseer


@require_safe
@login_required
def operations(request: HttpRequest) -> HttpResponse:
    """Operations that were tried in vain, or all of them, newest first. Operators only."""
    actor = actor_of(request)
    require_overseer(actor)
    everything = chosen(request, "show", "all") == "all"
    page = selectors.operations_page(actor, waiting=not everything, after=request.GET.get("after", ""))
    context = {
        "rows": [_row(operation) for operation in page.rows],
        "listed": "Operations",
        "everything": everything,
        "deeds": SORTS["operations"].deeds if actor.operator and not everything else {},
        "pager": pager(request, page.next),
    }
    return render(request, "pages/operations/list.html", context)


@require_POST
@login_required
def operation_retry(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Try again now (POST); back to the workspace, or to the list for operators."""
    actor = actor_of(request)
    found = selectors.operation_visible_to(actor, pk)
    services.operation_retry(actor=actor, operation_id=pk)
    messages.success(request, "It is being tried again.", extra_tags="allow")
    return redirect("operations") if actor.operator else redirect("workspace", found.workspace_id)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_abandon(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and give up a workspace whose cluster is gone. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        ReasonForm(request.POST or None),
        lambda data: services.workspace_abandon(actor=actor, workspace_id=pk, reason=data["reason"]),
        title=f"Give up {found}",
        submit="Give up",
        done="The workspace is given up; its name and its place are free.",
        back=reverse("operations"),
        texts=[
            f"The cluster {found.cluster} does not answer, so nothing is done there.",
            f"The namespace {found.k8s_namespace} and what runs in it stay; its tokens work there until they expire.",
            "Only for a cluster that will not come back.",
        ],
        crumbs=[{"text": "Operations", "url": reverse("operations")}],
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def restore_open(request: HttpRequest) -> HttpResponse:
    """Confirm and open what was restored, with what clusters have not confirmed (P12). Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    waiting = unconfirmed()
    despite = "manage.py restore --open --despite-unconfirmed waits for clusters no longer."
    return render_action(
        request,
        EmptyForm(request.POST if request.method == "POST" else None),
        lambda _: restored_open(actor=actor),
        title="Open the platform",
        submit="Open",
        done="The platform is open.",
        back=reverse("operations"),
        texts=[
            "Tenants that the restore has closed are resumed, with new accounts. Nothing issued before it works again.",
            "What was suspended, deleted or taken from anybody after the backup: do it again first.",
            *(f"Not confirmed yet: {each}" for each in waiting),
        ],
        warning=despite if waiting else "",
        crumbs=[{"text": "Operations", "url": reverse("operations")}],
    )


def _row(operation: Operation) -> dict[str, Any]:
    workspace = operation.workspace
    ended = operation.finished_at is not None
    return {
        "operation": operation,
        "workspace": workspace,
        "title": TITLES.get(operation.desired, "In progress"),
        "state": labels.operation_state(operation.state),
        "can_retry": not ended,
        "can_abandon": not ended and operation.desired == Desired.DELETED and bool(workspace.cluster.last_error),
    }
