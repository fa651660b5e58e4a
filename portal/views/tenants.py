"""Tenants and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.credentials.selectors import credentials_of_tenant, people_of_credentials
from audit.models import ApiRequest, AuditEntry
from audit.recorder import Actor
from audit.selectors import Filters, chain_began, entries_of_chain, requests_of_tenant
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import NotFound, StatusError
from portal.admin.places import console_of
from portal.bulk.deeds import SORTS
from portal.http.actors import actor_of, person_named
from portal.pages import labels, plots
from portal.pages.forms import ConfirmForm, EmptyForm, MemberForm, RoleForm, SuspendForm, TenantForm
from portal.pages.freezing import freezes_shown
from portal.pages.lists import chosen, pager
from portal.pages.navigation import tenant_tabs
from portal.views.actions import render_action
from portal.views.credentials import credential_row
from tenants import selectors, services
from tenants.models import Membership, Role, Tenant, TenantState
from tenants.rights import (
    lets,
    require_lasting_role,
    require_open,
    require_operator,
    require_role,
    require_unlocked,
    role_at_least,
    role_of,
    roles_given_by,
)
from tenants.services.invitations import invitations_waiting

PAGE = 50
_JTI = "JTI="
"""How a request names its credential (``kube.authentication.identity``)."""


@require_safe
@login_required
def tenants(request: HttpRequest) -> HttpResponse:
    """The caller's tenants, newest first; of operators, all."""
    actor = actor_of(request)
    query = request.GET.get("q", "").strip()[:63]
    found = selectors.tenants_page(actor, search=query, after=request.GET.get("after", "")[:63], limit=PAGE + 1)
    more = len(found) > PAGE
    context = {
        "rows": found[:PAGE],
        "listed": "Tenants",
        "query": query,
        "operator": actor.operator,
        "deeds": SORTS["tenants"].deeds if actor.operator else {},
        "pager": pager(request, found[PAGE - 1].name if more else ""),
    }
    return render(request, "pages/tenants/list.html", context)


