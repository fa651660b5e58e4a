"""People are warned before an access token ends: once, as they chose, never of what is revoked or made for a day (GW25)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from access.credentials import token_create, token_revoke
from access.credentials.warnings import credentials_announce
from access.models import PersonalAccessToken
from tenants.models import NoticeKind, User
from tenants.services.notices import MAIL, notices_choose
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_endings import told
from tests.portal.test_requests import actor, text

NOW = timezone.now()


def token(of: User, life: timedelta, name: str = "nightly") -> PersonalAccessToken:
    scope = PersonalAccessToken.Scope.READ
    return token_create(actor=actor(of), user=of, name=name, scope=scope, now=NOW, expires_at=NOW + life).token


def warnings() -> list[Any]:
    """The mails about an end; that a token was made is told as well."""
    return [message for message in mail.outbox if "ends on" in message.body]


@pytest.mark.parametrize(
    ("days", "quiet", "warned"), [(365, 357.9, 358.1), (30, 22.9, 23.1), (7, 5.2, 5.3), (1, 0.7, 0.8)]
)
def test_a_person_is_told_once_in_the_last_part_of_a_tokens_life(
    acme: House, settings: Any, days: float, quiet: float, warned: float
) -> None:
    settings.EMAIL_IS_SET = True
    token(acme.editor, timedelta(days=days))
    assert credentials_announce(now=NOW + timedelta(days=quiet)) == 0
    assert credentials_announce(now=NOW + timedelta(days=warned)) == 1
    assert credentials_announce(now=NOW + timedelta(days=warned)) == 0
    assert len(told(acme.editor)) == 1
    assert "Your access token “nightly” ends on" in told(acme.editor)[0]
    assert told(acme.owner) == [], "it is nobody else's"
    (message,) = warnings()
    assert message.to == [acme.editor.email]
    assert "/tokens/" in message.body


def test_nobody_is_told_of_what_is_revoked_over_or_made_for_the_moment(acme: House) -> None:
    token_revoke(actor=actor(acme.editor), token_id=token(acme.editor, timedelta(days=30)).pk, now=NOW)
    token(acme.editor, timedelta(hours=2))
    assert credentials_announce(now=NOW + timedelta(hours=1, minutes=50)) == 0
    assert credentials_announce(now=NOW + timedelta(days=29)) == 0
    token(acme.editor, timedelta(days=7))
    assert credentials_announce(now=NOW + timedelta(days=8)) == 0
    User.objects.filter(pk=acme.viewer.pk).update(status=User.Status.DISABLED)
    token(acme.viewer, timedelta(days=7))
    assert credentials_announce(now=NOW + timedelta(days=6)) == 1, "the editor's; a closed account hears nothing"


def test_what_a_person_turned_off_is_not_sent_and_a_lead_of_none_warns_nobody(acme: House, settings: Any) -> None:
    settings.EMAIL_IS_SET = True
    wanted = [f"{kind}/portal" for kind in NoticeKind.values]
    notices_choose(actor=actor(acme.editor), user=acme.editor, wanted=wanted)
    token(acme.editor, timedelta(days=7))
    settings.CREDENTIAL_WARNING_DAYS = 0
    assert credentials_announce(now=NOW + timedelta(days=6.9)) == 0
    settings.CREDENTIAL_WARNING_DAYS = 7
    assert credentials_announce(now=NOW + timedelta(days=6.9)) == 1
    assert len(told(acme.editor)) == 1
    assert not warnings(), MAIL


def test_the_page_and_the_inbox_show_it_until_it_is_revoked(acme: House) -> None:
    row = token(acme.editor, timedelta(days=30))
    browser = signed_in(acme.editor)
    assert "Ends soon" not in text(acme.editor, "/tokens/")
    assert "nightly" not in text(acme.editor, "/inbox/")
    PersonalAccessToken.objects.filter(pk=row.pk).update(
        created_at=NOW - timedelta(days=28), expires_at=NOW + timedelta(days=2)
    )
    assert "Ends soon" in text(acme.editor, "/tokens/")
    assert "Your access token “nightly” ends on" in text(acme.editor, "/inbox/")
    assert "nightly" not in text(acme.owner, "/inbox/")
    assert browser.post(f"/tokens/{row.pk}/revoke/").status_code == 302
    assert "nightly" not in text(acme.editor, "/inbox/")


def test_a_file_that_ends_soon_says_so_and_can_still_be_revoked(acme: House) -> None:
    now = timezone.now()
    factories.credential(acme.workspace, acme.editor, issued_at=now - timedelta(minutes=95))
    page = text(acme.editor, "/credentials/")
    assert "Ends soon" in page and "Revoke" in page
