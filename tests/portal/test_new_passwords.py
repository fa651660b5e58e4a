"""A new password for whoever has lost theirs: by a link, once; nobody learns who has an account, nor the link (GW16, GW9)."""

from __future__ import annotations

import re
import smtplib
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from audit.models import AuditEntry
from audit.recorder import Actor
from audit.redaction import clean_text
from kube.requests.status import Conflict
from portal.backup.closing import credentials_end_all
from portal.logformat import LineFormatter
from portal.signin import attempts, resets
from portal.signin.accounts import user_change
from portal.signin.factors import codes_left, factor_of
from tenants.models import Notice, PasswordReset, User
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.portal.test_signin_steps import OWN, opened, present, with_app


def link_of(text: str) -> str:
    """The link's path, as a page or a mail shows it this once."""
    return re.search(r"https?://[\w.:]+(/reset/[\w-]{43}/)", text)[1]  # type: ignore[index]


def made(by: User, person: User, way: str = "link", **more: str) -> str:
    answer = signed_in(by).post(f"/users/{person.pk}/reset/", {"way": way, **more})
    assert (answer.status_code, answer.headers["Cache-Control"].find("no-store") >= 0) == (200, True)
    return str(answer.content.decode())


def ask(email: str, browser: Client | None = None) -> Any:
    return (browser or stranger()).post("/forgotten/", {"email": email}, headers={"Host": "testserver"})


def test_a_link_sets_a_password_once_and_ends_what_was_open(acme: House, operator: User) -> None:
    link, before = link_of(made(operator, acme.owner)), signed_in(acme.owner)
    assert before.get("/").status_code == 200
    assert present(stranger(), acme.owner).status_code == 302, "the present password goes on until then"
    browser = stranger()
    answer = browser.get(link)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/reset/")
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert acme.owner.email in browser.get("/reset/").content.decode()
    assert browser.post("/reset/", {"password": "short"}).status_code == 422
    assert browser.post("/reset/", {"password": OWN}).headers["Location"] == "/login/"
    assert opened(browser) == [], "a link signs nobody in"
    assert before.get("/").status_code == 302
    assert present(stranger(), acme.owner, OWN).headers["Location"] == "/tenants/"
    assert stranger().get(link).status_code == 404
    assert browser.post("/reset/", {"password": "yet another long road"}).status_code == 404
    said = AuditEntry.objects.filter(action__in=["password.link", "user.change"]).order_by("sequence")
    assert [each.actor for each in said] == [operator.email, acme.owner.email]


def test_two_who_have_opened_one_link_use_it_once(acme: House, operator: User) -> None:
    link, browsers = link_of(made(operator, acme.owner)), [stranger(), stranger()]
    for browser in browsers:
        browser.get(link)
    used = [browser.post("/reset/", {"password": f"{OWN} {n}"}).status_code for n, browser in enumerate(browsers)]
    assert used == [302, 404]


def test_a_link_goes_round_no_second_factor_that_is_kept(acme: House, operator: User) -> None:
    with_app(acme.owner)
    browser = stranger()
    browser.get(link_of(made(operator, acme.owner, keep_factors="on")))
    browser.post("/reset/", {"password": OWN})
    assert present(browser, acme.owner, OWN).headers["Location"] == "/login/code/"


