"""The inbox, and the yes and no to what others ask for (GW25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from kube.requests.status import Forbidden
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.pages.inbox import inbox_of
from portal.pages.requestforms import ApproveForm, DenyForm
from portal.views.actions import render_action
from tenants.models import AccessRequest, Approval
from tenants.requests.selectors import may_decide, request_visible_to
from tenants.services.requests import request_approve, request_deny


@require_safe
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """What waits for this person, each with what to do about it; or, with ``postponed=true``, what operators put off."""
    actor = actor_of(request)
    postponed = actor.sees_all and request.GET.get("postponed") == "true"
    groups = inbox_of(actor, now=timezone.now(), postponed=postponed)
    context = {"groups": groups, "postponed": postponed, "operator": actor.operator, "overseer": actor.sees_all}
    return render(request, "pages/requests/inbox.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def request_yes(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and approve; what was asked for is done with it."""
    actor, found = actor_of(request), _to_decide(request, pk)
    waits = found.approvers == Approval.TWO and found.approved_first_id in {None, actor.user_id}

    def approve(data: dict[str, Any]) -> AccessRequest:
        # The first of two, and whoever asked, may be nobody that this person knows of; the service asks for every right.
        with everything():
            return request_approve(actor=actor, request_id=pk, answer=data["answer"], now=timezone.now())

    return render_action(
        request,
        ApproveForm(request.POST if request.method == "POST" else None),
        approve,
        title="Approve",
        submit="Approve",
        done="Approved; a second person decides." if waits else "Approved and done.",
        back=reverse("inbox"),
        texts=[
            f"{found}, for {found.asked_by.email}.",
            "A second person has to say yes as well." if waits else "It is done with your rights, at once.",
        ],
        warning=f"Nobody has shown yet that {found.asked_by.email} is theirs: it may be somebody else who asks."
        if found.asked_by.address_unproven
        else "",
        crumbs=[{"text": "Inbox", "url": reverse("inbox")}],
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def request_no(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Say no, and why."""
    actor, found = actor_of(request), _to_decide(request, pk)
    return render_action(
        request,
        DenyForm(request.POST or None),
        lambda data: request_deny(actor=actor, request_id=pk, answer=data["answer"], now=timezone.now()),
        title="Deny",
        submit="Deny",
        done="Denied.",
        back=reverse("inbox"),
        texts=[f"{found}, for {found.asked_by.email}."],
        crumbs=[{"text": "Inbox", "url": reverse("inbox")}],
        destroys=True,
    )


def _to_decide(request: HttpRequest, pk: UUID) -> AccessRequest:
    actor = actor_of(request)
    found = request_visible_to(actor, pk)
    if not may_decide(actor, found):
        raise Forbidden("You are none of those who decide this request.", kind="requests")
    return found
