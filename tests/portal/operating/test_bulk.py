"""Many rows at once: what would happen is seen first, by the services' own word, and then done one by one (GW28)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from portal.bulk import work as working
from portal.bulk.deeds import MOST, SORTS
from tenants.models import Freeze, Operation, OperationState, Postponement, Status, Tenant, User, Workspace
from tenants.services import tenant_suspend
from tenants.services.operating.offboarding import tenant_offboard
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_closed_doors import everything
from tests.tenants.conftest import OPERATOR


def begin(client: Client, sort: str, deed: str, *rows: object, **said: str) -> Any:
    return client.post(reverse("bulk-begin", args=[sort]), {"deed": deed, "rows": [str(row) for row in rows], **said})


def press(client: Client, step: str, **words: str) -> str:
    answer = client.post(reverse("bulk"), {"step": step, **words}, follow=True)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def states(client: Client) -> dict[str, str]:
    return {row["name"]: row["state"] for row in client.session["bulk"]["rows"]}


@pytest.fixture
def operator() -> User:
    """One who is no superuser."""
    return factories.user(is_staff=True)


@pytest.fixture
def client(operator: User) -> Client:
    return signed_in(operator)


def test_an_operator_suspends_tenants_and_sees_beforehand_what_would_become_of_each(
    acme: House, globex: House, client: Client
) -> None:
    gone = factories.tenant("initech", state="terminating")
    page = client.get(reverse("tenants")).content.decode()
    assert 'aria-label="Choose acme"' in page
    assert begin(client, "tenants", "freeze", "acme", "globex", gone.name, "nobody").status_code == 302
    assert "3 chosen" in client.get(reverse("bulk")).content.decode()
    before = everything()
    assert "This field is required" in press(client, "preview", reason="")
    shown = press(client, "preview", reason="audit")
    assert everything() == before, "a preview leaves nothing behind"
    assert "2 would be done, 1 refused" in shown
    assert "Active → Active, frozen" in shown
    assert "The tenant initech cannot be frozen." in shown
    shown = press(client, "go")
    assert "2 done, 1 refused beforehand" in shown
    assert {freeze.tenant_id for freeze in Freeze.objects.all()} == {"acme", "globex"}
    assert {freeze.reason for freeze in Freeze.objects.all()} == {"audit"}
    assert AuditEntry.objects.filter(action="tenant.freeze").count() == 2


def test_it_goes_on_where_it_was_and_what_failed_is_tried_again(
    acme: House, globex: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme", "globex"):
        tenant_suspend(actor=OPERATOR, name=name, reason="unpaid")
    begin(client, "tenants", "resume", "acme", "globex")
    press(client, "preview")
    monkeypatch.setattr(working, "_TURN_SECONDS", -1)
    now = timezone.now()
    tenant_offboard(actor=OPERATOR, name="acme", reason="x", ends_at=now + timedelta(days=1), manner="suspend", now=now)
    shown = press(client, "go")
    assert "1 of 2: it goes on" in shown
    assert states(client) == {"acme": "failed", "globex": "fits"}
    assert "1 done, 1 not" in press(client, "go")
    assert "The tenant acme leaves" in press(client, "")
    Tenant.objects.get(pk="acme").offboarding.delete()
    assert "2 done" in press(client, "retry")
    assert set(Tenant.objects.values_list("state", flat=True)) == {"active"}


def test_all_that_a_filter_finds_and_no_more_than_can_be_looked_through(acme: House, client: Client) -> None:
    begin(client, "workspaces", "tier", all="1", q="acme", status="active")
    assert states(client) == {str(acme.workspace): "chosen"}
    factories.tier("roomy", workspaces_per_user=9)
    assert "active, basic → " in press(client, "preview", tier="roomy").lower()
    assert "1 done" in press(client, "go")
    assert Workspace.objects.get(pk=acme.workspace.pk).tier_id == "roomy"
    User.objects.bulk_create(User(email=f"p{number}@x.test") for number in range(MOST + 1))
    assert begin(client, "people", "end", all="1").url == reverse("users")
    assert client.session["bulk"]["sort"] == "workspaces", "nothing was begun"


def test_access_of_people_ends_but_ones_own(acme: House, client: Client, operator: User) -> None:
    root = User.objects.create_superuser("root@platform.test")
    begin(client, "people", "end", acme.owner.pk, operator.pk, root.pk)
    shown = press(client, "preview")
    assert "You cannot end your own access" in shown
    assert "Only superusers change superusers" in shown
    press(client, "go")
    disabled = User.objects.filter(status=User.Status.DISABLED)
    assert list(disabled) == [acme.owner]


def test_operations_are_tried_again_and_put_off(acme: House, client: Client) -> None:
    acme.workspace.operations.all().delete()
    far = timezone.now() + timedelta(hours=3)
    failed = Operation.objects.create(
        workspace=acme.workspace,
        desired="ready",
        generation=7,
        state=OperationState.FAILED,
        error="no route",
        not_before=far,
    )
    assert "Choose acme/" in client.get(reverse("operations")).content.decode()
    begin(client, "operations", "postpone", failed.pk)
    until = f"{timezone.now() + timedelta(days=3):%Y-%m-%d}"
    assert "Put off until" in press(client, "preview", until=until, reason="Friday")
    press(client, "go")
    assert Postponement.objects.get().reason == "Friday"
    begin(client, "operations", "retry", failed.pk)
    press(client, "preview")
    press(client, "go")
    failed.refresh_from_db()
    assert failed.not_before < far


def test_workspaces_are_closed_and_opened(acme: House, client: Client) -> None:
    for deed, status, frozen in (
        ("freeze", "active", True),
        ("thaw", "active", False),
        ("suspend", "suspended", False),
    ):
        begin(client, "workspaces", deed, acme.workspace.pk)
        press(client, "preview", reason="audit")
        assert "1 done" in press(client, "go")
        found = Workspace.objects.get(pk=acme.workspace.pk)
        assert (found.status, Freeze.objects.exists()) == (Status(status), frozen)


def test_nobody_but_operators(acme: House) -> None:
    for person in (acme.owner, factories.user(is_auditor=True)):
        browser = signed_in(person)
        assert begin(browser, "tenants", "suspend", "acme").status_code == 403
        assert browser.post(reverse("bulk"), {"step": "go"}).status_code == 403
        assert "Preview…" not in browser.get(reverse("tenants")).content.decode()


@pytest.mark.parametrize(("sort", "key"), [(sort, key) for sort in SORTS for key in ("", "x", "\0", "9" * 400, "ü")])
def test_what_is_no_row_is_left_out(client: Client, sort: str, key: str) -> None:
    deed = next(iter(SORTS[sort].deeds))
    assert begin(client, sort, deed, key).url == reverse(SORTS[sort].url)
    assert begin(client, sort, "nothing", key).status_code == 404
    assert begin(client, "nothing", deed, key).status_code == 404