@pytest.mark.parametrize("way", ["link", "password"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("asked", ["page", "rest"])
def test_what_whoever_had_the_account_added_goes_with_the_password(
    acme: House, operator: User, way: str, kept: bool, asked: str
) -> None:
    """Passkeys, app, recovery codes, tokens: gone once the operator's way is used, unless they are said to be kept."""
    with_app(acme.owner)
    factories.passkey(acme.owner)
    tokens, others = [bearer(acme.owner), bearer(acme.owner, "read", acme.tenant)], bearer(acme.viewer)

    def at_work() -> list[int]:
        return [send(each, "GET", "workspaces/").status_code for each in (*tokens, others)]

    if asked == "page":
        shown = made(operator, acme.owner, way, **({"keep_factors": "on"} if kept else {}))
    else:
        body = {"way": way, "keep_factors": kept}
        shown = send(bearer(operator, "operate"), "POST", f"users/{acme.owner.pk}/reset", body).content.decode()
    if way == "link":
        assert (acme.owner.passkeys.count(), codes_left(acme.owner)) == (1, 10), "nothing happens until it is used"
        assert at_work() == [200, 200, 200]
        browser = stranger()
        browser.get(link_of(shown))
        assert browser.post("/reset/", {"password": OWN}).status_code == 302
    left = (acme.owner.passkeys.count(), factor_of(acme.owner) is not None, codes_left(acme.owner))
    assert left == ((1, True, 10) if kept else (0, False, 0))
    removed = AuditEntry.objects.filter(action="factor.remove", target=f"users/{acme.owner.pk}").count()
    assert removed == (0 if kept else 1)
    assert at_work() == ([200, 200, 200] if kept else [401, 401, 200])
    ended = AuditEntry.objects.filter(action="user.change", detail__tokens_ended=2, target=f"users/{acme.owner.pk}")
    assert ended.count() == (0 if kept else 1)
    said = Notice.objects.filter(user=acme.owner, text__contains="access tokens still work for you")
    assert said.count() == (1 if kept and way == "link" else 0), "what has ended is not named as what is left"


def test_what_a_superuser_sets_in_the_console_leaves_no_access_token(acme: House, operator: User) -> None:
    token, page = bearer(acme.owner), f"/admin/tenants/user/{acme.owner.pk}/password/"
    assert signed_in(operator).post(page, {"password1": OWN, "password2": OWN}).status_code == 302
    assert send(token, "GET", "workspaces/").status_code == 401


def test_a_session_that_was_planted_cannot_use_a_link(acme: House, operator: User) -> None:
    from django.conf import settings

    attacker, victim = signed_in(acme.viewer), stranger()
    attacker.get("/")
    victim.cookies[settings.SESSION_COOKIE_NAME] = attacker.cookies[settings.SESSION_COOKIE_NAME].value
    link = link_of(made(operator, acme.owner))
    victim.get(link)
    assert victim.get("/reset/").status_code == 404
    victim.post(link)
    assert attacker.get("/reset/").status_code == 404
    assert attacker.post("/reset/", {"password": OWN}).status_code == 404
    assert victim.get("/reset/").status_code == 200


def test_a_link_signs_nobody_out_who_opens_it(acme: House, operator: User) -> None:
    """Anybody may send one to anybody: it is asked before."""
    link = link_of(made(operator, acme.owner))
    for person in (acme.viewer, factories.user(is_auditor=True)):
        browser = signed_in(person)
        answer = browser.get(link)
        assert answer.status_code == 200
        assert acme.owner.email in answer.content.decode() and person.email in answer.content.decode()
        assert answer.headers["Referrer-Policy"] == "strict-origin"
        assert browser.get("/profile/").status_code == 200
        assert browser.get("/reset/").status_code == 404
        assert browser.post(link).headers["Location"] == "/reset/"
        assert browser.get("/reset/").status_code == 200
        assert browser.get("/profile/").status_code == 302


def test_links_end_with_time_another_a_new_password_the_account_and_a_restore(acme: House, operator: User) -> None:
    first, second = (link_of(made(operator, acme.owner)) for _ in range(2))
    assert [stranger().get(link).status_code for link in (first, second)] == [404, 302]
    PasswordReset.objects.filter(ended_at=None).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert stranger().get(second).status_code == 404
    third, own = link_of(made(operator, acme.owner)), {"old": factories.PASSWORD, "password": OWN}
    assert signed_in(acme.owner).post("/profile/password/", own).status_code == 302
    assert stranger().get(third).status_code == 404
    fourth, other = link_of(made(operator, acme.owner)), link_of(made(operator, acme.viewer))
    signed_in(operator).post(f"/users/{acme.owner.pk}/status/", {"status": "disabled"})
    assert stranger().get(fourth).status_code == 404
    list(credentials_end_all(now=timezone.now()))
    assert stranger().get(other).status_code == 404


def test_what_an_operator_could_open_is_no_superusers(acme: House, operator: User) -> None:
    """A link, or a password, that an operator has made up before somebody became a superuser (API-23)."""
    chief, plain = Actor(name=operator.email, user_id=operator.pk, operator=True), factories.user(is_staff=True)
    link = link_of(made(plain, acme.owner))
    user_change(actor=chief, user_id=acme.owner.pk, is_superuser=True)
    assert stranger().get(link).status_code == 404
    signed_in(plain).post(f"/users/{acme.viewer.pk}/reset/", {"way": "password"})
    with pytest.raises(Conflict, match="chooses another one first"):
        user_change(actor=chief, user_id=acme.viewer.pk, is_superuser=True)


@pytest.mark.parametrize("secret", ["x", "0" * 43, "a" * 2000])
def test_guessed_links_say_nothing(secret: str) -> None:
    assert stranger().get(f"/reset/{secret}/").status_code == 404


def test_the_secret_is_kept_nowhere_and_in_no_log(
    acme: House, operator: User, caplog: pytest.LogCaptureFixture
) -> None:
    link = link_of(made(operator, acme.owner))
    secret = link.split("/")[2]
    stranger().get(link)
    kept = [*PasswordReset.objects.values_list(), *AuditEntry.objects.values_list()]
    assert secret not in repr([*kept, *[each.get_decoded() for each in Session.objects.all()]])
    stranger().get(f"/reset/{secret}x/")
    line = LineFormatter("%(message)s")
    assert secret not in "\n".join(line.format(record) for record in caplog.records)
    assert secret not in clean_text(f"POST {link}"), "as a refusal would be recorded"


def test_a_given_password_is_shown_once_and_ends_what_was_open(acme: House, operator: User) -> None:
    before = signed_in(acme.owner)
    assert before.get("/").status_code == 200
    page = made(operator, acme.owner, "password")
    password = re.search(r'id="given-password"[^>]*>([\w-]{20})<', page)[1]  # type: ignore[index]
    assert before.get("/").status_code == 302
    assert present(stranger(), acme.owner).status_code == 401
    browser = stranger()
    assert present(browser, acme.owner, password).headers["Location"] == "/login/password/"
    assert opened(browser) == []


def test_who_may_reset_whom(acme: House, globex: House, operator: User) -> None:
    plain = factories.user("plain@platform.test", is_staff=True)
    for who in (acme.owner, acme.viewer, globex.owner):
        for method, path in (("POST", "reset"), ("POST", "end-access")):
            assert send(signed_in(who), method, f"users/{acme.viewer.pk}/{path}").status_code == 403
        assert signed_in(who).post(f"/users/{acme.viewer.pk}/reset/", {"way": "link"}).status_code == 403
    assert send(bearer(operator, "write"), "POST", f"users/{acme.viewer.pk}/reset").status_code == 403
    assert signed_in(plain).post(f"/users/{operator.pk}/reset/", {"way": "password"}).status_code == 422
    assert signed_in(plain).post(f"/users/{plain.pk}/reset/", {"way": "link"}).status_code == 422
    assert send(bearer(plain, "operate"), "POST", f"users/{operator.pk}/reset").status_code == 403
    assert not PasswordReset.objects.exists()
    shown = send(bearer(plain, "operate"), "POST", f"users/{acme.viewer.pk}/reset")
    assert (shown.status_code, shown.headers["Cache-Control"]) == (201, "no-store")
    assert stranger().get(link_of(shown.json()["link"])).status_code == 302
    given = send(bearer(plain, "operate"), "POST", f"users/{acme.viewer.pk}/reset", {"way": "password"}).json()
    assert present(stranger(), acme.viewer, given["password"]).headers["Location"] == "/login/password/"


class TestForgotten:
    """By e-mail, where there is a mail server; the answer tells nothing."""

    def test_is_not_there_without_a_mail_server(self) -> None:
        assert ask("a@acme.test").status_code == 404
        assert "Forgot" not in stranger().get("/login/").content.decode()

    def test_a_link_comes_by_mail(self, acme: House, mail_server: list[Any]) -> None:
        assert "Forgot your password?" in stranger().get("/login/").content.decode()
        ask(acme.owner.email.upper())
        (message,) = mail_server
        assert message.to == [acme.owner.email]
        assert "https://portal.acme.test/reset/" in message.body, "never the host that the asker names"
        browser = stranger()
        browser.get(link_of(message.body))
        assert browser.post("/reset/", {"password": OWN}).status_code == 302
        assert present(stranger(), acme.owner, OWN).status_code == 302

    def test_anybodys_question_ends_no_link_that_waits(
        self, acme: House, operator: User, mail_server: list[Any]
    ) -> None:
        by_operator = link_of(made(operator, acme.owner))
        for _ in range(2):
            ask(acme.owner.email)
        first, second = (link_of(message.body) for message in mail_server)
        browser = stranger()
        assert [browser.get(link).status_code for link in (by_operator, first, second)] == [302, 302, 302]
        assert browser.post("/reset/", {"password": OWN}).status_code == 302
        assert [stranger().get(link).status_code for link in (by_operator, first, second)] == [404, 404, 404]

    def test_few_links_wait_however_many_are_asked_for(
        self, acme: House, operator: User, mail_server: list[Any]
    ) -> None:
        made(operator, acme.owner)
        for _ in range(resets.MAILED + 3):
            resets.password_link_ask(email=acme.owner.email, now=timezone.now())
        waiting = PasswordReset.objects.filter(ended_at=None)
        assert (waiting.filter(made_by="").count(), waiting.exclude(made_by="").count()) == (resets.MAILED, 1)
        assert stranger().get(link_of(mail_server[-1].body)).status_code == 302

    def test_the_answer_is_the_same_for_everybody(self, acme: House, mail_server: list[Any]) -> None:
        disabled = factories.user("off@acme.test", status="disabled")
        elsewhere = factories.user("sso@acme.test")
        elsewhere.set_unusable_password()
        elsewhere.save()
        pages = set()
        for email in (acme.owner.email, "nobody@acme.test", disabled.email, elsewhere.email):
            answer = ask(email)
            text = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", answer.content.decode())
            pages.add((answer.status_code, text.replace(email, "")))
        assert len(pages) == 1
        assert [message.to for message in mail_server] == [[acme.owner.email]]

    def test_the_answer_does_what_it_does_for_everybody(
        self, acme: House, mail_server: list[Any], monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
    ) -> None:
        """Accounts are looked up by a worker alone: the page asks the database nothing."""
        sent: list[Any] = []
        monkeypatch.setattr("portal.tasks.password_link_ask.apply_async", lambda *given, **_: sent.append(given))
        for email in (acme.owner.email, "nobody@acme.test"):
            with django_assert_num_queries(0):
                assert ask(email).status_code == 200
        assert len(sent) == 2

    @pytest.mark.usefixtures("nothing_comes_back")
    def test_questions_are_limited_by_address_and_mails_by_account(self, acme: House, mail_server: list[Any]) -> None:
        browser = stranger()
        answers = [ask("nobody@acme.test", browser).status_code for _ in range(attempts.LINK_ADDRESS.burst + 1)]
        assert answers == [200] * attempts.LINK_ADDRESS.burst + [422]
        assert "try again in" in ask("x@acme.test", browser).content.decode()
        email = factories.user(f"{attempts.secrets.token_hex(4)}@acme.test").email
        assert [ask(email).status_code for _ in range(attempts.LINK_ACCOUNT.burst + 2)] == [200] * 5
        assert len(mail_server) == attempts.LINK_ACCOUNT.burst

    def test_an_operator_sends_a_link(self, acme: House, operator: User, mail_server: list[Any]) -> None:
        page = made(operator, acme.owner, "mail")
        assert "on its way" in page and "/reset/" not in page.replace(f"/users/{acme.owner.pk}/reset/", "")
        assert stranger().get(link_of(mail_server[0].body)).status_code == 302

    def test_a_server_that_does_not_take_it_is_said(
        self, acme: House, operator: User, mail_server: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise smtplib.SMTPRecipientsRefused({})

        monkeypatch.setattr("portal.signin.resets.send_mail", refuse)
        answer = signed_in(operator).post(f"/users/{acme.owner.pk}/reset/", {"way": "mail"})
        assert (answer.status_code, "Choose a link to copy" in answer.content.decode()) == (422, True)
