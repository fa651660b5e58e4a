"""What lists and their files are asked for: taken as it is said, or refused by name; never more than was asked (GW13)."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from audit.actions import Action
from audit.models import AuditEntry
from tests import factories
from tests.portal.conftest import House, signed_in


def listed(acme: House, query: str) -> bool:
    """Whether the only event of the log is on the page of these filters; the file holds the same."""
    client, entry = signed_in(acme.owner), AuditEntry.objects.exclude(action=Action.AUDIT_EXPORTED).get()
    page, file = client.get(f"/audit/?{query}"), client.get(f"/audit/export/?{query}")
    assert (page.status_code, file.status_code) == (200, 200)
    exported = str(entry.pk) in b"".join(file.streaming_content).decode()  # type: ignore[attr-defined]
    assert (f'href="/audit/{entry.pk}/"' in page.content.decode()) == exported
    return exported


def test_a_day_is_listed_whole(acme: House) -> None:
    """From the first moment of the one day to the last of the other, as people read dates."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    day, one = AuditEntry.objects.get().created_at.date(), timedelta(days=1)
    assert listed(acme, f"since={day}&until={day}")
    assert listed(acme, f"until={date.max}")
    assert not listed(acme, f"until={day - one}")
    assert not listed(acme, f"since={day + one}")


@pytest.mark.parametrize(
    "wrong", ["since=30/11/2026", "until=yesterday", "action=nonsense", "outcome=maybe", "text=" + "x" * 129]
)
def test_a_filter_that_cannot_be_read_lists_and_exports_nothing(acme: House, wrong: str) -> None:
    """One wrong word drops neither the others nor itself: the file would hold what nobody asked for."""
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    client, entry, field = signed_in(acme.owner), AuditEntry.objects.get(), wrong.partition("=")[0]
    page = client.get(f"/audit/?{wrong}&chain=acme")
    body = page.content.decode()
    assert page.status_code == 422
    assert f'id="id_{field}_error"' in body
    assert str(entry.pk) not in body
    assert "/audit/export/" not in body
    for form in ("csv", "jsonl"):
        file = client.get(f"/audit/export/?{wrong}&chain=acme&format={form}")
        assert file.status_code == 400
        assert f"{field}: " in file.content.decode()
        assert "Correct the filter or leave it out" in file.content.decode()
    assert not AuditEntry.objects.filter(action=Action.AUDIT_EXPORTED).exists()


def test_filtering_keeps_the_workspace(acme: House) -> None:
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    body = signed_in(acme.owner).get(f"/audit/?workspace={acme.workspace.pk}").content.decode()
    assert f'name="workspace" value="{acme.workspace.pk}"' in body


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/audit/requests/?show=some", "show"),
        ("/workspaces/?status=deleted", "status"),
        ("/tenants/acme/requests/?outcome=denied", "outcome"),
        ("/tenants/acme/usage/export/?format=xlsx", "format"),
        ("/operations/?show=everything", "show"),
        ("/charges/?format=xlsx", "format"),
        ("/charges/?month=2026-11-30", "month"),
        ("/charges/?month=11/2026&format=csv", "month"),
        ("/reports/costs/?month=2026-11-30", "month"),
        ("/reports/dormant-people/?days=3000000000", "days"),
        ("/reports/dormant-people/?format=xlsx", "format"),
    ],
)
def test_no_list_takes_another_word_for_none(acme: House, operator: factories.User, path: str, names: str) -> None:
    answer = signed_in(operator).get(path)
    assert answer.status_code in {400, 422}
    assert names in answer.content.decode().partition('id="main"')[2].lower()


def test_a_tenant_without_events_is_a_filter_too(acme: House, operator: factories.User) -> None:
    """It is asked for by its own page, and shown as what is listed; one that is not there is not."""
    client = signed_in(operator)
    for path, field in (("/audit/", "chain"), ("/audit/requests/", "tenant")):
        page = client.get(path, {field: "acme"})
        assert page.status_code == 200
        assert '<option value="acme" selected>' in page.content.decode()
        assert client.get(path, {field: "nobody"}).status_code == 404
