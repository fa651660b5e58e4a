"""What tenants and their workspaces used, and what it costs (AD7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from portal.access.usage import charges_file, hours_between, usage_file
from portal.http.actors import actor_of
from portal.pages.lists import chosen, pager
from portal.pages.navigation import tenant_tabs
from portal.pages.plots import usage_plot
from portal.pages.priceforms import PricesForm
from portal.views.actions import render_action
from tenants import selectors, services
from tenants.charges import bill_of_tenant, bills_of_month, month_of, prices_all, prices_of_month
from tenants.models import UsageHour
from tenants.rights import require_operator, require_overseer
from tenants.usage import usage_hours

_MONTH: Final = timedelta(days=31)
_PAGE: Final = 50


@require_safe
@login_required
def tenant_usage(request: HttpRequest, name: str) -> HttpResponse:
    """Requests by day, and the newest hour of the tenant and of each workspace."""
    actor, now = actor_of(request), timezone.now()
    found = selectors.tenant_visible_to(actor, name)
    newest = usage_hours(found, namespace="").last()
    workspaces = usage_hours(found, since=newest.hour).filter(hour=newest.hour).exclude(namespace="") if newest else []
    context: dict[str, Any] = {
        "tenant": found,
        "tabs": tenant_tabs(actor, name),
        "newest": newest,
        "stats": _stats(newest) if newest else [],
        "plot": usage_plot(now, found),
        "bill": bill_of_tenant(found, month_of("", now)),
        "rows": workspaces,
        "listed": "Workspaces",
    }
    return render(request, "pages/tenants/usage.html", context)


@require_safe
@login_required
def tenant_usage_export(request: HttpRequest, name: str) -> HttpResponse:
    """The hours of the last month as CSV, or as OpenMetrics with ``format=openmetrics``."""
    found = selectors.tenant_visible_to(actor_of(request), name)
    now = timezone.now()
    form = chosen(request, "format", "csv", "openmetrics") or "csv"
    return usage_file(hours_between(found, now - _MONTH, now, request.GET.get("namespace", "")[:63], now), form)


def _shown(value: int | None) -> int | str:
    return "—" if value is None else value


def _stats(hour: UsageHour) -> list[dict[str, Any]]:
    shown = (
        ("activity", "Requests", hour.requests, f"{hour.refused} refused"),
        ("key-round", "Credentials issued", hour.credentials, ""),
        ("boxes", "Objects", hour.objects_stored, f"stored here, {_shown(hour.objects_placed)} on clusters"),
        ("terminal", "Open streams", hour.streams, ""),
    )
    return [
        {"icon": icon, "label": label, "value": _shown(value), "unit": "", "note": note}
        for icon, label, value, note in shown
    ]


@require_safe
@login_required
def charges(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The bills of a month by tenant, as a page, or all of them as CSV. Operators only."""
    require_overseer(actor_of(request))
    now = timezone.now()
    month = month_of(request.GET.get("month", ""), now)
    if chosen(request, "format", "csv"):
        return charges_file(month)
    bills, cursor = bills_of_month(month, after=request.GET.get("after", "")[:63], limit=_PAGE)
    context: dict[str, Any] = {
        "month": f"{month:%Y-%m}",
        "is_over": month < month_of("", now),
        "rows": bills,
        "priced": bool(prices_of_month(month)),
        "listed": "Charges",
        "pager": pager(request, cursor),
    }
    return render(request, "pages/charges/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def prices(request: HttpRequest) -> HttpResponse:
    """The form of all prices. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    now = {price.measure: f"{price.amount.normalize():f} / {price.per}" for price in prices_all()}
    return render_action(
        request,
        PricesForm(request.POST or None, initial={"prices": now}),
        lambda data: services.prices_change(actor=actor, prices=data["prices"], now=timezone.now()),
        title="Prices",
        submit="Save",
        done="This month and later ones are charged by these prices; what months before cost stays.",
        back=reverse("charges"),
        crumbs=[{"text": "Charges", "url": reverse("charges")}],
        template="pages/form.html",
        intro="Of requests, credentials, objects, bytes, streams, and of what is used of the quota, an hour of it.",
    )
