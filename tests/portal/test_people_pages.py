"""The pages of people: members of a tenant, access tokens, accounts."""

from __future__ import annotations

import re

from django.urls import reverse

from tests import factories
from tests.portal.conftest import House, signed_in


def test_member_is_added_by_email_and_the_last_owner_stays(acme: House) -> None:
    newcomer = factories.user()
    client = signed_in(acme.owner)
    assert (
        client.post(reverse("member-add", args=["acme"]), {"email": newcomer.email, "role": "editor"}).status_code
        == 302
    )
    assert newcomer.memberships.get().role == "editor"
    role = reverse("member-role", args=["acme", acme.owner.pk])
    body = client.post(role, {"role": "viewer"}, follow=True).content.decode()
    assert "last owner" in body
    assert acme.owner.memberships.get().role == "owner"


def test_viewer_cannot_add_members(acme: House) -> None:
    newcomer = factories.user()
    response = signed_in(acme.viewer).post(
        reverse("member-add", args=["acme"]), {"email": newcomer.email, "role": "editor"}
    )
    assert response.status_code == 403
    assert not newcomer.memberships.exists()


def test_token_is_shown_once_and_stored_as_a_digest(acme: House) -> None:
    """API-35."""
    client = signed_in(acme.owner)
    response = client.post("/tokens/new/", {"name": "ci", "scope": "read", "tenant": "", "days": "30"})
    text = re.search(r"tnt_[0-9A-Za-z]{38}", response.content.decode())
    assert text is not None
    assert response.headers["Cache-Control"].find("no-store") >= 0
    assert text[0] not in client.get("/tokens/").content.decode()
    stored = acme.owner.access_tokens.get()
    assert text[0] not in (stored.digest, stored.prefix)


def test_token_of_another_user_cannot_be_revoked(acme: House, globex: House) -> None:
    signed_in(acme.owner).post("/tokens/new/", {"name": "ci", "scope": "read", "tenant": "", "days": "30"})
    token = acme.owner.access_tokens.get()
    assert signed_in(globex.owner).post(reverse("token-revoke", args=[token.pk])).status_code == 404
    assert signed_in(acme.owner).post(reverse("token-revoke", args=[token.pk])).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_user_is_disabled_and_out_at_once(acme: House, operator: factories.User) -> None:
    client = signed_in(acme.owner)
    assert client.get("/").status_code == 200
    assert signed_in(operator).post(reverse("user-status", args=[acme.owner.pk])).status_code == 302
    assert client.get("/").status_code == 302


def test_operator_cannot_disable_themselves(operator: factories.User) -> None:
    assert signed_in(operator).post(reverse("user-status", args=[operator.pk])).status_code == 422
    operator.refresh_from_db()
    assert operator.is_active


def test_password_change_ends_other_sessions_and_keeps_this_one(acme: House) -> None:
    here, elsewhere = signed_in(acme.owner), signed_in(acme.owner)
    wrong = here.post("/profile/password/", {"old": "nonsense", "password": "a much longer phrase"})
    assert wrong.status_code == 422
    response = here.post("/profile/password/", {"old": factories.PASSWORD, "password": "a much longer phrase"})
    assert response.status_code == 302
    assert here.get("/").status_code == 200
    assert elsewhere.get("/").status_code == 302


def test_theme_is_kept_and_painted_by_the_server(acme: House) -> None:
    client = signed_in(acme.owner)
    client.post("/profile/appearance/", {"theme": "dark", "density": "comfortable"})
    body = client.get("/").content.decode()
    assert 'data-theme="dark" data-density="comfortable"' in body
    client.cookies["theme"] = '"><script>'
    assert 'data-theme="auto"' in client.get("/").content.decode()
