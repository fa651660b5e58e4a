"""One's own requests: what was asked, a form a kind, and what was said to it (GW25)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.recorder import Actor
from kube.requests.status import StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.pages import labels, requestforms
from portal.pages.forms import EmptyForm, add_status_error
from portal.pages.lists import pager
from portal.views.actions import render_action
from tenants import selectors
from tenants.models import AccessRequest, Membership, Phase, RequestKind, RequestState, Role, Status
from tenants.requests.selectors import may_decide, request_visible_to, requests_page
from tenants.rights import lets, require_open, role_of
from tenants.services.requests import (
    request_comment,
    request_create,
    request_withdraw,
)

_FORMS: Final[dict[str, type[requestforms.WishForm]]] = {
    RequestKind.ROLE: requestforms.RoleWishForm,
    RequestKind.TENANT: requestforms.TenantWishForm,
    RequestKind.TIER: requestforms.TierWishForm,
    RequestKind.QUOTA: requestforms.QuotaWishForm,
    RequestKind.BREAK_GLASS: requestforms.BreakGlassWishForm,
    RequestKind.LEAVE: requestforms.LeaveWishForm,
}
_CHOICES_MAX: Final = 200


@require_safe
@login_required
def my_requests(request: HttpRequest) -> HttpResponse:
    """What one has asked for, newest first, and what can be asked for."""
    page = requests_page(actor_of(request), mine=True, after=request.GET.get("after", ""))
    context = {
        "rows": [{"request": each, "state": labels.request_state(each.state)} for each in page.rows],
        "listed": "My requests",
        "kinds": [{"url": reverse("request-new", args=[kind]), "text": RequestKind(kind).label} for kind in _FORMS],
        "pager": pager(request, page.next),
    }
    return render(request, "pages/requests/mine.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def request_new(request: HttpRequest, kind: str) -> HttpResponse:
    """The form of a kind, and the request."""
    if kind not in _FORMS:
        raise Http404
    actor = actor_of(request)
    initial = {name: request.GET[name][:63] for name in ("tenant", "workspace", "tier") if name in request.GET}
    form: Any = _FORMS[kind](request.POST or None, initial=initial, **_choices(actor, kind))

    def ask(data: dict[str, Any]) -> AccessRequest:
        # Of a tenant that somebody is no member of, only its identity is looked up.
        with everything():
            return request_create(actor=actor, draft=form.draft(data), now=timezone.now())

    return render_action(
        request,
        form,
        ask,
        title=f"Ask for: {RequestKind(kind).label.lower()}",
        submit="Ask",
        done="Asked. You are told what becomes of it.",
        back=reverse("my-requests"),
        crumbs=[{"text": "My requests", "url": reverse("my-requests")}],
    )


@require_safe
@login_required
def request_detail(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One request: what, why, what was said; for those who decide, the buttons. ``NotFound`` for others."""
    actor = actor_of(request)
    return _detail(request, actor, request_visible_to(actor, pk))


@require_POST
@login_required
def request_say(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Add a comment (POST)."""
    actor = actor_of(request)
    request_visible_to(actor, pk)
    form = requestforms.CommentForm(request.POST)
    if form.is_valid():
        try:
            with everything():
                request_comment(actor=actor, request_id=pk, text=form.cleaned_data["text"], now=timezone.now())
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return redirect("request", pk)
    # What somebody has typed stays, also where nobody is to say anything any more.
    return _detail(request, actor, request_visible_to(actor, pk), form)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def request_take_back(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and withdraw one's own request."""
    actor = actor_of(request)
    found = request_visible_to(actor, pk)

    def withdraw(_data: dict[str, Any]) -> AccessRequest:
        with everything():
            return request_withdraw(actor=actor, request_id=pk, now=timezone.now())

    return render_action(
        request,
        EmptyForm(request.POST),
        withdraw,
        title="Withdraw the request",
        submit="Withdraw",
        done="Withdrawn.",
        back=reverse("request", args=[pk]),
        texts=[f"{found}. Nobody decides it any more."],
        destroys=True,
    )


def _detail(request: HttpRequest, actor: Actor, found: AccessRequest, refused: Form | None = None) -> HttpResponse:
    is_open = found.state == RequestState.OPEN
    # To whoever is no member it is no tenant, so it cannot be closed.
    member = found.tenant is not None and role_of(actor, found.tenant.name) is not None
    goes_on = is_open and (not member or lets(require_open, actor, found.tenant))
    decides = goes_on and may_decide(actor, found)
    mine = found.asked_by_id == actor.user_id
    context = {
        "found": found,
        "title": str(found),
        "state": labels.request_state(found.state),
        "facts": labels.request_facts(found),
        "may_decide": decides and found.approved_first_id != actor.user_id,
        "may_withdraw": is_open and mine,
        "form": refused or (requestforms.CommentForm() if goes_on and (mine or decides) else None),
        "first_approved": is_open and found.approved_first_id is not None,
        "back": reverse("my-requests") if mine else reverse("inbox"),
        "back_text": "My requests" if mine else "Inbox",
    }
    return render(request, "pages/requests/detail.html", context, status=422 if refused else 200)


def _choices(actor: Actor, kind: str) -> dict[str, Any]:
    if kind == RequestKind.TIER:
        mine = selectors.workspaces_visible_to(actor).filter(phase=Phase.READY, status=Status.ACTIVE)
        if not actor.operator:
            mine = mine.filter(tenant__in=selectors.tenants_open_to(actor), freezes=None)
        if actor.operator and actor.user_id is not None:
            mine = mine.filter(user_id=actor.user_id)
        return {
            "workspaces": list(mine.order_by("tenant_id", "name")[:_CHOICES_MAX]),
            "tiers": selectors.tiers_offered(Actor(name=actor.name)),
        }
    if kind == RequestKind.QUOTA:
        names = selectors.tenants_open_to(actor).order_by("name").values_list("name", flat=True)
        return {"tenants": list(names[:_CHOICES_MAX])}
    if kind == RequestKind.LEAVE:
        owned = Membership.objects.filter(Membership.as_one_of([Role.OWNER]), user_id=actor.user_id)  # type: ignore[misc]
        owned = owned.filter(tenant__in=selectors.tenants_open_to(actor))
        return {"tenants": list(owned.order_by("tenant_id").values_list("tenant_id", flat=True)[:_CHOICES_MAX])}
    return {}
