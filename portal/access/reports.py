"""What operators and auditors look through now and then: pages, REST and CSV have it from here (GW28)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from access.dormancy import people_dormant, workspaces_dormant
from audit.export import csv_line
from kube.requests.status import BadRequest
from portal.access.auditlog import Lines
from tenants.charges import bills_of_month, month_of
from tenants.usage import quota_shares

DAYS: Final = (30, 90, 180)
"""For how long nobody has been there: what can be chosen. The middle one where nothing is said."""
DAYS_USUAL: Final = 90
NEARLY: Final = 0.9
HARDLY: Final = 0.1
_TOGETHER: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about: not used since then, or of this month."""

    since: datetime
    month: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One kind. ``columns`` are the members of its rows; ``over`` says whether it is of ``days`` or of a ``month``."""

    title: str
    intro: str
    columns: tuple[str, ...]
    rows: Callable[[Asked, str, int], tuple[list[Any], str]]
    over: str = ""


def _people(asked: Asked, after: str, limit: int) -> tuple[list[Any], str]:
    return people_dormant(since=asked.since, after=after, limit=limit)


def _workspaces(asked: Asked, after: str, limit: int) -> tuple[list[Any], str]:
    return workspaces_dormant(since=asked.since, after=after, limit=limit)


def _nearly(_: Asked, after: str, limit: int) -> tuple[list[Any], str]:
    return quota_shares(above=NEARLY, after=after, limit=limit)


def _hardly(_: Asked, after: str, limit: int) -> tuple[list[Any], str]:
    return quota_shares(below=HARDLY, after=after, limit=limit)


def _costs(asked: Asked, after: str, limit: int) -> tuple[list[Any], str]:
    return bills_of_month(asked.month, after=after, limit=limit)


_SHARES: Final = ("tenant", "resource", "used", "hard", "share")

REPORTS: Final[Mapping[str, Report]] = {
    "dormant-people": Report(
        title="Dormant people",
        intro="Accounts without a sign-in, a token, a machine or a credential in use.",
        columns=("email", "name", "created_at", "last_used_at"),
        rows=_people,
        over="days",
    ),
    "dormant-workspaces": Report(
        title="Dormant workspaces",
        intro="No request through the API server and no credential issued, by the hours of use.",
        columns=("tenant", "name", "namespace", "owner", "created_at", "last_used_at"),
        rows=_workspaces,
        over="days",
    ),
    "quota-nearly-used": Report(
        title="Quota nearly used",
        intro="More than 90 % of a quota, at the end of the last full hour.",
        columns=_SHARES,
        rows=_nearly,
    ),
    "quota-hardly-used": Report(
        title="Quota hardly used",
        intro="Less than 10 % of a quota, at the end of the last full hour.",
        columns=_SHARES,
        rows=_hardly,
    ),
    "costs": Report(
        title="Costs",
        intro="What each tenant's month costs, by the prices of that month.",
        columns=("tenant", "total"),
        rows=_costs,
        over="month",
    ),
}


def asked_of(days: str, month: str, now: datetime) -> Asked:
    """What the query says, with what is usual where it says nothing. Raises ``BadRequest``."""
    if days and days not in map(str, DAYS):
        raise BadRequest(f"days is one of {', '.join(map(str, DAYS))}.")
    return Asked(now - timedelta(days=int(days or DAYS_USUAL)), month_of(month, now))


def report_file(kind: str, asked: Asked) -> Lines:
    """All of a report as CSV, read while it is sent. Whoever calls has asked for an operator or an auditor."""
    response = Lines(_lines(REPORTS[kind], asked), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{kind}.csv"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _lines(report: Report, asked: Asked) -> Iterator[str]:
    yield csv_line(report.columns)
    after = ""
    while True:
        rows, after = report.rows(asked, after, _TOGETHER)
        for row in rows:
            yield csv_line(_plain(getattr(row, column)) for column in report.columns)
        if not after:
            return


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value
