"""Passkeys: added, signed in by, lost, copied, stolen and forged (GW16)."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.conf import settings as settings_of
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.models import AuditEntry
from portal.signin.resets import password_give
from tenants.models import Passkey, User
from tests import factories
from tests.portal.authenticator import Authenticator
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.portal.test_requests import actor

NEW, USE, CODE = "/profile/passkeys/new/", "/login/passkey/", "/login/code/"


def offered(client: Client, page: str) -> dict[str, Any]:
    """What the page's form offers to passkeys."""
    shown = client.get(page).content.decode()
    found = re.search(r'data-passkey="([^"]+)"', shown)
    assert found is not None, shown
    options: dict[str, Any] = json.loads(html.unescape(found[1]))
    return options


def added(user: User, passkey: Authenticator, name: str = "Phone", password: str = factories.PASSWORD) -> Any:
    client = signed_in(user)
    answer = passkey.make(offered(client, NEW))
    return client.post(NEW, {"name": name, "old": password, "passkey": answer})


def used(client: Client, passkey: Authenticator, page: str = USE, more: str = "") -> Any:
    return client.post(page + more, {"passkey": passkey.use(offered(client, page))})


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_a_passkey_is_added_named_used_and_removed(acme: House) -> None:
    passkey, browser = Authenticator(), stranger()
    assert added(acme.viewer, passkey).url == "/profile/"
    answer = used(browser, passkey, more="?next=/workspaces/")
    assert (answer.status_code, answer.url) == (302, "/workspaces/")
    assert browser.get("/profile/").context["user"] == acme.viewer
    profile = signed_in(acme.viewer).get("/profile/").content.decode()
    assert "Phone" in profile
    row = Passkey.objects.get()
    assert (row.counter, row.last_used_at is not None) == (1, True)
    owner = signed_in(acme.viewer)
    page = f"/profile/passkeys/{row.pk}/remove/"
    assert owner.post(page, {"old": "wrong"}).status_code == 422
    assert owner.post(page, {"old": factories.PASSWORD}).status_code == 302
    assert used(stranger(), passkey).status_code == 401
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"passkey.add", "passkey.remove", "session.open"} <= actions
    entry = AuditEntry.objects.filter(action="session.open", detail__second_factor="passkey").get()
    assert entry.actor == acme.viewer.email


def test_after_the_password_a_passkey_is_asked_for(acme: House) -> None:
    """Whoever has one has a second factor; nothing is open before it, and another person's does not do."""
    passkey, others = Authenticator(), Authenticator()
    added(acme.viewer, passkey)
    added(acme.editor, others)
    browser = stranger()
    said = {"username": acme.viewer.email, "password": factories.PASSWORD}
    assert browser.post("/login/", said).url == CODE
    assert not is_in(browser)
    allowed = offered(browser, CODE)["allowCredentials"]
    assert len(allowed) == 1
    assert used(browser, others, CODE).status_code == 401
    assert not is_in(browser)
    assert browser.post(CODE, {"code": "123456"}).status_code == 401
    assert used(browser, passkey, CODE).status_code == 302
    assert is_in(browser)


def test_an_answer_opens_once(acme: House) -> None:
    """What was signed for one page is worth nothing on another, nor a second time."""
    passkey = Authenticator()
    added(acme.viewer, passkey)
    browser, thief = stranger(), stranger()
    answer = passkey.use(offered(browser, USE))
    offered(thief, USE)
    assert thief.post(USE, {"passkey": answer}).status_code == 401
    assert browser.post(USE, {"passkey": answer}).status_code == 302
    browser.post("/logout/")
    assert browser.post(USE, {"passkey": answer}).status_code == 401


@pytest.mark.parametrize(
    "bent",
    [
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"flags": 0x01},
        {"flags": 0x04},
        {"user_handle": b"somebody else's"},
        {"credential_id": b"x" * 32},
    ],
    ids=str,
)
def test_what_is_not_this_sites_or_not_verified_opens_nothing(acme: House, bent: dict[str, Any]) -> None:
    passkey = Authenticator()
    added(acme.viewer, passkey)
    for name, value in bent.items():
        setattr(passkey, name, value)
    browser = stranger()
    assert used(browser, passkey).status_code == 401
    assert not is_in(browser)
    assert AuditEntry.objects.filter(action="session.open", outcome="denied").exists()


def test_a_copy_that_counts_backwards_opens_nothing(acme: House) -> None:
    passkey = Authenticator()
    added(acme.viewer, passkey)
    passkey.counter = 40
    assert used(stranger(), passkey).status_code == 302
    passkey.counter = 7
    assert used(stranger(), passkey).status_code == 401


@pytest.mark.parametrize(
    "bent", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"flags": 0x01}], ids=str
)
def test_nothing_is_added_from_elsewhere_or_unverified(acme: House, bent: dict[str, Any]) -> None:
    passkey = Authenticator()
    for name, value in bent.items():
        setattr(passkey, name, value)
    assert added(acme.viewer, passkey).status_code == 422
    assert not Passkey.objects.exists()


