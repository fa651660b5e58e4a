"""Headers, cookies, forged requests, guessed passwords."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.test import Client, override_settings

from audit.actions import Action
from audit.models import AuditEntry
from portal.views import health
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.providers import ELSEWHERE

TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))


def test_policy_allows_our_own_files_and_nothing_else() -> None:
    """GW11, API-16."""
    response = Client().get("/login/")
    policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_template_has_no_inline_script_or_style(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:", text)


def test_cookies_are_closed_to_scripts_and_other_sites(acme: House) -> None:
    """API-17."""
    client = stranger()
    client.get("/login/")
    client.post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD})
    for name in (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME):
        cookie = client.cookies[name]
        assert cookie["httponly"] and cookie["secure"] and cookie["samesite"] == "Lax", name


def test_session_key_changes_with_sign_in(acme: House) -> None:
    """OIDC-05: a key from before is worth nothing."""
    client = stranger()
    client.cookies[settings.SESSION_COOKIE_NAME] = "planted"
    client.post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD})
    assert client.cookies[settings.SESSION_COOKIE_NAME].value != "planted"


def test_form_without_csrf_token_is_refused(acme: House) -> None:
    """API-14."""
    client = signed_in(acme.owner, enforce_csrf_checks=True)
    for path in (
        "/workspaces/new/",
        "/tokens/new/",
        "/logout/",
        f"/workspaces/{acme.workspace.pk}/delete/",
        "/profile/password/",
    ):
        response = client.post(path, {"name": "acme-web"})
        assert response.status_code == 403, path
        assert "Reload the page" in response.content.decode()
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


def test_sign_in_is_audited_and_never_says_which_was_wrong(acme: House) -> None:
    client = stranger()
    answers = {
        client.post("/login/", {"username": email, "password": password}).content.decode().count("is wrong")
        for email, password in ((acme.owner.email, "nonsense"), ("nobody@acme.test", "nonsense"))
    }
    assert answers == {1}
    assert client.post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD}).status_code == 302
    outcomes = list(
        AuditEntry.objects.filter(action=Action.SIGN_IN).order_by("sequence").values_list("outcome", flat=True)
    )
    assert outcomes == ["denied", "denied", "success"]
    client.post("/logout/")
    assert AuditEntry.objects.filter(action=Action.SIGN_OUT).exists()


def test_disabled_person_cannot_sign_in(acme: House) -> None:
    acme.owner.status = "disabled"
    acme.owner.save()
    assert stranger().post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD}).status_code == 401


@pytest.mark.usefixtures("nothing_comes_back")
def test_guessing_is_slowed_down_by_account_and_by_address() -> None:
    """API-34: whatever X-Forwarded-For says."""
    client = stranger()
    codes = [
        client.post(
            "/login/", {"username": f"a{n}@acme.test", "password": "x"}, headers={"X-Forwarded-For": f"10.0.0.{n}"}
        ).status_code
        for n in range(12)
    ]
    assert codes[0] == 401
    assert codes[-1] == 429
    response = client.post("/login/", {"username": "b@acme.test", "password": "x"})
    assert int(response.headers["Retry-After"]) >= 1


def test_megabyte_password_is_refused_unread() -> None:
    """API-34."""
    response = stranger().post("/login/", {"username": "a@acme.test", "password": "x" * 1_000_000})
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_sign_in_never_leads_elsewhere(target: str, acme: House) -> None:
    client = stranger()
    response = client.post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD, "next": target})
    assert response.headers["Location"] == "/"


def test_metrics_are_for_this_host_or_the_bearer_of_the_token() -> None:
    assert Client().get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="203.0.113.9").get("/metrics").status_code == 404
    assert Client().get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 404
    with override_settings(METRICS_TOKEN="s3cret"):
        assert Client().get("/metrics").status_code == 404
        assert (
            Client(REMOTE_ADDR="203.0.113.9").get("/metrics", headers={"Authorization": "Bearer s3cret"}).status_code
            == 200
        )


def test_readiness_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/readyz").json() == {
        "ready": True,
        "checks": {"database": "ok", "migrations": "ok", "shutdown": "ok"},
    }
    monkeypatch.setattr(health, "_migrated", False)
    monkeypatch.setattr(health, "database_is_migrated", lambda: False)
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"database": "ok", "migrations": "failed", "shutdown": "ok"}


@pytest.mark.parametrize("path", ["/", "/workspaces/", "/tenants/", "/users/", "/clusters/", "/tiers/", "/audit/"])
def test_list_costs_the_same_with_few_rows_and_with_many(
    path: str, operator: factories.User, django_assert_max_num_queries: object
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = signed_in(operator)

    def grow(count: int) -> int:
        for _ in range(count):
            made = factories.tenant()
            factories.workspace(made, factories.member(made))
        client.get(path)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return len(queries)

    few = grow(3)
    assert grow(9) == few


def test_what_strangers_send_wrong_is_one_line_of_the_log() -> None:
    """GW13: they choose how often; a traceback for each would fill the log with sixty times what they send."""
    (console,) = (handler for handler in logging.root.handlers if getattr(handler, "name", "") == "console")
    assert isinstance(console, logging.StreamHandler)
    said = io.StringIO()
    before = console.setStream(said)
    try:
        assert Client().get("/login/", headers={"host": "evil.example"}).status_code == 400
    finally:
        console.setStream(before)
    (line,) = [line for line in said.getvalue().splitlines() if "django.request" not in line]
    assert "django.security.DisallowedHost" in line and "evil.example" in line


def test_a_cookie_that_is_not_kept_is_named_with_the_remedy(acme: House) -> None:
    """Over plain HTTP not every client keeps Secure cookies; it is told, not sent round in circles."""
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/login/", {"username": acme.owner.email, "password": factories.PASSWORD})
    assert answer.status_code == 403
    assert "has not kept this site" in answer.content.decode()


@pytest.mark.parametrize(("method", "path"), [("post", "/workspaces/"), ("get", "/logout/"), ("put", "/tenants/")])
def test_a_method_that_a_page_does_not_take_is_answered_by_a_page(acme: House, method: str, path: str) -> None:
    answer = getattr(signed_in(acme.owner), method)(path)
    assert answer.status_code == 405 and answer.headers["Allow"]
    assert "That does not work here" in answer.content.decode()


def test_the_operators_console_sends_nobody_round_in_circles(acme: House, operator: factories.User) -> None:
    client = signed_in(acme.owner)
    answer = client.get("/admin/", follow=True)
    assert answer.status_code == 403 and "for operators" in answer.content.decode()
    assert signed_in(operator).get("/admin/").status_code == 200
    assert stranger().get("/admin/", follow=True).redirect_chain[-1][0] == "/login/?next=%2Fadmin%2F"


@pytest.mark.parametrize("said", ["foo", "?x", "overview", "a b", "\\x", "https://testserver/tenants/", "//elsewhere/"])
def test_whatever_an_address_says_one_comes_in_and_to_a_page_of_ours(said: str) -> None:
    """A name is taken for no page, and what is no path leads to the overview."""
    person, client = factories.user(), stranger()
    sent = {"username": person.email, "password": factories.PASSWORD}
    answer = client.post(f"/login/?{urlencode({'next': said})}", sent)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert client.get(f"/login/?{urlencode({'next': said})}").headers["Location"] == "/"
    assert client.get("/login/?next=/tenants/").headers["Location"] == "/tenants/"


class TestSessionThatEnded:
    """The sign-in page comes in place of the whole page and leads back to one that can be opened."""

    def test_in_a_dialog(self) -> None:
        page = {
            "HX-Request": "true",
            "HX-Target": "dialog",
            "HX-Current-URL": "http://testserver/tenants/acme/?tab=1#x",
        }
        answer = stranger().get("/tenants/acme/members/add/", headers=page)
        assert answer.headers["HX-Redirect"] == "/login/?next=%2Ftenants%2Facme%2F%3Ftab%3D1"

    def test_by_a_form(self) -> None:
        client = stranger()
        answer = client.post(
            "/tenants/acme/suspend/", {"reason": "x"}, headers={"Referer": "http://testserver/tenants/"}
        )
        assert answer.headers["Location"] == "/login/?next=%2Ftenants%2F&ended=1"
        assert "nothing was changed" in client.get(answer.headers["Location"]).content.decode()

    def test_by_a_form_whose_token_is_of_another_session(self) -> None:
        client = Client(enforce_csrf_checks=True)
        answer = client.post("/tokens/new/", {"name": "x"})
        assert answer.status_code == 403 and "Sign in and do it again" in answer.content.decode()
        answer = client.post("/tokens/new/", {"name": "x"}, headers={"HX-Request": "true"})
        assert answer.headers["HX-Redirect"] == "/login/?next=%2F&ended=1"

    @pytest.mark.parametrize("said_in", ["HX-Current-URL", "Referer"])
    @pytest.mark.parametrize(
        "page",
        [
            *("http://elsewhere/tenants/", "//elsewhere/", "javascript:alert(1)", "", "x", "http://testserver?x"),
            *("http://[", "http://[::1", "http://]/", "http://a[b]/", "http://\u2100/", "//[v1.x]:y/"),
        ],
    )
    def test_leads_to_our_own_pages_only(self, page: str, said_in: str) -> None:
        """And a stranger who names what is no address at all gets an answer as well."""
        answer = stranger().get("/tokens/", headers={"HX-Request": "true", said_in: page})
        assert answer.headers["HX-Redirect"] == "/login/?next=%2F"
