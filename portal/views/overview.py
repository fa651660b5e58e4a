"""The first page, and the palette's search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from access.models import Credential
from audit.recorder import Actor
from audit.selectors import Filters, entries_everywhere
from portal.access.idsearch import found_by_id
from portal.http.actors import actor_of
from portal.pages import plots
from portal.pages.inbox import Group, inbox_of
from portal.pages.navigation import page
from tenants import selectors
from tenants.models import Membership, Role, Tenant, User, Workspace
from tenants.openstreams import streams_counted
from tenants.rights import require_overseer


@require_safe
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    """Numbers, my workspaces, what to do next, what happened last."""
    actor = actor_of(request)
    numbers = selectors.overview_of(actor)
    mine = selectors.workspaces_visible_to(actor)
    if not actor.sees_all:
        mine = mine.filter(user_id=actor.user_id)  # type: ignore[misc]
    workspaces = list(mine.order_by("-created_at", "-id")[:8])
    mine_only = Filters(user_id=None if actor.sees_all else actor.user_id, settled=True)
    entries = entries_everywhere(filters=mine_only, limit=6).rows
    can_create = actor.operator or bool(editable_tenants(actor))
    steps = first_steps(request, actor, numbers, workspaces, can_create=can_create)
    stats = [
        {
            "icon": "boxes",
            "label": "Workspaces",
            "value": _number(numbers.workspaces),
            "unit": "",
            "note": f"in {_count(numbers.tenants, 'tenant')}",
        },
        {
            "icon": "circle-check",
            "label": "Ready",
            "value": _number(numbers.ready),
            "unit": f"of {_number(numbers.workspaces)}",
            "note": "",
        },
        {
            "icon": "clock",
            "label": "In progress",
            "value": numbers.working,
            "unit": "",
            "note": f"{numbers.failed} failed" if numbers.failed else "",
            "url": reverse("operations") if actor.sees_all and numbers.failed else "",
        },
        {"icon": "terminal", "label": "Open streams", "value": streams_counted(actor), "unit": "", "note": "now"},
        {"icon": "lock", "label": "Suspended", "value": numbers.suspended, "unit": "", "note": ""},
    ]
    context = {
        "stats": stats,
        "workspaces": workspaces,
        "entries": entries,
        "known": selectors.workspaces_known(actor, [entry.workspace_id for entry in entries]),
        "can_create": can_create,
        "workspaces_title": "Newest workspaces" if actor.sees_all else "My workspaces",
        "next_steps": [] if actor.auditor or all(step["done"] for step in steps) else steps,
        "needs": what_needs(inbox_of(actor, now=timezone.now())) if actor.sees_all else [],
        "summary": "Everything on this platform." if actor.sees_all else "What is yours on this platform.",
    }
    return render(request, "pages/overview.html", context)


@require_safe
@login_required
def requests(request: HttpRequest) -> HttpResponse:
    """The API server's requests of the last day, as a picture. Operators and auditors."""
    require_overseer(actor_of(request))
    return render(request, "components/charts/plot.html", {"plot": plots.requests_plot(timezone.now())})


@require_safe
@login_required
def search(request: HttpRequest) -> HttpResponse:
    """Workspaces, tenants and pages whose names contain the words, and what has them for its ID.

    People for operators and auditors, and for others those of their tenants.
    """
    actor = actor_of(request)
    words = request.GET.get("q", "").strip()[:63].lower()
    results = [
        {"text": entry.text, "url": entry.url, "icon": entry.icon, "kind": "Page"}
        for section in page(request)["navigation"]
        for entry in section.entries
        if words in entry.text.lower()
    ][:5]
    if words:
        results += found_by_id(actor, words, now=timezone.now())
        results += [
            {
                "text": workspace.name,
                "url": reverse("workspace", args=[workspace.pk]),
                "icon": "boxes",
                "kind": workspace.tenant_id,
            }
            for workspace in selectors.workspaces_page(actor, search=words, limit=5).rows
        ]
        results += [
            {"text": tenant.name, "url": reverse("tenant", args=[tenant.name]), "icon": "building-2", "kind": "Tenant"}
            for tenant in selectors.tenants_page(actor, search=words, limit=5)
        ]
        results += _people(actor, words)
    return render(request, "pages/search.html", {"results": results})


