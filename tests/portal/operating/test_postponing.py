"""A row of the inbox is put off with a reason: out of list and counter until its day, or until its cause changes (GW28)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from kube.requests.status import Conflict, Invalid
from tenants.models import OperationState, Postponement, User
from tenants.reconciler.lapses import lapses_sweep
from tenants.services.operating import postponing
from tenants.services.operating.postponing import DAYS_MAX, inbox_postpone
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_inbox import folder, full  # noqa: F401
from tests.portal.test_requests import ROLE, ask, text
from tests.tenants.conftest import OPERATOR


def counted(person: User) -> str:
    """The number beside the inbox."""
    page = signed_in(person).get("/tiers/").content.decode()
    return page.partition('href="/inbox/"')[2].partition("</a>")[0]


def tomorrow() -> datetime:
    return timezone.now() + timedelta(days=1)


def test_what_is_put_off_is_out_of_list_counter_and_overview_and_a_filter_shows_it(acme: House, operator: User) -> None:
    asked = ask(acme.viewer, "role", **ROLE)
    assert "1" in counted(operator)
    client, path = signed_in(operator), reverse("inbox-postpone", args=["requests", str(asked.pk)])
    assert f'href="{path}"' in text(operator, "/inbox/")
    until = (timezone.now() + timedelta(days=3)).astimezone(UTC)
    assert client.post(path, {"until": f"{until:%Y-%m-%d}", "reason": "the owner is back then"}).status_code == 302
    assert "Nothing waits for you" in text(operator, "/inbox/")
    assert "1" not in counted(operator)
    assert "1 request waits" not in text(operator, "/")
    page = text(operator, "/inbox/?postponed=true")
    assert "the owner is back then" in page
    assert "Bring back" in page
    assert "the role admin in acme" in text(acme.owner, "/inbox/"), "owners keep theirs"
    assert "the owner is back then" not in text(acme.owner, "/inbox/?postponed=true")
    client.post(reverse("inbox-bring-back", args=["requests", str(asked.pk)]))
    assert "the role admin in acme" in text(operator, "/inbox/")
    recorded = AuditEntry.objects.filter(target=f"inbox/requests/{asked.pk}").order_by("sequence")
    assert [each.action for each in recorded] == ["inbox.postpone", "inbox.resume"]
    assert recorded[0].detail["reason"] == "the owner is back then"


def test_every_kind_of_row_can_be_put_off(acme: House, operator: User, folder: Path) -> None:  # noqa: F811
    full(acme, folder)
    ask(acme.viewer, "role", **ROLE)
    client, rows = bearer(operator, "operate"), 0
    for group in send(client, "GET", "inbox/").json():
        for line in group["lines"]:
            body = {"kind": group["kind"], "name": line["name"], "until": tomorrow().isoformat(), "reason": "later"}
            assert send(client, "POST", "inbox/postpone", body).status_code == 200, body
            rows += 1
    assert rows == 9
    assert send(client, "GET", "inbox/").json() == []
    off = send(client, "GET", "inbox/?postponed=true").json()
    assert sum(len(group["lines"]) for group in off) == rows
    assert {line["postponed"]["reason"] for group in off for line in group["lines"]} == {"later"}
    for group in off:
        for line in group["lines"]:
            body = {"kind": group["kind"], "name": line["name"]}
            assert send(client, "POST", "inbox/resume", body).status_code == 204
    assert sum(len(group["lines"]) for group in send(client, "GET", "inbox/").json()) == rows


def test_it_is_back_when_its_cause_changes(acme: House, operator: User) -> None:
    operations = factories.workspace(acme.tenant, acme.editor, "late").operations
    operations.update(state=OperationState.FAILED, error="no route")
    found = operations.get()
    inbox_postpone(
        actor=OPERATOR,
        kind="operations",
        name=str(found.pk),
        cause="no route",
        until=tomorrow(),
        reason="the cluster is moved",
        now=timezone.now(),
    )
    assert "acme/late" not in text(operator, "/inbox/").split("<main")[1]
    seen = text(factories.user("auditor@platform.test", is_auditor=True), "/inbox/?postponed=true")
    assert "the cluster is moved" in seen
    assert "Bring back" not in seen
    operations.update(error="forbidden")
    assert "acme/late" in text(operator, "/inbox/").split("<main")[1]
    assert "acme/late" not in text(operator, "/inbox/?postponed=true").split("<main")[1]


def test_it_is_back_on_its_day_and_forgotten(acme: House, operator: User) -> None:
    asked = ask(acme.viewer, "role", **ROLE)
    row = {"kind": "requests", "name": str(asked.pk), "reason": "later", "postponed_by": "olga"}
    Postponement.objects.create(**row, until=timezone.now() - timedelta(seconds=1))
    assert "the role admin in acme" in text(operator, "/inbox/")
    assert "1" in counted(operator)
    lapses_sweep(now=timezone.now())
    assert not Postponement.objects.exists()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"reason": " "}, "reason"),
        ({"until": timedelta()}, "until"),
        ({"until": timedelta(days=DAYS_MAX, seconds=1)}, "until"),
    ],
)
def test_a_reason_and_a_day_within_a_month_are_asked_for(said: dict[str, Any], field: str) -> None:
    now = timezone.now()
    words = {"reason": "later", "until": timedelta(days=DAYS_MAX), **said}
    with pytest.raises(Invalid) as refused:
        inbox_postpone(
            actor=OPERATOR, kind="x", name="x", cause="", until=now + words["until"], reason=words["reason"], now=now
        )
    assert [cause.field for cause in refused.value.causes] == [field]
    assert not Postponement.objects.exists()


def test_no_more_than_anybody_keeps_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponing, "LIVING_MAX", 1)
    said = {"actor": OPERATOR, "kind": "x", "cause": "", "until": tomorrow(), "reason": "x", "now": timezone.now()}
    inbox_postpone(name="first", **said)
    inbox_postpone(name="first", **said)
    with pytest.raises(Conflict):
        inbox_postpone(name="second", **said)


def test_operators_alone_put_off_what_is_there(acme: House, operator: User) -> None:
    asked = ask(acme.viewer, "role", **ROLE)
    body = {"kind": "requests", "name": str(asked.pk), "until": tomorrow().isoformat(), "reason": "x"}
    assert send(bearer(acme.owner), "POST", "inbox/postpone", body).status_code == 403
    assert send(bearer(acme.owner), "GET", "inbox/?postponed=true").status_code == 403
    for name in ("inbox-postpone", "inbox-bring-back"):
        assert signed_in(acme.owner).post(reverse(name, args=["requests", str(asked.pk)])).status_code == 403
    client = bearer(operator, "operate")
    assert send(client, "POST", "inbox/postpone", {**body, "name": "nothing"}).status_code == 404
    assert send(client, "POST", "inbox/postpone", {**body, "until": "2020-01-01T00:00:00Z"}).status_code == 400
    assert not Postponement.objects.exists()
