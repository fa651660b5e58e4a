"""What a later release writes into the tables of this one, while both run or after going back, breaks no page and no work."""

from __future__ import annotations

from typing import Any

from django.core import mail
from django.utils import timezone

from portal.notices.sending import notices_send
from tenants.models import Notice, User
from tests import factories
from tests.portal.conftest import House, signed_in

LATER = "moon"
"""A kind that no release has yet."""


def test_a_request_of_a_later_kind_is_listed_and_denied_and_never_carried_out(acme: House, operator: User) -> None:
    """GW25."""
    found = factories.access_request(acme.tenant, acme.editor, kind=LATER)
    for person, paths in (
        (acme.editor, ("/my-requests/", f"/inbox/{found.pk}/")),
        (acme.owner, ("/inbox/", f"/inbox/{found.pk}/", "/notifications/")),
        (operator, ("/", "/inbox/")),
    ):
        for path in paths:
            assert signed_in(person).get(path).status_code == 200, path
    owner = signed_in(acme.owner)
    listed = owner.get("/api/v1/requests/?tenant=acme").json()["results"]
    assert [row["kind"] for row in listed] == [LATER]
    at = f"/api/v1/requests/{found.pk}/"
    refused = owner.post(f"{at}approve", {}, content_type="application/json")
    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert owner.get(at).json()["state"] == "open"
    denied = owner.post(f"{at}deny", {"answer": "Not here."}, content_type="application/json")
    assert denied.status_code == 200, denied.content


def test_a_notice_of_a_later_kind_reaches_people_by_every_way(acme: House, settings: Any) -> None:
    """GW25: and keeps nothing back that waits behind it."""
    settings.EMAIL_IS_SET = True
    now = timezone.now()
    for kind in (LATER, "membership.changed"):
        Notice.objects.create(kind=kind, text=f"About {kind}", user=acme.editor, created_at=now)
    notices_send(now=timezone.now())
    assert sorted(message.subject for message in mail.outbox) == [
        "[Tenantry] About membership.changed",
        f"[Tenantry] About {LATER}",
    ]
    browser = signed_in(acme.editor)
    assert f"About {LATER}" in browser.get("/notifications/").content.decode()
    told = browser.get("/api/v1/notifications/").json()["results"]
    assert {row["kind"] for row in told} == {LATER, "membership.changed"}