def _people(actor: Actor, words: str) -> list[dict[str, str]]:
    """Everybody for whoever sees everybody; else the members of one's tenants, where one sees them."""
    if actor.sees_all:
        named = Q(email__icontains=words) | Q(name__icontains=words)
        return [
            {"text": person.email, "url": reverse("user", args=[person.pk]), "icon": "user", "kind": "User"}
            for person in User.objects.filter(named).order_by("email")[:5]
        ]
    mine = selectors.tenants_visible_to(actor)
    named = Q(user__email__icontains=words) | Q(user__name__icontains=words)
    members = Membership.objects.filter(named, tenant__in=mine).select_related("user")
    return [
        {
            "text": member.user.email,
            "url": reverse("members", args=[member.tenant_id]),
            "icon": "user",
            "kind": f"Member of {member.tenant_id}",
        }
        for member in members.order_by("user__email", "tenant_id")[:5]
    ]


def first_steps(
    request: HttpRequest,
    actor: Actor,
    numbers: selectors.Overview,
    workspaces: Sequence[Workspace],
    *,
    can_create: bool,
) -> list[dict[str, object]]:
    """What a newcomer does one after the other, and what of it is done: operators set up, members use."""
    tokens: Any = request.user.access_tokens  # type: ignore[union-attr]
    workspace = {
        "done": numbers.workspaces > 0,
        "title": "Create a workspace",
        "url": reverse("workspace-new") if can_create else "",
        "text": "A namespace of your own, with a quota.",
    }
    automate = {
        "done": tokens.exists(),
        "title": "Automate it",
        "url": reverse("tokens"),
        "text": "An access token opens the REST API to scripts.",
    }
    if actor.operator:
        return [
            {
                "done": numbers.tenants > 0,
                "title": "Add a tenant",
                "url": reverse("tenants"),
                "text": "With the people who are in it, and the tiers that it may use.",
            },
            {
                "done": selectors.has_registered_clusters(),
                "title": "Register a cluster",
                "url": reverse("clusters"),
                "text": "Containers run there; the embedded API server keeps objects alone.",
            },
            workspace,
            automate,
        ]
    return [
        {
            "done": numbers.tenants > 0,
            "title": "Join a tenant",
            "url": reverse("tenants"),
            "text": "An operator or an owner invites you by a link, or adds you by your e-mail address.",
        },
        workspace,
        {
            "done": Credential.objects.filter(issued_to_id=actor.user_id).exists(),
            "title": "Get a kubeconfig",
            "url": reverse("workspace", args=[workspaces[0].pk]) if workspaces else "",
            "text": "kubectl works with it for two hours.",
        },
        automate,
    ]


def what_needs(groups: Sequence[Group]) -> list[dict[str, str]]:
    """What the inbox holds, in a line each kind; what is worth it in a line of its own."""
    told = []
    for group in groups:
        if group.apart:
            told += [
                {"title": line.title, "text": line.text, "url": line.url, "action": line.action} for line in group.lines
            ]
        else:
            url = group.url or f"{reverse('inbox')}#{group.key}"
            told.append({"title": group.headline, "text": "", "url": url, "action": "Look at it"})
    return told


def editable_tenants(actor: Actor) -> list[Tenant]:
    """The tenants in which the actor may create workspaces; the first two hundred by name."""
    rows = selectors.tenants_open_to(actor).filter(state="active")
    if not actor.operator:
        editing = Membership.as_one_of([Role.OWNER, Role.ADMIN, Role.EDITOR])
        mine = Membership.objects.filter(editing, user_id=actor.user_id)  # type: ignore[misc]
        rows = rows.filter(name__in=mine.values("tenant_id"))
    return list(rows.order_by("name")[:200])


def _count(number: int, noun: str) -> str:
    return f"{_number(number)} {noun}{'' if number == 1 else 's'}"


def _number(number: int) -> str:
    """As far as it was counted."""
    return f"{number:,}+" if number >= selectors.COUNTED else str(number)
