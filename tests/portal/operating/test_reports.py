"""What nobody uses, what is full or empty, and what it costs: a page, a file, REST and a shell each (GW28)."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from access.models import Login, PersonalAccessToken
from kube.quota.charges import Price
from portal.access.reports import REPORTS
from tenants.models import PortalSession, Tenant, UsageHour, User, Workspace
from tenants.services import prices_change
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_command_line import shell  # noqa: F401
from tests.tenants.conftest import OPERATOR

DAY = timedelta(days=1)
PRICES = [Price("requests", Decimal("0.40"), 1000)]


def hour(ago: timedelta = timedelta()) -> datetime:
    return (timezone.now() - ago).astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def aged(days: int = 400) -> None:
    """Everything that there is was made long ago."""
    then = timezone.now() - days * DAY
    for model in (User, Tenant, Workspace):
        model.objects.update(created_at=then)


def rows(person: User, kind: str, **query: Any) -> list[dict[str, Any]]:
    """All of a report by REST, a page of two after the other."""
    client, found = signed_in(person), []
    path = f"/api/v1/reports/{kind}/?limit=2" + "".join(f"&{name}={value}" for name, value in query.items())
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.content
        assert len(answer.json()["results"]) <= 2
        found += answer.json()["results"]
        path = answer.json()["next"]
    return found


def lines(person: User, kind: str, query: str = "") -> list[dict[str, str]]:
    """The same as CSV."""
    answer = signed_in(person).get(f"/reports/{kind}/?format=csv{query}")
    return list(csv.DictReader(answer.getvalue().decode().splitlines()))


def used(person: User, how: str, when: datetime, of: House) -> None:
    match how:
        case "sign-in":
            User.objects.filter(pk=person.pk).update(last_login=when)
        case "session":
            key = f"of-{person.pk}"[:40]
            session = Session.objects.create(session_key=key, session_data="", expire_date=when + DAY)
            PortalSession.objects.create(session=session, user=person, last_used_at=when)
        case "machine":
            Login.objects.create(user=person, redeemed_at=when, last_used_at=when, expires_at=when + DAY)
        case "token":
            PersonalAccessToken.objects.create(
                user=person, name="x", digest=str(person.pk), expires_at=timezone.now() + DAY, last_used_at=when
            )
        case "credential":
            made = factories.credential(of.workspace, person)
            type(made).objects.filter(pk=made.pk).update(issued_at=when, expires_at=when + timedelta(hours=2))


@pytest.mark.parametrize("how", ["sign-in", "session", "machine", "token", "credential"])
def test_whoever_used_anything_is_not_dormant_for_that_long(acme: House, operator: User, how: str) -> None:
    """Each trace by itself; the account's age counts, and whoever may not sign in is no dormant account."""
    aged()
    disabled, new = factories.user("disabled@x.test", status="disabled"), factories.user("new@x.test")
    User.objects.filter(pk=disabled.pk).update(created_at=timezone.now() - 400 * DAY)
    when = timezone.now() - 100 * DAY
    used(acme.viewer, how, when, acme)
    by_days = {days: {row["email"]: row for row in rows(operator, "dormant-people", days=days)} for days in (90, 180)}
    assert acme.viewer.email in by_days[90]
    assert acme.viewer.email not in by_days[180]
    said = datetime.fromisoformat(by_days[90][acme.viewer.email]["last_used_at"])
    assert abs(said - when) < timedelta(seconds=1)
    assert by_days[180][acme.editor.email]["last_used_at"] is None
    assert not {disabled.email, new.email} & set(by_days[90])
    emails = [line["email"] for line in lines(operator, "dormant-people")]
    assert emails == sorted(by_days[90])
    assert f"/users/{acme.viewer.pk}/" in signed_in(operator).get("/reports/").content.decode()


def test_a_workspace_is_dormant_until_somebody_asks_about_it(acme: House, operator: User) -> None:
    quiet = factories.workspace(acme.tenant, acme.editor, "quiet")
    asked = factories.workspace(acme.tenant, acme.editor, "asked")
    issued = factories.workspace(acme.tenant, acme.editor, "issued")
    gone = factories.workspace(acme.tenant, acme.editor, "gone")
    aged()
    Workspace.objects.filter(pk=acme.workspace.pk).update(created_at=timezone.now())
    for number, each in enumerate((quiet, asked, issued, gone)):
        Workspace.objects.filter(pk=each.pk).update(k8s_namespace=f"acme-n{number}")
    Workspace.objects.filter(pk=gone.pk).update(status="deleted")
    say, last = UsageHour.objects.create, hour(100 * DAY)
    say(tenant="acme", namespace="acme-n0", hour=hour(), objects_stored=9)
    say(tenant="acme", namespace="acme-n0", hour=last, requests=1)
    say(tenant="acme", namespace="acme-n1", hour=hour(), requests=1)
    say(tenant="acme", namespace="acme-n2", hour=hour(DAY), credentials=1)
    [row] = rows(operator, "dormant-workspaces")
    assert (row["name"], row["owner"], row["namespace"]) == ("quiet", acme.editor.email, "acme-n0")
    assert datetime.fromisoformat(row["last_used_at"]) == last
    assert rows(operator, "dormant-workspaces", days=180) == []
    UsageHour.objects.all().delete()
    names = [row["name"] for row in rows(operator, "dormant-workspaces")]
    assert names == ["asked", "issued", "quiet"], "page by page, each once"
    page = signed_in(operator).get("/reports/dormant-workspaces/").content.decode()
    assert "acme/quiet" in page
    assert "acme/gone" not in page
    assert [line["name"] for line in lines(operator, "dormant-workspaces")] == names


