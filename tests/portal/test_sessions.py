"""Where people are signed in, seen and ended by themselves and by operators; and the end of all access (GW16, RV-11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from access.models import Credential, Login
from audit.models import AuditEntry
from tenants.models import PortalSession, User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.portal.test_new_passwords import link_of, made

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def browser(user: User, address: str = "192.0.2.7", agent: str = FIREFOX) -> Client:
    """A browser that has been used."""
    client = signed_in(user, REMOTE_ADDR=address, HTTP_USER_AGENT=agent)
    assert client.get("/").status_code == 200
    return client


def machine_of(client: Client, user: User, name: str) -> Login:
    """A machine that was let in for kubectl in this browser."""
    now = timezone.now()
    login = Login.objects.create(
        user=user,
        session_id=client.cookies[django_settings.SESSION_COOKIE_NAME].value,
        machine=name,
        redeemed_at=now,
        last_used_at=now,
        device_digest=name,
        expires_at=now + timedelta(hours=1),
    )
    Credential.objects.create(
        tenant=user.tenants.get(), kind="exec", login=login, issued_to=user, jti=name, role="viewer", issued_at=now
    )
    return login


def is_ended(login: Login) -> bool:
    login.refresh_from_db()
    return login.revoked_at is not None and Credential.objects.get(login=login).revoked_at is not None


def test_the_page_says_where_and_since_when(acme: House) -> None:
    here = browser(acme.owner)
    there = browser(acme.owner, "2001:db8::7", "curl/8.5")
    machine_of(there, acme.owner, "laptop")
    browser(acme.viewer, "203.0.113.99")
    page = here.get("/profile/sessions/").content.decode()
    assert "Firefox on Linux" in page and "this one" in page
    assert "2001:db8::7" in page and "curl" in page and "laptop" in page
    assert "203.0.113.99" not in page
    keys = Session.objects.values_list("session_key", flat=True)
    assert not [key for key in keys if key in page], "what opens a session is on no page"


def test_one_is_ended_with_its_machines_and_others_stay(acme: House) -> None:
    here, there = browser(acme.owner), browser(acme.owner, "198.51.100.1")
    machines = machine_of(here, acme.owner, "desk"), machine_of(there, acme.owner, "laptop")
    row = PortalSession.objects.get(ip_address="198.51.100.1")
    assert here.post(f"/profile/sessions/{row.pk}/end/").status_code == 302
    assert (here.get("/").status_code, there.get("/").status_code) == (200, 302)
    assert [is_ended(each) for each in machines] == [False, True]
    entry = AuditEntry.objects.get(action="session.end")
    assert (entry.actor, entry.detail["address"]) == (acme.owner.email, "198.51.100.1")


def test_all_others_are_ended(acme: House) -> None:
    here, others = browser(acme.owner), [browser(acme.owner) for _ in range(3)]
    stays = browser(acme.viewer)
    assert here.post("/profile/sessions/end/").status_code == 302
    assert [each.get("/").status_code for each in (here, stays, *others)] == [200, 200, 302, 302, 302]
    assert AuditEntry.objects.get(action="session.end").detail["sessions_ended"] == 3


def test_nobody_ends_or_sees_somebody_elses(acme: House, globex: House) -> None:
    theirs = browser(acme.viewer)
    row = PortalSession.objects.get(user=acme.viewer)
    for who in (acme.owner, globex.owner):
        client = browser(who)
        assert client.post(f"/profile/sessions/{row.pk}/end/").status_code == 404
        assert client.post(f"/users/{acme.viewer.pk}/sessions/{row.pk}/").status_code == 403
        assert send(client, "DELETE", f"sessions/{row.pk}/").status_code == 404
        assert send(client, "GET", f"users/{acme.viewer.pk}/sessions/").status_code == 403
        assert str(row.pk) not in send(client, "GET", "sessions/").content.decode()
    assert theirs.get("/").status_code == 200


def test_a_password_change_ends_all_other_sessions_and_every_machine(acme: House) -> None:
    here, there = browser(acme.owner), browser(acme.owner)
    machines = machine_of(here, acme.owner, "desk"), machine_of(there, acme.owner, "laptop")
    sent = {"old": factories.PASSWORD, "password": "a much longer phrase"}
    assert here.post("/profile/password/", sent).status_code == 302
    assert (here.get("/").status_code, there.get("/").status_code) == (200, 302)
    assert all(is_ended(each) for each in machines)
    page = here.get("/profile/sessions/").content.decode()
    assert page.count("Firefox on Linux") == 1


def test_last_use_follows_by_the_minute_and_what_is_over_is_gone(acme: House) -> None:
    begun = timezone.now()
    with time_machine.travel(begun, tick=False) as clock:
        client = browser(acme.owner)
        clock.shift(30)
        client.get("/")
        assert PortalSession.objects.get().last_used_at == begun
        clock.shift(60)
        client.get("/", REMOTE_ADDR="192.0.2.99")
        row = PortalSession.objects.get()
        assert (row.last_used_at, row.created_at) == (timezone.now(), begun)
        assert row.ip_address == "192.0.2.99"
        clock.shift(django_settings.SESSION_COOKIE_AGE)
        assert send(bearer(acme.owner), "GET", "sessions/").json()["results"] == []
    client = browser(acme.owner)
    assert client.post("/logout/").status_code == 302
    assert PortalSession.objects.filter(last_used_at__gt=begun).count() <= 1
    assert not Session.objects.filter(session_key__in=PortalSession.objects.values("session_id")).exclude(
        expire_date__lt=timezone.now() + timedelta(days=1)
    )


def test_the_rest_api_lists_and_ends_them(acme: House, operator: User) -> None:
    here, there = browser(acme.owner), browser(acme.owner, "198.51.100.1")
    rows = send(here, "GET", "sessions/").json()["results"]
    assert sorted((row["ip_address"], row["current"]) for row in rows) == [("192.0.2.7", True), ("198.51.100.1", False)]
    assert set(rows[0]) == {"id", "ip_address", "user_agent", "created_at", "last_used_at", "expires_at", "current"}
    (other,) = [row["id"] for row in rows if not row["current"]]
    assert send(here, "DELETE", f"sessions/{other}/").status_code == 204
    assert there.get("/").status_code == 302
    browser(acme.owner)
    assert send(here, "POST", "sessions/end-others").json() == {"ended": 1}
    assert here.get("/").status_code == 200
    listed = send(bearer(operator, "operate"), "GET", f"users/{acme.owner.pk}/sessions/").json()["results"]
    assert [row["ip_address"] for row in listed] == ["192.0.2.7"]
    assert send(bearer(acme.owner), "POST", "sessions/end-others").json() == {"ended": 1}, "a token keeps none"
    assert here.get("/").status_code == 302
    assert send(bearer(acme.owner, tenant=acme.tenant), "GET", "sessions/").status_code == 403


class TestPersonsPage:
    """All that opens anything for somebody, and its end at once."""

    def test_says_what_there_is(self, acme: House, operator: User) -> None:
        client = browser(acme.owner)
        machine_of(client, acme.owner, "laptop")
        bearer(acme.owner)
        factories.credential(acme.workspace, acme.owner, jti="a-credential")
        desk = signed_in(operator)
        page = desk.get(f"/users/{acme.owner.pk}/").content.decode()
        for text in (acme.owner.email, "acme", "Owner", "Firefox on Linux", "laptop", "script", "a-creden"):
            assert text in page
        assert f'href="/users/{acme.owner.pk}/"' in desk.get("/users/").content.decode()
        assert f'href="/users/{acme.owner.pk}/"' in desk.get("/tenants/acme/members/").content.decode()
        found = desk.get("/search/", {"q": acme.owner.email[2:9]}).content.decode()
        assert f"/users/{acme.owner.pk}/" in found

    def test_is_for_operators(self, acme: House, globex: House) -> None:
        for who in (acme.owner, globex.owner):
            assert signed_in(who).get(f"/users/{acme.viewer.pk}/").status_code == 403
            assert f"/users/{acme.viewer.pk}/" not in signed_in(who).get("/tenants/", follow=True).content.decode()
        assert f"/users/{acme.viewer.pk}/" not in signed_in(acme.owner).get("/tenants/acme/members/").content.decode()

    def test_one_click_ends_all_access_and_says_what_it_was(self, acme: House, operator: User) -> None:
        clients = [browser(acme.owner), browser(acme.owner)]
        machine, script = machine_of(clients[0], acme.owner, "laptop"), bearer(acme.owner)
        factories.credential(acme.workspace, acme.owner)
        link = link_of(made(operator, acme.owner))
        stays = browser(acme.viewer)
        desk, path = signed_in(operator), f"/users/{acme.owner.pk}/end/"
        assert desk.post(path, {"name": "somebody"}).status_code == 422
        assert clients[0].get("/").status_code == 200
        receipt = desk.post(path, {"name": acme.owner.email}).content.decode()
        entry = AuditEntry.objects.get(action="user.end")
        assert entry.detail == {
            "user": acme.owner.email,
            "sessions_ended": 2,
            "machines_ended": 1,
            "tokens_ended": 1,
            "credentials_ended": 1,
            "links_ended": 1,
        }
        assert f"/audit/{entry.pk}/" in receipt
        assert [each.get("/").status_code for each in (*clients, stays)] == [302, 302, 200]
        assert is_ended(machine)
        assert send(script, "GET", "me/").status_code == 401
        assert stranger().get(link).status_code == 404
        assert (
            stranger().post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD}).status_code
            == 401
        )
        assert desk.post(f"/users/{acme.owner.pk}/status/", {"status": "active"}).status_code == 302
        assert [each.get("/").status_code for each in clients] == [302, 302], "enabled again, all stays ended"
        assert send(script, "GET", "me/").status_code == 401

    def test_disabling_ends_as_much(self, acme: House, operator: User) -> None:
        client = browser(acme.owner)
        machine = machine_of(client, acme.owner, "laptop")
        answer = send(bearer(operator, "operate"), "PATCH", f"users/{acme.owner.pk}/", {"status": "disabled"})
        assert (answer.status_code, answer.json()["status"]) == (200, "disabled")
        assert is_ended(machine) and client.get("/").status_code == 302

    def test_nobody_ends_their_own_or_a_superusers(self, acme: House, operator: User) -> None:
        plain = factories.user("plain@platform.test", is_staff=True)
        for who, whom in ((plain, plain), (plain, operator)):
            assert signed_in(who).post(f"/users/{whom.pk}/end/", {"name": whom.email}).status_code == 422
        assert send(bearer(plain, "operate"), "POST", f"users/{operator.pk}/end-access").status_code == 403
        assert send(bearer(plain, "operate"), "POST", f"users/{plain.pk}/end-access").status_code == 409
        assert send(bearer(acme.owner), "POST", f"users/{acme.viewer.pk}/end-access").status_code == 403
        receipt = send(bearer(plain, "operate"), "POST", f"users/{acme.viewer.pk}/end-access").json()
        assert (receipt["sessions"], receipt["tokens"]) == (0, 0)
        again = send(bearer(plain, "operate"), "POST", f"users/{acme.viewer.pk}/end-access")
        assert again.status_code == 200

    def test_sessions_of_superusers_end_by_superusers(self, acme: House, operator: User) -> None:
        """API-23: an operator who could end them one by one would keep a superuser out all the same."""
        plain = factories.user("plain@platform.test", is_staff=True)
        client = browser(operator)
        session = PortalSession.objects.get(user=operator)
        path = f"/users/{operator.pk}/sessions/{session.pk}/"
        assert signed_in(plain).post(path).status_code == 422
        assert send(bearer(plain, "operate"), "DELETE", f"sessions/{session.pk}/").status_code in (403, 404)
        assert client.get("/").status_code == 200
        assert send(bearer(operator, "operate"), "GET", "me/").status_code == 200
        assert browser(operator).post(path).status_code == 302
        assert client.get("/").status_code == 302

    def test_the_rest_api_finds_makes_and_changes_accounts(self, acme: House, operator: User) -> None:
        client = bearer(operator, "operate")
        body: dict[str, Any] = {"email": "ann@acme.test", "name": "Ann Other"}
        made_one = send(client, "POST", "users/", body)
        assert (made_one.status_code, made_one.json()["operator"]) == (201, False)
        (found,) = send(client, "GET", "users/?search=nn%20oth").json()["results"]
        assert found["email"] == "ann@acme.test"
        changed = send(client, "PATCH", f"users/{found['id']}/", {"auditor": True, "name": "Ann"})
        assert (changed.json()["auditor"], changed.json()["name"]) == (True, "Ann")
        raised = send(client, "PATCH", f"users/{found['id']}/", {"operator": True}).json()
        assert (raised["operator"], raised["auditor"]) == (True, False)
        assert send(client, "PATCH", f"users/{found['id']}/", {"auditor": True}).status_code == 409
        detail = send(client, "GET", f"users/{acme.owner.pk}/").json()
        assert detail["memberships"] == [{"tenant": "acme", "role": "owner"}]
        assert detail["second_factor"] is False
        assert send(client, "POST", "users/", body).status_code == 409
        assert send(client, "POST", "users/", {"email": "b@acme.test", "password": "short"}).status_code == 400
        for route in ("users/", f"users/{acme.owner.pk}/"):
            assert send(bearer(acme.owner), "GET", route).status_code == 403
            assert "argon2" not in send(client, "GET", route).content.decode()


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("", "Unknown browser"),
        ("x" * 200, "x" * 40),
    ],
)
def test_browsers_have_names(agent: str, name: str) -> None:
    from portal.pages.browsers import browser_name

    assert browser_name(agent) == name