@require_safe
@login_required
def tenant(request: HttpRequest, name: str) -> HttpResponse:
    """One tenant: numbers, workspaces, activity. ``NotFound`` for whoever is no member."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    numbers = selectors.overview_of(actor, tenant=name)
    role = role_of(actor, name)
    system = name == SYSTEM_TENANT
    held = freezes_shown(actor, found, now=timezone.now())
    leaves = found.state != TenantState.TERMINATING and hasattr(found, "offboarding")
    may = {
        "suspend": actor.operator and not system,
        "freeze": actor.operator and not system and found.state != TenantState.TERMINATING and not held,
        "thaw": actor.operator and bool(held) and not leaves,
        "resume": actor.operator and found.state == TenantState.SUSPENDED and not leaves,
        "read_all": actor.sees_all or (role is not None and role_at_least(role, Role.ADMIN)),
        "issue": role is not None and not actor.auditor and numbers.ready > 0 and found.state == TenantState.ACTIVE,
        "create_workspace": role is not None
        and role_at_least(role, Role.EDITOR)
        and found.state == TenantState.ACTIVE
        and (actor.operator or not held),
        "delete": actor.operator and found.state != TenantState.TERMINATING and not system,
        "offboard": actor.operator and found.state != TenantState.TERMINATING and not system,
        "retain": actor.operator and leaves,
        "ask_to_leave": role is Role.OWNER and not actor.operator and found.state == TenantState.ACTIVE and not held,
    }
    stats = [
        {"icon": "boxes", "label": "Workspaces", "value": numbers.workspaces, "unit": "", "note": ""},
        {
            "icon": "circle-check",
            "label": "Ready",
            "value": numbers.ready,
            "unit": f"of {numbers.workspaces}",
            "note": "",
        },
        {"icon": "lock", "label": "Suspended", "value": numbers.suspended, "unit": "", "note": ""},
        {"icon": "users", "label": "Members", "value": found.memberships.count(), "unit": "", "note": ""},
    ]
    entries: Sequence[AuditEntry] = []
    if may["read_all"]:
        entries = entries_of_chain(name, filters=Filters(settled=True, since=chain_began(name)), limit=8).rows
    context = {
        "tenant": found,
        "console": console_of(actor, found),
        "may": may,
        "tabs": tenant_tabs(actor, name),
        "stats": stats,
        "workspaces": selectors.workspaces_page(actor, tenant=name, limit=20).rows,
        "entries": entries,
        "known": selectors.workspaces_known(actor, [entry.workspace_id for entry in entries]),
        "credentials": [
            credential_row(row, revocable=not actor.auditor) for row in credentials_of_tenant(actor, name, limit=20)
        ],
        "freezes": held,
        "suspend_text": "Suspend" if found.state == TenantState.ACTIVE else "Suspend again",
        "suspended_text": f"{found.suspended_reason}. Its space and its workspaces are closed"
        + (f" until {found.suspended_until:%d %b %Y %H:%M} UTC." if found.suspended_until else "."),
    }
    return render(request, "pages/tenants/detail.html", context)


@require_safe
@login_required
def tenant_activity(request: HttpRequest, name: str) -> HttpResponse:
    """Its requests to the API server in the last day, as a picture; the page does not wait for the count."""
    found = selectors.tenant_visible_to(actor_of(request), name)
    return render(
        request, "components/charts/plot.html", {"plot": plots.requests_plot(timezone.now(), tenant=found.name)}
    )


@require_safe
@login_required
def tenant_requests(request: HttpRequest, name: str) -> HttpResponse:
    """Its requests to the API server, each with the person behind the service account. Admins and auditors."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_role(actor, name, Role.VIEWER if actor.auditor else Role.ADMIN)
    outcome = chosen(request, "outcome", "allowed", "refused")
    allowed = {"allowed": True, "refused": False}.get(outcome)
    page = requests_of_tenant(name, since=chain_began(name), allowed=allowed, after=request.GET.get("after", ""))
    people = people_of_credentials(row.credential.removeprefix(_JTI) for row in page.rows)
    context = {
        "tenant": found,
        "tabs": tenant_tabs(actor, name),
        "outcome": outcome,
        "rows": [_request(row, people) for row in page.rows],
        "listed": "Requests",
        "pager": pager(request, page.next),
    }
    return render(request, "pages/tenants/requests.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_new(request: HttpRequest) -> HttpResponse:
    """The form, and the new tenant with its space. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    return render_action(
        request,
        TenantForm(request.POST or None),
        lambda data: services.tenant_create(
            actor=actor,
            name=data["name"],
            display_name=data["display_name"],
            owner=person_named(data["owner"], field="owner") if data["owner"] else None,
        ),
        title="New tenant",
        submit="Create tenant",
        done="The tenant is there, with its space.",
        back=reverse("tenants"),
        crumbs=_crumbs(),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_suspend(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and suspend a tenant: its space, its workspaces, all credentials (GW5). Operators only."""
    actor = actor_of(request)
    found = _for_operator(actor, name)
    return render_action(
        request,
        SuspendForm(request.POST or None),
        lambda data: services.tenant_suspend(actor=actor, name=name, **data),
        title=f"Suspend {found.name}",
        submit="Suspend now",
        done=f"{found.name} is suspended.",
        back=reverse("tenant", args=[name]),
        texts=["Its space is closed to everybody but operators, and all its workspaces are suspended."],
        crumbs=_crumbs(found),
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_resume(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and resume a suspended tenant; what was suspended on its own stays closed. Operators only."""
    actor = actor_of(request)
    found = _for_operator(actor, name)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.tenant_resume(actor=actor, name=name),
        title=f"Resume {found.name}",
        submit="Resume",
        done=f"{found.name} is open again.",
        back=reverse("tenant", args=[name]),
        texts=["The workspaces that were suspended with it come back. Those suspended on their own stay closed."],
        crumbs=_crumbs(found),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm, by typing the name, and delete a tenant with all that is in it, at once. Operators only."""
    actor = actor_of(request)
    found = _for_operator(actor, name)
    return render_action(
        request,
        ConfirmForm(request.POST or None, expected=name),
        lambda _: services.tenant_delete(actor=actor, name=name),
        title=f"Delete {name}",
        submit="Delete tenant",
        done=f"{name} is being deleted.",
        back=reverse("tenant", args=[name]),
        after=reverse("tenants"),
        texts=["Its workspaces, its space and everything stored in it end. It cannot be undone."],
        crumbs=_crumbs(found),
        destroys=True,
    )


@require_safe
@login_required
def members(request: HttpRequest, name: str) -> HttpResponse:
    """The members of a tenant with their roles. ``NotFound`` for whoever is no member."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    may_manage = selectors.may_manage(actor, name)
    gives = roles_given_by(actor, name)
    people = selectors.members_page(actor, name, after=request.GET.get("after", ""))
    context = {
        "tenant": found,
        "rows": people.rows,
        "listed": "Members",
        "pager": pager(request, people.next),
        "may_manage": may_manage,
        "gives": gives if lets(require_open, actor, found) else [],
        "takes": gives if lets(require_unlocked, actor, found) else [],
        "tabs": tenant_tabs(actor, name),
        "invitations": invitations_waiting(actor, name, now=timezone.now()) if may_manage or actor.auditor else [],
    }
    return render(request, "pages/tenants/members.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def member_add(request: HttpRequest, name: str) -> HttpResponse:
    """The form, and a membership for somebody who has an account. Owners, admins and operators."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_role(actor, name, Role.ADMIN)

    def add(data: dict[str, Any]) -> Membership:
        # Before the address is looked up: whoever may add nobody learns nothing about accounts.
        require_lasting_role(actor, name, Role.ADMIN)
        person = person_named(data["email"], field="email")
        return services.membership_set(actor=actor, tenant=name, user=person, role=Role(data["role"]))

    return render_action(
        request,
        MemberForm(request.POST or None),
        add,
        title=f"Add a member to {name}",
        submit="Add member",
        done="Added.",
        back=reverse("members", args=[name]),
        crumbs=_crumbs(found),
    )


@require_POST
@login_required
def member_role(request: HttpRequest, name: str, user_id: UUID) -> HttpResponse:
    """Give a member another role (POST). Who may give which is the service's to say."""
    actor = actor_of(request)
    form = RoleForm(request.POST)
    try:
        member = selectors.membership_visible_to(actor, name, user_id).user
        if form.is_valid():
            services.membership_set(actor=actor, tenant=name, user=member, role=Role(form.cleaned_data["role"]))
            messages.success(
                request, f"{member.email} is {Role(form.cleaned_data['role']).label.lower()} now.", extra_tags="allow"
            )
    except NotFound:
        raise
    except StatusError as error:
        messages.error(request, error.message, extra_tags="deny")
    return redirect("members", name)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def member_remove(request: HttpRequest, name: str, user_id: UUID) -> HttpResponse:
    """Confirm and end a membership, its credentials with it. The last owner stays."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    member = selectors.membership_visible_to(actor, name, user_id).user
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.membership_remove(actor=actor, tenant=name, user=member),
        title=f"Remove {member.email}",
        submit="Remove",
        done=f"{member.email} is no member any more.",
        back=reverse("members", args=[name]),
        texts=[f"{member.email} loses access to {name} and its workspaces with the next request."],
        crumbs=_crumbs(found),
        destroys=True,
    )


def _request(row: ApiRequest, people: Mapping[str, str]) -> dict[str, Any]:
    credential = row.credential.removeprefix(_JTI)
    verdict, word = (labels.ALLOW, "Allowed") if row.allowed else (labels.DENY, "Refused")
    return {
        "person": people.get(credential, row.actor or "nobody"),
        "credential": credential if credential in people else "",
        "verb": row.verb,
        "path": row.path,
        "count": row.count,
        "state": labels.State(verdict, f"{word}, {row.code}"),
        "why": "" if row.allowed else row.reason or "No rule allows it.",
        "milliseconds": f"{row.latency / 1000:.1f}",
        "created_at": row.created_at,
    }


def _for_operator(actor: Actor, name: str) -> Tenant:
    found = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    return found


def _crumbs(found: Tenant | None = None) -> list[dict[str, Any]]:
    crumbs = [{"text": "Tenants", "url": reverse("tenants")}]
    if found is not None:
        crumbs.append({"text": found.name, "url": reverse("tenant", args=[found.name])})
    return crumbs
