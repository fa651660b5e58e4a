"""Workspaces: the list, a new one, one of them, and what can be done with it."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from access.credentials.selectors import credentials_of_workspace
from audit.recorder import Actor
from audit.selectors import Filters, entries_everywhere
from kube.requests.status import StatusError
from portal.admin.places import console_of
from portal.bulk.deeds import SORTS
from portal.http.actors import actor_of
from portal.pages import meters, plots, progress
from portal.pages.forms import (
    ConfirmForm,
    EmptyForm,
    SuspendForm,
    TierChoiceForm,
    WorkspaceForm,
    add_status_error,
)
from portal.pages.freezing import freezes_shown
from portal.pages.links import links_for
from portal.pages.lists import chosen, pager
from portal.pages.tiers import tier_card
from portal.views.actions import form_status, render_action
from portal.views.credentials import credential_row, workspace_crumbs
from portal.views.overview import editable_tenants
from tenants import selectors, services
from tenants.models import Cluster, CredentialKind, Desired, Phase, Role, Status, TenantState, Workspace
from tenants.rights import lets, require_open, require_thawed, require_unlocked, role_at_least, role_of
from tenants.services.desiredstate import EXPIRY

_LAYERS = (
    "The portal and the gateway refuse every request at once.",
    "Open watches and exec sessions through the gateway are cut.",
    "All role bindings of the namespace are taken away; copies are kept for resuming.",
    "Service accounts are replaced, so that issued credentials stay dead.",
)

_NEW = "Get a kubeconfig and create something: what is used of each limit is then shown here."


@require_safe
@login_required
def workspaces(request: HttpRequest) -> HttpResponse:
    """The workspaces of the caller's tenants, newest first; of operators, all."""
    actor = actor_of(request)
    query, status = request.GET.get("q", "").strip()[:63], chosen(request, "status", Status.ACTIVE, Status.SUSPENDED)
    after = request.GET.get("after", "")
    found = selectors.workspaces_page(actor, search=query, status=status, after=after)
    context = {
        "workspaces": found.rows,
        "query": query,
        "status": status,
        "statuses": [(Status.ACTIVE.value, "Active"), (Status.SUSPENDED.value, "Suspended")],
        "deeds": SORTS["workspaces"].deeds if actor.operator else {},
        "can_create": actor.operator or bool(editable_tenants(actor)),
        "pager": pager(request, found.next),
    }
    return render(request, "pages/workspaces/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_new(request: HttpRequest) -> HttpResponse:
    """Ask for a workspace; its page then follows the worker (GW6)."""
    actor = actor_of(request)
    tenants = [tenant.name for tenant in editable_tenants(actor)]
    tiers = selectors.tiers_offered(actor)
    form = WorkspaceForm(
        request.POST or None, tenants=tenants, tiers=tiers, initial={"tenant": request.GET.get("tenant", "")}
    )
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            made = services.workspace_init(
                actor=actor,
                user=request.user,  # type: ignore[arg-type]
                tier=data["tier"],
                tenant=data["tenant"],
                name=data["name"],
                idempotency_key=form.key,
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return redirect("workspace", made.pk)
    context = {
        "form": form,
        "tenants": tenants,
        "closed": None if tenants else _why_not(actor),
        "tiers": [tier_card(tier) for tier in tiers],
        "tiers_url": reverse("tiers") if actor.operator else "",
    }
    return render(request, "pages/workspaces/new.html", context, status=form_status(request, form))


@require_safe
@login_required
def workspace(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One workspace: state, quota, credentials, members, activity."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    credentials = [
        credential_row(row, revocable=not actor.auditor) for row in credentials_of_workspace(actor, found, limit=20)
    ]
    held = found.freezes.exists()
    suspended_by = f" (suspended by {found.suspended_by})" if found.suspended_by else ""
    about = {
        "tenant": found.tenant_id,
        "workspace": found.name,
        "namespace": found.k8s_namespace,
        "cluster": found.cluster.name,
    }
    context = {
        "console": console_of(actor, found),
        "links": links_for(settings.WORKSPACE_LINKS, about),
        "workspace": found,
        "may": _rights(actor, found)
        | {
            "freeze": actor.operator and found.status != Status.DELETED and not held,
            "thaw": actor.operator and bool(held),
        },
        "freezes": freezes_shown(actor, found.tenant, found, now=timezone.now()),
        "progress": _progress(actor, found),
        "limits": meters.limits_of(found.tier.quota, None),
        "limits_note": "Asking the cluster what is used…" if found.ready_at else "They hold once it is ready.",
        "credentials": credentials,
        "ways": [CredentialKind(kind).label for kind in found.cluster.credential_kinds],
        "receipt": progress.steps_of(found.receipt),
        "receipt_text": progress.receipt_text(found),
        "api_server": found.cluster.client_url or found.cluster.server,
        "members": selectors.members_page(actor, found.tenant_id, limit=8).rows,
        "entries": entries_everywhere(filters=Filters(workspace_id=found.pk, settled=True), limit=8).rows,
        "suspend_text": "Suspend" if found.status == Status.ACTIVE else "Suspend again",
        "suspended_text": f"{found.suspended_reason}{suspended_by}. {_how_resumed(found)}",
    }
    return render(request, "pages/workspaces/detail.html", context)


@require_safe
@login_required
def workspace_progress(request: HttpRequest, pk: UUID) -> HttpResponse:
    """The progress alone, asked for every second; the last answer fetches the rest of the page as it is now."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    context = {"progress": _progress(actor, found), "page": reverse("workspace", args=[pk])}
    return render(request, "components/history/progress.html", context)


@require_safe
@login_required
def workspace_quota(request: HttpRequest, pk: UUID) -> HttpResponse:
    """The meters with what is used at this moment; asked for by the page, so that a slow cluster holds up nothing."""
    found = selectors.workspace_visible_to(actor_of(request), pk)
    used = meters.quota_used(found)
    note = "" if used is not None else "What is used cannot be read from the cluster at this moment."
    context = {"limits": meters.limits_of(found.tier.quota, used), "note": note, "new_text": _NEW}
    return render(request, "components/charts/meters.html", context)


@require_safe
@login_required
def workspace_activity(request: HttpRequest, pk: UUID) -> HttpResponse:
    """What happened on which day, as a picture; asked for by the page, which does not wait for the count."""
    found = selectors.workspace_visible_to(actor_of(request), pk)
    return render(request, "components/charts/plot.html", {"plot": plots.events_plot(timezone.now(), found.pk)})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_suspend(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, with a reason, and suspend a workspace: the kill switch (GW5). Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        SuspendForm(request.POST or None),
        lambda data: services.workspace_suspend(
            actor=actor, workspace_id=found.pk, reason=data["reason"], stop=data["stop"], until=data["until"]
        ),
        title=f"Suspend {found.name}",
        submit="Suspend now",
        done=f"{found.name} is closed; the receipt grows as the cluster confirms each layer.",
        back=reverse("workspace", args=[found.pk]),
        points=_LAYERS,
        warning=""
        if found.cluster.kind == Cluster.Kind.EMBEDDED
        else "Pods run on, and what was opened straight at the cluster with them: shells, logs -f and port-forwards; "
        'watches there for an hour at most. "And stop everything" ends all but the watches.',
        crumbs=workspace_crumbs(found),
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_resume(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and resume a suspended workspace; credentials from before stay dead (P5). Operators only."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.workspace_resume(actor=actor, workspace_id=found.pk),
        title=f"Resume {found.name}",
        submit="Resume",
        done=f"{found.name} is being resumed.",
        back=reverse("workspace", args=[found.pk]),
        texts=[f"It was suspended: {found.suspended_reason}" if found.suspended_reason else "It is suspended."],
        points=["Role bindings come back as they were.", "Credentials from before stay dead; members get new ones."],
        crumbs=workspace_crumbs(found),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, by typing the name, and delete a workspace with everything in its namespace."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        ConfirmForm(request.POST or None, expected=found.name),
        lambda _: services.workspace_delete(actor=actor, workspace_id=found.pk),
        title=f"Delete {found.name}",
        submit="Delete workspace",
        done=f"{found.name} is being deleted.",
        back=reverse("workspace", args=[found.pk]),
        texts=[
            f"Everything in the namespace {found.k8s_namespace} ends: workloads, volumes, secrets. It cannot be undone."
        ],
        crumbs=workspace_crumbs(found),
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_tier(request: HttpRequest, pk: UUID) -> HttpResponse:
    """The form, and another tier for a workspace: its quota and default limits change."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    return render_action(
        request,
        TierChoiceForm(request.POST or None, tiers=selectors.tiers_offered(actor), initial={"tier": found.tier_id}),
        lambda data: services.workspace_change_tier(actor=actor, workspace_id=found.pk, tier=data["tier"]),
        title=f"Change the tier of {found.name}",
        submit="Change tier",
        done="The new quota is being set.",
        back=reverse("workspace", args=[found.pk]),
        texts=["The quota and the default limits change. What runs goes on; a smaller quota only stops new things."],
        crumbs=workspace_crumbs(found),
    )


def _how_resumed(found: Workspace) -> str:
    if found.suspended_by == EXPIRY.name:
        return "Whoever renews it opens it again."
    until = f" It is resumed on {found.suspended_until:%d %b %Y %H:%M} UTC." if found.suspended_until else ""
    return f"Only operators can resume it.{until}"


def _why_not(actor: Actor) -> dict[str, str]:
    """Why nobody offers the person a tenant for a workspace, and what to do."""
    mine = list(selectors.tenants_visible_to(actor).order_by("name")[:200])
    if not mine:
        text = "Workspaces belong to a tenant. Ask an operator or a tenant's owner to add you as an editor."
        return {"title": "You are in no tenant yet", "text": text}
    active = [tenant for tenant in mine if tenant.state == TenantState.ACTIVE]
    if not active:
        said = f" ({mine[0].suspended_reason})" if mine[0].suspended_reason else ""
        text = f"No workspace can be made in {mine[0].name}{said} until an operator resumes it."
        return {"title": f"{mine[0].name} is {mine[0].get_state_display().lower()}", "text": text}
    if not selectors.tenants_open_to(actor).exists():
        text = f"No workspace can be made in {active[0].name} until an operator thaws it."
        return {"title": f"{active[0].name} is frozen", "text": text}
    text = f"You may look at what {active[0].name} has. Ask one of its owners or admins for the role of an editor."
    return {"title": "Viewers make no workspaces", "text": text}


def _rights(actor: Actor, found: Workspace) -> dict[str, bool]:
    role = role_of(actor, found.tenant_id)
    admin = role is not None and role_at_least(role, Role.ADMIN)
    own = admin or (role is not None and role_at_least(role, Role.EDITOR) and found.user_id == actor.user_id)
    alive = found.status != Status.DELETED
    open_ = found.status == Status.ACTIVE and found.tenant.state == TenantState.ACTIVE
    # One that has ended by itself goes on again when it is renewed.
    ended = found.status == Status.SUSPENDED and found.suspended_by == EXPIRY.name
    changes = own and alive and lets(require_thawed, actor, found.tenant, found)
    renews = changes and lets(require_unlocked, actor, found.tenant, None if ended else found)
    changes = changes and lets(require_unlocked, actor, found.tenant, found)
    return {
        "issue": role is not None
        and not actor.auditor
        and open_
        and found.ready_at is not None
        and bool(found.cluster.credential_kinds),
        "look": role is not None and not actor.auditor and open_ and found.ready_at is not None,
        "suspend": actor.operator and found.phase != Phase.DELETED,
        "resume": actor.operator and found.status == Status.SUSPENDED and found.tenant.state == TenantState.ACTIVE,
        "delete": changes,
        "change_tier": changes and open_,
        "renew": renews and (open_ or ended) and (admin or found.expires_at is not None),
        "manage_members": admin,
        "read_audit": admin or actor.sees_all,
        "see_tenant": role is not None,
    }


def _progress(actor: Actor, found: Workspace) -> progress.Progress:
    operation = selectors.operation_of(found)
    role = role_of(actor, found.tenant_id)
    own = role is not None and (role_at_least(role, Role.ADMIN) or found.user_id == actor.user_id)
    if operation is not None and operation.desired == Desired.READY:
        own = own and lets(require_open, actor, found.tenant, found)
    return progress.progress_of(
        found,
        operation,
        url=reverse("workspace-progress", args=[found.pk]),
        retry=reverse("operation-retry", args=[operation.pk]) if operation is not None and own else "",
    )
