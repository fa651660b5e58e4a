"""What a tenant used, as pages and the REST API give it out (AD7)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.http import HttpResponse, StreamingHttpResponse

from audit.export import csv_line
from kube.requests.status import BadRequest
from portal.access.auditlog import Lines
from tenants.charges import bill_table, bills_all
from tenants.models import Tenant, UsageHour
from tenants.usage import openmetrics_lines, table_of, usage_hours

LONGEST: Final = timedelta(days=366)
_DAY: Final = timedelta(days=1)
_OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"


def hours_between(
    tenant: Tenant, since: datetime | None, until: datetime | None, namespace: str, now: datetime
) -> list[UsageHour]:
    """The hours that are asked for: of the last day where nothing is said, of a year at most. Raises ``BadRequest``."""
    until = until or now
    since = since or until - _DAY
    if not timedelta(0) <= until - since <= LONGEST:
        raise BadRequest("The time between since and until is a year at most.")
    return list(usage_hours(tenant, since=since, until=until, namespace=namespace))


def usage_file(rows: list[UsageHour], form: str) -> HttpResponse:
    """The hours as a file: ``csv`` or ``openmetrics``."""
    if form == "csv":
        content, media = "".join(csv_line(line) for line in table_of(rows)), "text/csv"
    else:
        content, media = "".join(openmetrics_lines(rows)), _OPENMETRICS
    response = HttpResponse(content, content_type=f"{media}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="usage.{"csv" if form == "csv" else "txt"}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def charges_file(month: datetime) -> StreamingHttpResponse:
    """The bills of all tenants as CSV, read while it is sent. Whoever calls has asked for an operator."""
    response = Lines(map(csv_line, bill_table(bills_all(month), month)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="charges-{month:%Y-%m}.csv"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
