"""The operators' pages: tiers and clusters."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.admin.places import console_of
from portal.http.actors import actor_of
from portal.pages import labels, plots
from portal.pages.forms import ClusterCredentialForm, ClusterForm, ConfirmForm, EmptyForm, TierForm
from portal.pages.tiers import tier_card
from portal.views.actions import render_action
from tenants import selectors, services
from tenants.models import Cluster, CredentialKind, Phase, Status, Workspace
from tenants.rights import require_operator, require_overseer


@require_safe
@login_required
def tiers(request: HttpRequest) -> HttpResponse:
    """All tiers, withdrawn ones too, with the number of their workspaces. Operators only."""
    actor = actor_of(request)
    require_overseer(actor)
    counts = dict(Workspace.objects.exclude(phase=Phase.DELETED).values_list("tier_id").annotate(Count("pk")))
    cards = [{**tier_card(tier), "workspaces": counts.get(tier.name, 0)} for tier in selectors.tiers_offered(actor)]
    return render(request, "pages/tiers/list.html", {"tiers": cards})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tier_new(request: HttpRequest) -> HttpResponse:
    """The form, and the new tier. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    return render_action(
        request,
        TierForm(request.POST or None),
        lambda data: services.tier_create(actor=actor, **data),
        title="New tier",
        submit="Create tier",
        done="The tier is there.",
        back=reverse("tiers"),
        crumbs=[{"text": "Tiers", "url": reverse("tiers")}],
        template="pages/form.html",
        intro="The quota of a workspace, and the limits that plain pods get.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tier(request: HttpRequest, name: str) -> HttpResponse:
    """The form, and the changed tier; its workspaces follow (GW2). Operators only."""
    actor = actor_of(request)
    require_overseer(actor)
    found = selectors.tier_visible_to(actor, name)
    form = TierForm(request.POST or None, initial={field: getattr(found, field) for field in TierForm.base_fields})
    del form.fields["name"]
    reached = found.workspaces.filter(status=Status.ACTIVE)[: selectors.COUNTED].count()
    return render_action(
        request,
        form,
        lambda data: services.tier_change(actor=actor, name=name, **data),
        title=str(found),
        submit="Save",
        done="Saved; the workspaces of the tier follow.",
        back=reverse("tiers"),
        crumbs=[{"text": "Tiers", "url": reverse("tiers")}],
        template="pages/form.html",
        intro=f"A changed quota reaches {reached} active workspace{'' if reached == 1 else 's'}.",
        other={"url": reverse("tier-delete", args=[name]), "text": "Delete"},
        links=[{"url": reverse("tier-policies-change", args=[name]), "text": "Rules"}],
        console=console_of(actor, found),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tier_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and delete a tier; ``Conflict`` while workspaces have it. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    selectors.tier_visible_to(actor, name)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.tier_delete(actor=actor, name=name),
        title=f"Delete the tier {name}",
        submit="Delete",
        done="The tier is gone.",
        back=reverse("tier", args=[name]),
        after=reverse("tiers"),
        texts=["Only a tier that no workspace has can be deleted. Others can be withdrawn: nobody can choose them."],
        crumbs=[{"text": "Tiers", "url": reverse("tiers")}],
        destroys=True,
    )


@require_safe
@login_required
def clusters(request: HttpRequest) -> HttpResponse:
    """All clusters with the number of their workspaces. Operators only."""
    require_overseer(actor_of(request))
    rows = Cluster.objects.defer("sealed_credential").order_by("name")
    found = list(rows.annotate(workspace_count=Count("workspaces", filter=~Q(workspaces__phase=Phase.DELETED))))
    for cluster in found:
        cluster.shown = _cluster_state(cluster)  # type: ignore[attr-defined]
    return render(request, "pages/clusters/list.html", {"rows": found, "listed": "Clusters"})


@require_safe
@login_required
def cluster(request: HttpRequest, name: str) -> HttpResponse:
    """One cluster and what its last check found, never its credential. Operators only."""
    found = selectors.cluster_named(actor_of(request), name)
    context = {
        "cluster": found,
        "console": console_of(actor_of(request), found),
        "shown": _cluster_state(found),
        "ways": [CredentialKind(kind).label for kind in found.credential_kinds],
        "has_credential": _has_credential(found),
        "ends_soon": selectors.credential_ends_soon(found, now=timezone.now()),
        "opened": found.opened.split("\n") if found.opened else [],
        "external": found.kind == Cluster.Kind.EXTERNAL,
        "workspace_count": found.workspaces.exclude(phase=Phase.DELETED)[: selectors.COUNTED].count(),
    }
    return render(request, "pages/clusters/detail.html", context)


@sensitive_post_parameters("kubeconfig")
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cluster_new(request: HttpRequest) -> HttpResponse:
    """Register a cluster by a kubeconfig, which is sealed and not shown again."""
    actor = actor_of(request)
    require_operator(actor)

    def register(data: dict[str, Any]) -> None:
        services.cluster_register(actor=actor, **data)
        services.cluster_check(actor=actor, name=data["name"])

    return render_action(
        request,
        ClusterForm(request.POST or None),
        register,
        title="Register a cluster",
        submit="Register",
        done="Registered. Below is what the first check found.",
        back=reverse("clusters"),
        after=reverse("cluster", args=[request.POST["name"]])
        if _plain(request.POST.get("name", ""))
        else reverse("clusters"),
        crumbs=[{"text": "Clusters", "url": reverse("clusters")}],
        template="pages/form.html",
        intro="Apply the manifests of the restricted role first; the kubeconfig must hold that account's credential.",
    )


@require_POST
@login_required
def cluster_check(request: HttpRequest, name: str) -> HttpResponse:
    """Connect to a cluster now and say what was found (POST). Operators only."""
    error = services.cluster_check(actor=actor_of(request), name=name)
    if error:
        messages.error(request, error, extra_tags="deny")
    else:
        messages.success(request, "The cluster answers as it should.", extra_tags="allow")
    return redirect("cluster", name)


@require_safe
@login_required
def cluster_latency(request: HttpRequest, name: str) -> HttpResponse:
    """How fast a cluster answered in the last hours, as a picture. Operators only."""
    found = selectors.cluster_named(actor_of(request), name)
    return render(request, "components/charts/plot.html", {"plot": plots.latency_plot(timezone.now(), found)})


@sensitive_post_parameters("kubeconfig")
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cluster_credential(request: HttpRequest, name: str) -> HttpResponse:
    """The form for another credential, which is tried before it takes over. Operators only."""
    actor = actor_of(request)
    selectors.cluster_named(actor, name)
    page = reverse("cluster", args=[name])
    return render_action(
        request,
        ClusterCredentialForm(request.POST or None),
        lambda data: services.cluster_credential_rotate(actor=actor, name=name, **data),
        title=f"Rotate the credential of {name}",
        submit="Rotate",
        done="The new credential is in use, the old one is wiped here. Take it away on the cluster too.",
        back=page,
        crumbs=[{"text": "Clusters", "url": reverse("clusters")}, {"text": name, "url": page}],
        template="pages/form.html",
        intro="It is tried on the cluster first and takes over at once; what has begun ends with the old one.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cluster_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Confirm and forget a cluster; ``Conflict`` while workspaces are on it. Operators only."""
    actor = actor_of(request)
    selectors.cluster_named(actor, name)
    return render_action(
        request,
        ConfirmForm(request.POST or None, expected=name),
        lambda _: services.cluster_delete(actor=actor, name=name),
        title=f"Remove {name}",
        submit="Remove cluster",
        done="The cluster is forgotten, its credential with it.",
        back=reverse("cluster", args=[name]),
        after=reverse("clusters"),
        texts=["Only a cluster without workspaces can be removed. Nothing on it is touched."],
        crumbs=[{"text": "Clusters", "url": reverse("clusters")}],
        destroys=True,
    )


def _has_credential(found: Cluster) -> bool:
    return Cluster.objects.filter(pk=found.pk, sealed_credential__isnull=False).exists()


def _plain(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum() and name == name.lower()


def _cluster_state(found: Cluster) -> labels.State:
    if found.unreached_since:
        return labels.State(labels.DENY, "Away")
    if found.last_error:
        return labels.State(labels.DENY, "Unreachable")
    return labels.State(labels.ALLOW, "Healthy") if found.last_seen_at else labels.State(labels.PASS, "Not checked yet")
