"""Between the right password and a session: a password of one's own, a second factor, and no way around either (GW16)."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyotp
import pytest
import time_machine
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from audit.models import AuditEntry
from audit.recorder import Actor
from portal.signin import accounts, attempts, factors
from portal.signin.steps import SECONDS
from tenants.models import RecoveryCode, SecondFactor, User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import actor_of

OWN = "a long and windy road"
GIVEN = "welcome to the house"
DOORS = ("/", "/workspaces/", "/profile/", "/tokens/new/", "/admin/", "/device/", "/profile/factor/", "/users/")


def opened(browser: Client) -> list[str]:
    """Which doors a browser comes through, by pages, REST, and kubectl's consent."""
    consent = (
        "/oauth/authorize/?client_id=tenantry-login&response_type=code&redirect_uri=http://127.0.0.1:7777/callback"
    )
    pages = [path for path in (*DOORS, consent) if browser.get(path).status_code not in (302, 401)]
    routes = ("me/", "workspaces/", "tenants/", "sessions/", "users/")
    return pages + [route for route in routes if send(browser, "GET", route).status_code != 401]


def present(browser: Client, user: User, password: str = factories.PASSWORD, target: str = "/tenants/") -> Any:
    return browser.post("/login/", {"username": user.email, "password": password, "next": target})


def given_to(operator: User, email: str = "new@acme.test") -> User:
    """An account that an operator has made on the page for it."""
    answer = signed_in(operator).post("/users/new/", {"email": email, "password": GIVEN})
    assert answer.status_code == 302, answer.content.decode()
    return User.objects.get(email=email)


def with_app(user: User) -> tuple[pyotp.TOTP, list[str]]:
    """An app and recovery codes, set up a while ago: no code of now has been used."""
    secret, then = factors.secret_new(), timezone.now() - timedelta(hours=1)
    app = pyotp.TOTP(secret)
    codes = factors.factor_add(actor=actor_of(user), user=user, secret=secret, code=app.at(then), now=then)
    return app, codes


class TestGivenPassword:
    """Whoever made the account knows it: it opens nothing but the choice of another."""

    def test_has_to_be_changed_before_anything_else(self, operator: User) -> None:
        person, browser = given_to(operator), stranger()
        answer = present(browser, person, GIVEN)
        assert answer.headers["Location"] == "/login/password/"
        assert opened(browser) == []
        assert django_settings.DEVICE_COOKIE_NAME not in browser.cookies
        assert "somebody else knows it" in browser.get("/login/password/").content.decode()
        for wrong in ("short", GIVEN, "new@acme.test"):
            assert browser.post("/login/password/", {"password": wrong}).status_code == 422
            assert opened(browser) == []
        answer = browser.post("/login/password/", {"password": OWN})
        assert (answer.status_code, answer.headers["Location"]) == (302, "/tenants/")
        assert "/workspaces/" in opened(browser)
        assert present(stranger(), person, GIVEN).status_code == 401
        assert present(stranger(), person, OWN).headers["Location"] == "/tenants/"
        said = list(AuditEntry.objects.filter(chain="system", outcome="success").order_by("sequence"))
        assert [each.action for each in said[-3:]] == ["user.change", "session.open", "session.open"]

    def test_whichever_way_the_account_was_made(self, operator: User) -> None:
        client = signed_in(operator)
        form = {"email": "a@acme.test", "usable_password": "true", "password1": GIVEN, "password2": GIVEN}
        assert client.post("/admin/tenants/user/add/", form).status_code == 302
        made = send(bearer(operator, "operate"), "POST", "users/", {"email": "r@acme.test", "password": GIVEN})
        assert made.status_code == 201, made.content
        for email in ("a@acme.test", "r@acme.test"):
            browser = stranger()
            assert present(browser, User.objects.get(email=email), GIVEN).headers["Location"] == "/login/password/"
            assert opened(browser) == []

    def test_another_given_by_a_superuser_is_one_too_and_ends_what_was_open(self, acme: House, operator: User) -> None:
        browser, form = signed_in(acme.owner), {"password1": GIVEN, "password2": GIVEN}
        assert browser.get("/").status_code == 200
        assert signed_in(operator).post(f"/admin/tenants/user/{acme.owner.pk}/password/", form).status_code == 302
        assert browser.get("/").status_code == 302
        assert present(stranger(), acme.owner, GIVEN).headers["Location"] == "/login/password/"

    def test_nobody_sets_their_own_without_the_present_one(self, operator: User) -> None:
        """A session that somebody has got hold of keeps no account: the console has no way round the profile."""
        client = signed_in(operator)
        mine = {"password1": OWN, "password2": OWN, "new_password1": OWN, "new_password2": OWN}
        for path in (f"/admin/tenants/user/{operator.pk}/password/", "/admin/password_change/"):
            for old in ("a guess", factories.PASSWORD):
                assert client.post(path, {**mine, "old_password": old}).headers["Location"] == "/profile/"
            assert client.get(path).headers["Location"] == "/profile/"
        assert User.objects.get(pk=operator.pk).check_password(factories.PASSWORD)
        assert client.post("/admin/logout/").headers["Location"] == "/login/"
        assert client.get("/profile/").status_code == 302
        assert AuditEntry.objects.filter(action="session.close").count() == 1

    def test_what_is_on_the_way_ends_with_time_the_account_and_another_password(self, operator: User) -> None:
        person = given_to(operator)
        browsers = [stranger() for _ in range(3)]
        for browser in browsers:
            present(browser, person, GIVEN)
        with time_machine.travel(time.time() + SECONDS + 1):
            assert browsers[0].post("/login/password/", {"password": OWN}).headers["Location"] == "/login/"
        assert browsers[1].post("/login/password/", {"password": OWN}).status_code == 302
        assert browsers[2].post("/login/password/", {"password": "another long road"}).headers["Location"] == "/login/"
        other = given_to(operator, "other@acme.test")
        browser = stranger()
        present(browser, other, GIVEN)
        accounts.user_change(actor=actor_of(operator), user_id=other.pk, status="disabled")
        assert browser.post("/login/password/", {"password": OWN}).headers["Location"] == "/login/"


