"""What the objects of tenants may be: the rules of tiers, and a tenant's own (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from access.policytrials import Trial, tenant_policies_try, tier_policies_try
from kube.policies.policy import as_document, rules_of
from kube.requests.status import StatusError
from portal.http.actors import actor_of
from portal.pages.forms import add_status_error
from portal.pages.navigation import tenant_tabs
from portal.pages.policyforms import PoliciesForm, rules_in_words
from portal.views.actions import form_status, render_action
from tenants import selectors, services
from tenants.policies import policies_enforced, policy_for
from tenants.rights import require_operator

_TEXT = "One a line. Empty: as without the rule; * is anything, - is nothing. What is there already stays."


@require_safe
@login_required
def tenant_objects(request: HttpRequest, name: str) -> HttpResponse:
    """What holds in the namespaces of each of a tenant's tiers, and where it is enforced."""
    actor = actor_of(request)
    tenant = selectors.tenant_visible_to(actor, name)
    context = {
        "tenant": tenant,
        "operator": actor.operator,
        "tabs": tenant_tabs(actor, name),
        "tiers": [
            {
                "name": str(tier) if tier else "",
                "rules": rules_in_words(as_document(rules_of(policy_for(tenant, tier)))),
            }
            for tier in (*selectors.tiers_of(tenant), None)
        ],
        "clusters": policies_enforced(tenant, timezone.now()),
    }
    return render(request, "pages/tenants/objects.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_policies_change(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a tenant's own rules, tried or saved. Operators only."""
    actor = actor_of(request)
    tenant = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    return _changed(
        request,
        tenant.policies,
        lambda rules: tenant_policies_try(actor=actor, name=name, policies=rules),
        lambda rules: services.tenant_policies_change(actor=actor, name=name, policies=rules),
        title=f"Rules of {name}",
        intro=f"In place of those of its tiers. {_TEXT}",
        back=reverse("tenant-objects", args=[name]),
        crumbs=[{"text": "Tenants", "url": reverse("tenants")}, {"text": name, "url": reverse("tenant", args=[name])}],
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tier_policies_change(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a tier's rules, tried or saved. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    tier = selectors.tier_visible_to(actor, name)
    return _changed(
        request,
        tier.policies,
        lambda rules: tier_policies_try(actor=actor, name=name, policies=rules),
        lambda rules: services.tier_change(actor=actor, name=name, policies=rules),
        title=f"Rules of {tier}",
        intro=f"For what its workspaces hold. {_TEXT}",
        back=reverse("tier", args=[name]),
        crumbs=[{"text": "Tiers", "url": reverse("tiers")}, {"text": str(tier), "url": reverse("tier", args=[name])}],
    )


def _changed(
    request: HttpRequest,
    policies: Mapping[str, Any],
    trying: Callable[[Mapping[str, Any]], Trial],
    saving: Callable[[Mapping[str, Any]], object],
    **texts: Any,
) -> HttpResponse:
    form = PoliciesForm(request.POST or None, policies=policies)
    if request.method == "POST" and "try" in request.POST and form.is_valid():
        try:
            texts["trial"] = trying(form.cleaned_data["policies"])
        except StatusError as error:
            add_status_error(request, form, error)
        context = {"form": form, "submit": "Save", **texts}
        return render(request, "pages/policies/form.html", context, status=form_status(request, form))
    return render_action(
        request,
        form,
        lambda data: saving(data["policies"]),
        submit="Save",
        done="The rules hold from now on.",
        template="pages/policies/form.html",
        **texts,
    )
