"""What outlasts a session is given out for more than its cookie: soon after a sign-in, or for the present password (GW16)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.providers import Provider, begin, come_back, providing
from tests.portal.test_api import send
from tests.portal.test_signin_steps import present
from tests.portal.test_signon import sign_in, using

FORM = {"name": "ci", "scope": "read", "tenant": "", "days": "30"}


@pytest.fixture
def provider(tmp_path: Path, settings: Any) -> Iterator[Provider]:
    with providing(tmp_path) as running:
        yield from using(running, settings)


def asked_later(browser: Client, *, minutes: float = 16) -> Client:
    """The same browser, signed in so many minutes earlier."""
    session = browser.session
    session["signed-in-at"] -= minutes * 60
    session.save()
    return browser


def from_the_release_before(user: User) -> Client:
    """A session that says nothing of when it was opened."""
    browser = signed_in(user)
    session = browser.session
    del session["signed-in-at"]
    session.save()
    return browser


def by_rest(browser: Client) -> Any:
    until = timezone.now() + timedelta(days=30)
    return send(browser, "POST", "tokens/", {"name": "ci", "scope": "read", "expires_at": until.isoformat()})


@pytest.mark.parametrize("way", ["old", "before"])
def test_a_stolen_session_makes_no_access_token(acme: House, way: str) -> None:
    """Its cookie lasts for hours, a token for a year."""
    stolen = asked_later(signed_in(acme.owner)) if way == "old" else from_the_release_before(acme.owner)
    for said in ({}, {"old": "guessed"}):
        assert stolen.post("/tokens/new/", {**FORM, **said}).status_code == 422
    refused = by_rest(stolen)
    assert (refused.status_code, "Sign in again" in refused.json()["detail"]) == (403, True)
    assert not acme.owner.access_tokens.exists()
    assert stolen.get("/api/v1/me/").status_code == 200, "all else goes on"


def test_who_knows_the_password_says_it_and_the_session_is_as_old_as_before(acme: House) -> None:
    browser = asked_later(signed_in(acme.owner))
    assert "Present password" in browser.get("/tokens/new/").content.decode()
    assert browser.post("/tokens/new/", {**FORM, "old": factories.PASSWORD}).status_code == 200
    assert acme.owner.access_tokens.count() == 1
    assert browser.post("/tokens/new/", FORM).status_code == 422, "whoever has a copy of the cookie gained nothing"


def test_who_has_just_signed_in_is_asked_nothing(acme: House) -> None:
    """By page and REST: a script that signs in makes its token."""
    browser = stranger()
    assert present(browser, acme.owner).status_code == 302
    assert "Present password" not in browser.get("/tokens/new/").content.decode()
    assert browser.post("/tokens/new/", FORM).status_code == 200
    assert by_rest(asked_later(browser, minutes=10)).status_code == 201
    assert by_rest(asked_later(browser, minutes=10)).status_code == 403


def test_who_has_no_password_goes_to_their_provider_and_comes_back(provider: Provider) -> None:
    browser = sign_in(provider).browser
    assert browser.post("/tokens/new/", FORM).status_code == 200
    asked_later(browser)
    page = browser.get("/tokens/new/").content.decode()
    assert "Sign in with Acme SSO" in page
    assert "/oidc/authenticate/?next=%2Ftokens%2Fnew%2F" in page
    assert browser.post("/tokens/new/", FORM).status_code == 403
    back = come_back(browser, provider.consent(begin(browser, "/tokens/new/"), "u-1"))
    assert back.headers["Location"] == "/tokens/new/"
    assert browser.post("/tokens/new/", FORM).status_code == 200
    assert User.objects.get(subject="u-1").access_tokens.count() == 2