def test_adding_asks_for_the_password_a_name_and_another_device(acme: House) -> None:
    passkey = Authenticator()
    assert added(acme.viewer, passkey, password="wrong").status_code == 422
    assert added(acme.viewer, passkey, name="  ").status_code == 422
    assert not Passkey.objects.exists()
    assert added(acme.viewer, passkey).status_code == 302
    assert added(acme.editor, passkey).status_code == 422, "one passkey opens one account"
    known = offered(signed_in(acme.viewer), NEW)["excludeCredentials"]
    assert len(known) == 1


def test_whose_account_is_closed_or_the_providers_does_not_come_in(acme: House) -> None:
    passkey = Authenticator()
    added(acme.viewer, passkey)
    User.objects.filter(pk=acme.viewer.pk).update(status="disabled")
    assert used(stranger(), passkey).status_code == 401
    User.objects.filter(pk=acme.viewer.pk).update(status="active", password="!none")
    assert used(stranger(), passkey).status_code == 401
    assert signed_in(User.objects.get(pk=acme.viewer.pk)).get(NEW).status_code == 409


def test_a_passkey_alone_chooses_no_password_in_place_of_a_given_one(acme: House, operator: User) -> None:
    """Who had the account may have added one: the password that was given is said first, and a new one chosen."""
    passkey, thief, browser = Authenticator(), stranger(), stranger()
    added(acme.viewer, passkey)
    password = password_give(actor=actor(operator), user_id=acme.viewer.pk, now=timezone.now(), keep_factors=True)
    assert used(thief, passkey).status_code == 401
    assert thief.get("/login/password/").url == "/login/"
    assert browser.post("/login/", {"username": acme.viewer.email, "password": password}).url == CODE
    assert used(browser, passkey, CODE).url == "/login/password/"
    assert not is_in(browser)


@pytest.mark.usefixtures("nothing_comes_back")
def test_strangers_fill_no_table_by_asking_for_offers(acme: House) -> None:
    """Each offer is kept in a session: as many browsers begin as ways to a provider, until one comes in."""
    address, before = stranger().defaults["REMOTE_ADDR"], Session.objects.count()
    cookies = [{}, {settings_of.SESSION_COOKIE_NAME: "a" * 32}]
    statuses = [
        Client(REMOTE_ADDR=address, headers={"Cookie": "; ".join(f"{k}={v}" for k, v in cookies[each % 2].items())})
        .get(USE)
        .status_code
        for each in range(14)
    ]
    assert statuses[:10] == [200] * 10
    assert statuses[-1] == 429
    assert Session.objects.count() - before <= 11
    passkey, browser = Authenticator(), stranger()
    added(acme.viewer, passkey)
    for _ in range(12):
        assert browser.get(USE).status_code == 200, "one browser asks as often as it likes"
    assert used(browser, passkey).status_code == 302


def test_an_operator_lets_somebody_in_who_has_lost_the_phone(acme: House, operator: User) -> None:
    added(acme.viewer, Authenticator())
    script = bearer(operator, "operate")
    assert send(script, "GET", f"users/{acme.viewer.pk}/").json()["second_factor"] is True
    assert signed_in(operator).post(f"/users/{acme.viewer.pk}/factor/").status_code == 302
    assert not Passkey.objects.exists()
    assert send(script, "GET", f"users/{acme.viewer.pk}/").json()["second_factor"] is False
    browser = stranger()
    browser.post("/login/", {"username": acme.viewer.email, "password": factories.PASSWORD})
    assert is_in(browser)


def test_operators_who_need_a_second_factor_keep_one(operator: User, settings: Any) -> None:
    settings.SECOND_FACTOR_FOR_OPERATORS = True
    passkey = Authenticator()
    added(operator, passkey)
    browser = stranger()
    assert browser.post("/login/", {"username": operator.email, "password": factories.PASSWORD}).url == CODE
    page = f"/profile/passkeys/{Passkey.objects.get().pk}/remove/"
    assert signed_in(operator).post(page, {"old": factories.PASSWORD}).status_code == 422
    assert Passkey.objects.exists()


def test_nobody_removes_anothers(acme: House) -> None:
    added(acme.viewer, Authenticator())
    page = f"/profile/passkeys/{Passkey.objects.get().pk}/remove/"
    assert signed_in(acme.owner).post(page, {"old": factories.PASSWORD}).status_code == 404


def test_an_address_has_no_passkeys(acme: House) -> None:
    """Browsers keep them for names alone: the page says what to do."""
    answer = signed_in(acme.viewer).get(NEW, headers={"Host": "127.0.0.1"})
    assert (answer.status_code, b"by its host name" in answer.content) == (409, True)


@pytest.mark.usefixtures("nothing_comes_back")
def test_wrong_answers_are_counted(acme: House) -> None:
    browser = stranger()
    statuses = [browser.post(USE, {"passkey": "{}"}).status_code for _ in range(12)]
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429


ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "rawId", "type", "response", "clientDataJSON", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=st.one_of(st.text(max_size=50), ANSWERS.map(json.dumps)))
def test_whatever_a_browser_sends_is_an_answer_or_refused(acme: House, answer: str) -> None:
    client = signed_in(acme.viewer)
    offered(client, NEW)
    said = {"name": "x", "old": factories.PASSWORD, "passkey": answer.replace("\x00", "")}
    assert client.post(NEW, said).status_code in {422, 429}
    assert not Passkey.objects.exists()
    Session.objects.filter(session_key=client.session.session_key).delete()
