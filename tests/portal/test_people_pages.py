"""The pages of people: members of a tenant, access tokens, accounts."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from tenants.models import Membership, Role, User
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


OFFERED = {
    # who: whose role they set, whose end, whom they remove; whether they let in, and see the tab of webhooks
    "owner": ("owner admin editor viewer", "admin editor viewer", "owner admin editor viewer", True, True),
    "admin": ("admin editor viewer", "editor viewer", "admin editor viewer", True, True),
    "editor": ("", "", "editor", False, False),
    "viewer": ("", "", "viewer", False, False),
    "raised": ("", "", "viewer", False, False),
    "guest": ("", "", "guest", False, False),
    "operator": ("owner admin editor viewer", "owner admin editor viewer", "owner admin editor viewer", True, True),
}


@pytest.mark.parametrize("who", OFFERED)
def test_members_are_offered_what_is_not_refused(who: str, acme: House, operator: User) -> None:
    """GW25: whoever is admin by break-glass lets in nobody else, and nobody is offered it; leaving is everybody's."""
    people = {role: getattr(acme, role) for role in Role.values} | {"operator": operator}
    soon = timezone.now() + timedelta(hours=1)
    if who == "raised":
        people["raised"] = acme.viewer
        acme.viewer.memberships.update(raised_role=Role.ADMIN, raised_until=soon)
    if who == "guest":
        people["guest"] = factories.user()
        Membership.objects.create(
            tenant=acme.tenant, user=people["guest"], role=Role.ADMIN, break_glass=True, expires_at=soon
        )
    page = signed_in(people[who]).get(reverse("members", args=["acme"])).content.decode()

    def labelled(words: str) -> set[str]:
        return set(re.findall(f'aria-label="{words} ([^" ]+@[^" ]+)"', page))

    def emails(names: str) -> set[str]:
        return {people[name].email for name in names.split()}

    roles, ends, removed, lets_in, webhooks = OFFERED[who]
    assert labelled("Set the role of") == emails(roles)
    assert labelled("Set end") == emails(ends)
    assert labelled("Remove") == emails(removed)
    for name, offered in (("member-add", lets_in), ("member-invite", lets_in), ("tenant-webhooks", webhooks)):
        path = reverse(name, args=["acme"])
        assert (f'href="{path}"' in page) is offered
        if offered:
            assert signed_in(people[who]).get(path).status_code == 200
    if who in {"raised", "guest"}:
        assert reverse("tenant-requests", args=["acme"]) in page, "what it does give is offered"


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
    disable = reverse("user-status", args=[acme.owner.pk])
    assert signed_in(operator).post(disable, {"status": "disabled"}).status_code == 302
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(("pressed", "ends"), [("Disable", "disabled"), ("Enable", "active")])
def test_what_is_pressed_twice_is_done(pressed: str, ends: str, operator: factories.User) -> None:
    """Two operators, or a double click: the second one turns nothing back."""
    before = "active" if ends == "disabled" else "disabled"
    person = factories.user(status=before)
    browsers = [signed_in(operator), signed_in(factories.operator())]
    lists = [browser.get(reverse("users")).content.decode() for browser in browsers]
    for browser, listed in zip(browsers, lists, strict=True):
        [link] = re.findall(f'href="([^"]+)"[^>]+aria-label="{pressed} {person.email}"', listed)
        dialog = browser.get(link).content.decode()
        assert f">{pressed}</button>" in dialog, "also where somebody else was faster"
        said = dict(re.findall(r'name="(status)" value="(\w+)"', dialog))
        for _ in range(2):
            page = browser.post(link.partition("?")[0], said, follow=True).content.decode()
            assert f"{person.email} is {pressed.lower()}d." in page
            person.refresh_from_db()
            assert person.status == ends


@pytest.mark.parametrize("said", [{}, {"status": "other"}])
def test_no_wanted_state_changes_nothing(said: dict[str, str], acme: House, operator: factories.User) -> None:
    assert signed_in(operator).post(reverse("user-status", args=[acme.owner.pk]), said).status_code == 422
    acme.owner.refresh_from_db()
    assert acme.owner.is_active


def test_operator_cannot_disable_themselves(operator: factories.User) -> None:
    disable = reverse("user-status", args=[operator.pk])
    assert signed_in(operator).post(disable, {"status": "disabled"}).status_code == 422
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
