"""What a tenant may hold: its quota, which of its namespaces uses what, and what was refused for it (AD1, AD2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from audit.selectors import chain_began, requests_refused_by
from kube.quota import storedbytes
from portal.http.actors import actor_of
from portal.pages.forms import TenantQuotaForm
from portal.pages.meters import limits_of, meters_of
from portal.pages.navigation import tenant_tabs
from portal.views.actions import render_action
from tenants import selectors, services
from tenants.quotas import namespace_quotas, placed_use, stored_use, tenant_quota
from tenants.rights import require_operator
from tenants.usage import quota_forecast

_STEPS: Final = ("admission/TenantQuota", "admission/ResourceQuota", storedbytes.STEP)
_LOOK_BACK: Final = timedelta(days=7)
_SHOWN: Final = 20


@require_safe
@login_required
def tenant_quota_page(request: HttpRequest, name: str) -> HttpResponse:
    """A tenant's quota, the quotas of its namespaces beside it, and the last refusals for those who see requests."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    tabs = tenant_tabs(actor, name)
    quota = tenant_quota(name)
    since = max(filter(None, (timezone.now() - _LOOK_BACK, chain_began(name))))
    context = {
        "tenant": found,
        "operator": actor.operator,
        "tabs": tabs,
        "scopes": [str(scope) for scope in quota.scopes],
        "limits": limits_of(quota.hard, quota.used, quota_forecast(found, timezone.now())),
        "stored": meters_of(*stored_use(name).amounts),
        "rows": [
            {"namespace": each.namespace, "name": each.name, "limits": limits_of(each.hard, each.used)}
            for each in namespace_quotas(name)
        ],
        "clusters": [
            {
                "name": each.cluster,
                "limits": limits_of(quota.hard, each.used),
                "namespaces": [
                    {"namespace": one.namespace, "workspace": one.workspace, "limits": limits_of(quota.hard, one.used)}
                    for one in each.namespaces
                ],
            }
            for each in placed_use(found)
        ],
        "listed": "Quotas of namespaces",
        "refusals": requests_refused_by(name, _STEPS, since=since, limit=_SHOWN) if tabs.read_all else [],
    }
    return render(request, "pages/tenants/quota.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_quota_change(request: HttpRequest, name: str) -> HttpResponse:
    """Change it. Operators only."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    require_operator(actor)
    initial: dict[str, Any] = {"hard": dict(tenant_quota(name).hard)}
    return render_action(
        request,
        TenantQuotaForm(request.POST or None, initial=initial),
        lambda data: services.tenant_quota_change(actor=actor, name=name, hard=data["hard"]),
        title=f"Quota of {found.name}",
        submit="Change quota",
        done=f"{found.name} has another quota.",
        back=reverse("tenant-quota", args=[name]),
        texts=["Below what is used, nothing is taken away and nothing more is admitted."],
        crumbs=[
            {"text": "Tenants", "url": reverse("tenants")},
            {"text": found.name, "url": reverse("tenant", args=[name])},
        ],
    )