def test_quotas_that_are_nearly_and_hardly_used(acme: House, globex: House, operator: User) -> None:
    aged()
    amounts = {"pods": (91, 100), "services": (90, 100), "requests.cpu": (0.5, 8), "secrets": (0, 0)}
    quota = {"used": {}, "hard": {}}
    for name, (has, may) in amounts.items():
        quota["used"][name], quota["hard"][name] = has, may
    UsageHour.objects.create(tenant="acme", hour=hour(), **quota)
    UsageHour.objects.create(tenant="acme", hour=hour(DAY), used={"services": 99}, hard={"services": 100})
    UsageHour.objects.create(tenant="globex", hour=hour(), used={"pods": 9, "services": 10}, hard=quota["hard"])
    UsageHour.objects.create(tenant="gone", hour=hour(), **quota)

    def told(kind: str) -> list[tuple[str, str, float]]:
        return [(row["tenant"], row["resource"], round(row["share"], 4)) for row in rows(operator, kind)]

    assert told("quota-nearly-used") == [("acme", "pods", 0.91)]
    assert told("quota-hardly-used") == [("acme", "requests.cpu", 0.0625), ("globex", "pods", 0.09)]
    page = signed_in(operator).get("/reports/quota-nearly-used/").content.decode()
    assert 'aria-valuetext="91 of 100"' in page
    assert len(lines(operator, "quota-hardly-used")) == 2


def test_the_costs_of_a_month_by_tenant(acme: House, globex: House, operator: User) -> None:
    month = datetime(2026, 2, 1, tzinfo=UTC)
    prices_change(actor=OPERATOR, prices=PRICES, now=month)
    for tenant, requests in (("acme", 1500), ("globex", 10_000), ("gone", 2500)):
        UsageHour.objects.create(tenant=tenant, hour=month, requests=requests)
    costs = [("acme", "0.60"), ("globex", "4.00"), ("gone", "1.00")]
    assert [(row["tenant"], row["total"]) for row in rows(operator, "costs", month="2026-02")] == costs
    assert [tuple(line.values()) for line in lines(operator, "costs", "&month=2026-02")] == costs
    page = signed_in(operator).get("/reports/costs/?month=2026-02").content.decode()
    assert 'aria-label="5.60 charged"' in page
    assert "<title>globex: 4.00 charged</title>" in page


@pytest.mark.parametrize("kind", REPORTS)
def test_an_empty_report_says_what_to_do_and_nobody_else_reads_it(acme: House, operator: User, kind: str) -> None:
    auditor = factories.user("auditor@platform.test", is_auditor=True)
    for person in (operator, auditor):
        page = signed_in(person).get(f"/reports/{kind}/")
        assert page.status_code == 200
        assert 'class="empty' in page.content.decode()
        assert rows(person, kind) == []
    for path in (f"/reports/{kind}/", f"/reports/{kind}/?format=csv", f"/api/v1/reports/{kind}/"):
        assert signed_in(acme.owner).get(path).status_code == 403
    assert send(bearer(operator, "read"), "GET", f"reports/{kind}/").status_code == 403
    assert send(bearer(operator, "operate"), "GET", f"reports/{kind}/?nothing=x").status_code == 400


def test_what_cannot_be_asked_is_refused_with_what_can(operator: User) -> None:
    client = signed_in(operator)
    for path in ("dormant-people/?days=31", "costs/?month=yesterday", "dormant-workspaces/?after=x"):
        assert client.get(f"/reports/{path}").status_code == 400, path
        assert client.get(f"/api/v1/reports/{path}").status_code == 400, path
    assert client.get("/reports/quota-nearly-used/?after=x").status_code == 400
    assert client.get("/reports/nothing/").status_code == 404
    assert b"30, 90, 180" in client.get("/api/v1/reports/dormant-people/?days=31").content


def test_a_name_in_a_file_is_no_formula(operator: User) -> None:
    factories.user("x@x.test", name="=1+1")
    aged()
    assert [line["name"] for line in lines(operator, "dormant-people") if line["email"] == "x@x.test"] == ["'=1+1"]


def test_a_report_costs_the_same_with_many(operator: User) -> None:
    client = signed_in(operator)
    prices_change(actor=OPERATOR, prices=PRICES, now=timezone.now())

    def cost() -> list[int]:
        aged()
        found = []
        for kind in REPORTS:
            client.get(f"/reports/{kind}/")
            with CaptureQueriesContext(connection) as queries:
                assert client.get(f"/reports/{kind}/").status_code == 200
            found.append(len(queries))
        return found

    def grow(number: int) -> None:
        made = house(f"many-{number}")
        UsageHour.objects.create(tenant=made.tenant.name, hour=hour(), requests=9, used={"pods": 9}, hard={"pods": 9})

    grow(0)
    few = cost()
    for number in range(1, 9):
        grow(number)
    assert cost() == few
    assert max(few) <= 14


def test_from_a_shell(acme: House, operator: User, shell: Shell) -> None:  # noqa: F811
    aged()
    shell.sign_in(operator, "operate")
    emails = [row["email"] for row in shell.done("report", "dormant-people", "-o", "json").json]
    assert acme.viewer.email in emails
    assert "quiet" not in shell.done("report", "dormant-workspaces", "--days", "30").output
    assert shell.run("report", "costs", "--month", "yesterday").status != 0
