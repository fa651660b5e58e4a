"""Reports for operators and auditors, a tab each (GW28)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from kube.requests.status import NotFound
from portal.access.reports import DAYS, DAYS_USUAL, REPORTS, asked_of, report_file
from portal.http.actors import actor_of
from portal.pages.lists import chosen, pager
from portal.pages.meters import meters_of
from portal.pages.plots import costs_plot
from tenants.charges import prices_of_month
from tenants.rights import require_overseer
from tenants.usage import QuotaShare

PAGE = 50


@require_safe
@login_required
def report(request: HttpRequest, kind: str = "dormant-people") -> HttpResponse | StreamingHttpResponse:
    """One report as a page, or all of it as CSV. Operators and auditors."""
    require_overseer(actor_of(request))
    found = REPORTS.get(kind)
    if found is None:
        raise NotFound(f"There is no report {kind[:63]!r}.", kind="reports", name=kind[:63])
    days, month = request.GET.get("days", ""), request.GET.get("month", "")
    asked = asked_of(days, month, timezone.now())
    if chosen(request, "format", "csv"):
        return report_file(kind, asked)
    rows, cursor = found.rows(asked, request.GET.get("after", "")[:320], PAGE)
    context: dict[str, Any] = {
        "report": found,
        "kind": kind,
        "tabs": [(key, each.title) for key, each in REPORTS.items()],
        "rows": [_quota_row(row) for row in rows] if _is_quota(kind) else rows,
        "listed": found.title,
        "days": int(days or DAYS_USUAL),
        "choices": DAYS,
        "month": f"{asked.month:%Y-%m}",
        "csv": _query(request),
        "pager": pager(request, cursor),
    }
    if kind == "costs":
        context["plot"] = costs_plot(rows) if rows else None
        context["priced"] = bool(prices_of_month(asked.month))
    shape = "quota" if _is_quota(kind) else kind
    return render(request, f"pages/reports/{shape}.html", context)


def _is_quota(kind: str) -> bool:
    return kind.startswith("quota-")


def _quota_row(row: QuotaShare) -> dict[str, Any]:
    [meter] = meters_of({row.resource: str(row.hard)}, {row.resource: str(row.used)})
    return {"share": row, "meter": meter}


def _query(request: HttpRequest) -> str:
    """What asks for the same as a file."""
    query = request.GET.copy()
    query.pop("after", None)
    query["format"] = "csv"
    return f"?{query.urlencode()}"