class TestSecondFactor:
    """A stolen password alone opens nothing."""

    def test_is_set_up_with_a_code_and_asked_for_from_then_on(self, acme: House) -> None:
        browser = signed_in(acme.owner)
        page = browser.get("/profile/factor/").content.decode()
        secret = re.search(r'id="secret"[^>]*>([A-Z2-7 ]+)<', page)[1].replace(" ", "")  # type: ignore[index]
        assert "data:image/svg+xml" in page
        app, now = pyotp.TOTP(secret), timezone.now()
        sent = {"code": app.at(now), "old": factories.PASSWORD}
        assert browser.post("/profile/factor/", {**sent, "code": "000000"}).status_code == 422
        assert browser.post("/profile/factor/", {**sent, "old": "x"}).status_code == 422
        assert factors.factor_of(acme.owner) is None
        shown = browser.post("/profile/factor/", sent).content.decode()
        codes = re.findall(r"\b[a-z2-7]{4}(?:-[a-z2-7]{4}){3}\b", shown)
        assert len(codes) == factors.RECOVERY_CODES
        fresh = stranger()
        assert present(fresh, acme.owner).headers["Location"] == "/login/code/"
        assert opened(fresh) == []
        assert fresh.post("/login/code/", {"code": app.at(now)}).status_code == 401, "it has confirmed the app"
        assert fresh.post("/login/code/", {"code": codes[0].upper()}).headers["Location"] == "/tenants/"
        assert "/profile/" in opened(fresh)
        page = fresh.get("/profile/").content.decode()
        assert "9 recovery codes left" in page
        kept = [*SecondFactor.objects.values_list(), *RecoveryCode.objects.values_list()]
        kept += [*AuditEntry.objects.values_list(), *[each.get_decoded() for each in Session.objects.all()]]
        assert not [text for text in (secret, *codes) if text in repr(kept)]

    def test_a_code_opens_once_and_none_from_before_it_ever(self, acme: House) -> None:
        app, codes = with_app(acme.owner)
        now = datetime(2027, 3, 1, 12, 0, 10, tzinfo=UTC)
        used = [
            factors.code_use(actor=actor_of(acme.owner), user=acme.owner, code=code, now=now)
            for code in [app.at(now + timedelta(seconds=30 * steps)) for steps in (0, 0, -1, -2, 2, 1)]
        ]
        assert used == ["app", "", "", "", "", "app"]
        for code in (codes[0], codes[0].replace("-", " ")):
            used.append(factors.code_use(actor=actor_of(acme.owner), user=acme.owner, code=code, now=now))
        assert used[-2:] == ["recovery code", ""]
        assert factors.code_use(actor=actor_of(acme.viewer), user=acme.viewer, code=codes[1], now=now) == "", (
            "somebody else's"
        )

    @pytest.mark.usefixtures("nothing_comes_back")
    def test_no_code_is_guessed_from_whichever_address(self, acme: House) -> None:
        app, _ = with_app(acme.owner)
        answers = []
        for _ in range(attempts.FACTOR.burst + 1):
            browser = stranger()
            present(browser, acme.owner)
            answers.append(browser.post("/login/code/", {"code": "000000"}))
        assert [each.status_code for each in answers] == [401] * attempts.FACTOR.burst + [429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        browser = stranger()
        present(browser, acme.owner)
        assert browser.post("/login/code/", {"code": app.now()}).status_code == 429, "the right one as well"
        denied = AuditEntry.objects.filter(action="session.open", outcome="denied").latest("created_at")
        assert denied.detail["step"] == "second factor"

    def test_guessing_elsewhere_does_not_lock_out_a_browser_that_is_known(self, acme: House) -> None:
        app, codes = with_app(acme.owner)
        known = stranger()
        present(known, acme.owner)
        assert known.post("/login/code/", {"code": codes[0]}).status_code == 302
        known.post("/logout/")
        for _ in range(attempts.FACTOR.burst + 1):
            elsewhere = stranger()
            present(elsewhere, acme.owner)
            elsewhere.post("/login/code/", {"code": "000000"})
        present(known, acme.owner)
        assert known.post("/login/code/", {"code": app.now()}).headers["Location"] == "/tenants/"

    def test_a_session_that_was_planted_goes_no_further(self, acme: House) -> None:
        app, _ = with_app(acme.owner)
        attacker, victim, name = stranger(), stranger(), django_settings.SESSION_COOKIE_NAME
        present(attacker, acme.owner)
        planted = attacker.cookies[name].value
        victim.cookies[name] = planted
        present(victim, acme.owner)
        assert victim.cookies[name].value != planted
        first = victim.cookies[name].value
        assert victim.post("/login/code/", {"code": app.now()}).status_code == 302
        for key in (planted, first):
            attacker.cookies[name] = key
            assert opened(attacker) == []

    def test_steps_are_taken_in_their_order(self, operator: User) -> None:
        person = given_to(operator)
        app, _ = with_app(person)
        browser = stranger()
        assert present(browser, person, GIVEN).headers["Location"] == "/login/code/"
        for path in ("/login/password/", "/login/factor/", "/login/further/"):
            assert browser.post(path, {"password": OWN}).headers["Location"] == "/login/code/"
        assert person.check_password(GIVEN)
        assert browser.post("/login/code/", {"code": app.now()}).headers["Location"] == "/login/password/"
        assert opened(browser) == []
        assert browser.post("/login/password/", {"password": OWN}).headers["Location"] == "/tenants/"
        for path in ("/login/code/", "/login/password/", "/login/factor/"):
            assert stranger().post(path, {"code": app.now()}).headers["Location"] == "/login/"

    def test_nobody_changes_somebody_elses(self, acme: House, globex: House) -> None:
        with_app(acme.owner)
        for who in (acme.viewer, globex.owner):
            assert signed_in(who).post(f"/users/{acme.owner.pk}/factor/").status_code == 403
            assert send(bearer(who), "DELETE", f"users/{acme.owner.pk}/second-factor").status_code == 403
        browser = signed_in(acme.owner)
        for path in ("/profile/factor/remove/", "/profile/factor/codes/"):
            assert browser.post(path, {"old": "wrong"}).status_code == 422
        assert factors.factor_of(acme.owner) is not None
        assert RecoveryCode.objects.filter(user=acme.owner, used_at=None).count() == factors.RECOVERY_CODES
        assert browser.post("/profile/factor/remove/", {"old": factories.PASSWORD}).status_code == 302
        assert present(stranger(), acme.owner).headers["Location"] == "/tenants/"

    def test_an_operator_removes_that_of_whoever_has_lost_it(self, acme: House, operator: User) -> None:
        with_app(acme.owner)
        assert signed_in(operator).post(f"/users/{acme.owner.pk}/factor/").status_code == 302
        entry = AuditEntry.objects.get(action="factor.remove")
        assert (entry.actor, entry.detail["user"]) == (operator.email, acme.owner.email)
        plain, chief = factories.user("plain@platform.test", is_staff=True), operator
        with_app(chief)
        assert signed_in(plain).post(f"/users/{chief.pk}/factor/").status_code == 422
        assert factors.factor_of(chief) is not None, "only superusers change superusers"

    def test_tokens_are_asked_for_none(self, acme: House) -> None:
        client = bearer(acme.owner)
        with_app(acme.owner)
        assert send(client, "GET", "me/").status_code == 200

    def test_other_sealing_keys_open_no_account(self, acme: House, settings: Any) -> None:
        app, codes = with_app(acme.owner)
        settings.SEALING_KEYS = ["0" * 43 + "="]
        assert factors.code_use(actor=actor_of(acme.owner), user=acme.owner, code=app.now(), now=timezone.now()) == ""
        assert (
            factors.code_use(actor=actor_of(acme.owner), user=acme.owner, code=codes[0], now=timezone.now())
            == "recovery code"
        )


def secret_on(browser: Client, page: str) -> str:
    """What an app is to be set up with."""
    shown = browser.get(page).content.decode()
    return re.search(r'id="secret"[^>]*>([A-Z2-7 ]+)<', shown)[1].replace(" ", "")  # type: ignore[index]


class TestRequiredOfOperators:
    """By a setting; whoever has none sets one up on the way in."""

    @pytest.fixture(autouse=True)
    def _required(self, settings: Any) -> None:
        settings.SECOND_FACTOR_FOR_OPERATORS = True

    def test_an_operator_sets_one_up_before_anything_else(self, operator: User) -> None:
        browser = stranger()
        assert present(browser, operator).headers["Location"] == "/login/factor/"
        assert opened(browser) == []
        secret = secret_on(browser, "/login/factor/")
        assert browser.post("/login/factor/", {"code": "000000"}).status_code == 422
        assert secret_on(browser, "/login/factor/") == secret
        shown = browser.post("/login/factor/", {"code": pyotp.TOTP(secret).now()})
        assert "I have kept them" in shown.content.decode()
        assert opened(browser) == []
        assert browser.post("/login/further/").headers["Location"] == "/tenants/"
        assert "/users/" in opened(browser)
        refused = browser.post("/profile/factor/remove/", {"old": factories.PASSWORD})
        assert (refused.status_code, "Set up another app" in refused.content.decode()) == (422, True)

    @pytest.mark.parametrize("planted", [False, True])
    @pytest.mark.parametrize("by", ["a colleague", "whoever knows the password"])
    def test_no_secret_is_offered_that_somebody_was_shown_before(
        self, operator: User, settings: Any, planted: bool, by: str
    ) -> None:
        """GW16: in a shared browser, or in a session that was planted; on the way in, and on the profile behind it."""
        before, browser = factories.operator() if by == "a colleague" else operator, stranger()
        present(browser, before)
        seen = secret_on(browser, "/login/factor/")
        if planted:
            key = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
            browser = stranger()
            browser.cookies[django_settings.SESSION_COOKIE_NAME] = key
        assert present(browser, operator).headers["Location"] == "/login/factor/"
        offered = secret_on(browser, "/login/factor/")
        assert offered != seen
        settings.SECOND_FACTOR_FOR_OPERATORS = False
        assert present(browser, operator).headers["Location"] == "/tenants/"
        assert secret_on(browser, "/profile/factor/") not in (seen, offered)

    def test_others_are_asked_for_none(self, acme: House) -> None:
        assert present(stranger(), acme.owner).headers["Location"] == "/tenants/"

    def test_who_is_made_an_operator_signs_in_anew(self, acme: House, operator: User) -> None:
        browser = signed_in(acme.owner)
        assert browser.get("/").status_code == 200
        accounts.user_change(actor=actor_of(operator), user_id=acme.owner.pk, is_staff=True)
        assert browser.get("/").status_code == 302
        assert present(browser, acme.owner).headers["Location"] == "/login/factor/"

    def test_operators_of_before_sign_in_anew(self, operator: User, settings: Any) -> None:
        settings.SECOND_FACTOR_FOR_OPERATORS = False
        browser = signed_in(operator)
        assert browser.get("/users/").status_code == 200
        settings.SECOND_FACTOR_FOR_OPERATORS = True
        assert browser.get("/users/").status_code == 302


def test_a_wrong_first_code_sets_nothing_up(acme: House) -> None:
    secret, now = factors.secret_new(), timezone.now()
    for code in (
        "",
        "123",
        "abcdef",
        "\u0661\u0662\u0663\u0664\u0665\u0666",
        pyotp.TOTP(secret).at(now + timedelta(minutes=5)),
    ):
        with pytest.raises(Exception, match="not the code"):
            factors.factor_add(actor=Actor(name="x"), user=acme.owner, secret=secret, code=code, now=now)
    assert not SecondFactor.objects.exists()
