"""Whatever changes about how an account is opened, its person is told: by notice and by e-mail, whoever did it (GW16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyotp
import pytest
from django.core import mail
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditEntry
from audit.recorder import Actor
from portal.notices.sending import notices_send
from portal.signin import accounts, factors, passkeys, resets
from tenants.models import Membership, NoticeKind, Notification, Role, User
from tenants.services import membership_set
from tenants.services.notices import WAYS, notices_choose
from tests import factories
from tests.portal.authenticator import Authenticator
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_passkeys import added
from tests.portal.test_requests import actor

NEW = "a long and windy road"
CHANGES = {Action.PASSKEY_ADDED, Action.PASSKEY_REMOVED, Action.FACTOR_ADDED, Action.FACTOR_REMOVED}
CHANGES |= {Action.RECOVERY_CODES_MADE, Action.PASSWORD_GIVEN, Action.USER_CHANGED}


def _app(by: Actor, person: User) -> None:
    secret = factors.secret_new()
    factors.factor_add(actor=by, user=person, secret=secret, code=pyotp.TOTP(secret).now(), now=timezone.now())


def _passkey_off(by: Actor, person: User) -> None:
    passkeys.passkey_remove(actor=by, user=person, passkey_id=factories.passkey(person).pk)


def _codes(by: Actor, person: User) -> None:
    _app(by, person)
    factors.recovery_codes_renew(actor=by, user=person)


def _app_off(by: Actor, person: User) -> None:
    _app(by, person)
    factors.factor_remove(actor=by, user_id=person.pk)


OWN: dict[str, Callable[[Actor, User], object]] = {
    "passkey.add": lambda _, person: added(person, Authenticator()),
    "passkey.remove": _passkey_off,
    "factor.add": _app,
    "factor.remove": _app_off,
    "factor.codes": _codes,
    "user.change": lambda by, person: accounts.password_change(actor=by, user=person, password=NEW),
}


def heard(person: User) -> list[str]:
    notices_send(now=timezone.now())
    rows = Notification.objects.filter(user=person, kind=NoticeKind.ACCOUNT_CHANGED)
    return list(rows.order_by("created_at", "id").values_list("text", flat=True))


@pytest.mark.parametrize("action", OWN)
def test_what_is_done_in_a_session_is_told_though_everything_was_turned_off(
    acme: House, settings: Any, action: str
) -> None:
    """It may be somebody else who sits in it: they can hush nothing."""
    settings.EMAIL_IS_SET = True
    person = acme.viewer
    by = replace(actor(person), ip="203.0.113.7")
    notices_choose(actor=by, user=person, wanted=[])
    stale = User.objects.get(pk=person.pk)
    assert not [each for each in stale.notices_off if each.startswith(NoticeKind.ACCOUNT_CHANGED)]
    User.objects.filter(pk=person.pk).update(notices_off=[f"{NoticeKind.ACCOUNT_CHANGED}/{way}" for way in WAYS])
    OWN[action](by, person)
    assert AuditEntry.objects.filter(action=action, target=f"users/{person.pk}").exists()
    said = heard(person)
    assert said, "a notice"
    assert "your account" in said[-1] or "password" in said[-1]
    assert len(mail.outbox) == len(said)
    assert {message.to[0] for message in mail.outbox} == {person.email}
    assert said[-1] in mail.outbox[-1].body
    assert "/profile/" in mail.outbox[-1].body
    if action != "passkey.add":
        assert "from 203.0.113.7" in said[-1]


def test_nothing_that_others_do_pushes_it_out(acme: House, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a tenant of their own can have anybody told as much as they like: neither row nor e-mail goes for it."""
    monkeypatch.setattr("tenants.services.notices.KEPT_OF_PERSON", 3)
    settings.EMAIL_IS_SET = True
    person, owner = acme.viewer, actor(acme.owner)
    _codes(actor(person), person)
    for number in range(6):
        membership_set(actor=owner, tenant="acme", user=person, role=[Role.EDITOR, Role.VIEWER][number % 2])
    assert len(heard(person)) == 2
    assert Notification.objects.filter(user=person).count() == 5
    assert sum("recovery codes" in message.body for message in mail.outbox) == 2


def test_what_an_operator_does_is_told_with_who_it_was(acme: House, operator: User) -> None:
    factories.passkey(acme.viewer)
    bearer(acme.viewer)
    resets.password_give(actor=actor(operator), user_id=acme.viewer.pk, now=timezone.now())
    words = " ".join(heard(acme.viewer))
    assert f"You were given another password by {operator.email}" in words
    assert f"all passkeys were removed from your account by {operator.email}" in words
    assert f"The access tokens of your account were revoked by {operator.email}" in words
    assert not heard(operator)


def test_a_recovery_code_that_opens_an_account_is_told_and_a_code_of_the_app_is_not(acme: House) -> None:
    """Whoever has the phone needs none: it may be somebody else who found the list."""
    person, now = acme.viewer, timezone.now()
    by = replace(actor(person), ip="203.0.113.7")
    secret = factors.secret_new()
    codes = factors.factor_add(actor=by, user=person, secret=secret, code=pyotp.TOTP(secret).at(now), now=now)
    told = len(heard(person))
    later = now + timedelta(minutes=1)
    assert factors.code_use(actor=by, user=person, code=pyotp.TOTP(secret).at(later), now=later) == "app"
    assert factors.code_use(actor=by, user=person, code="nothing-at-all", now=later) == ""
    assert len(heard(person)) == told
    assert factors.code_use(actor=by, user=person, code=codes[0], now=later) == "recovery code"
    assert factors.code_use(actor=by, user=person, code=codes[0], now=later) == ""
    assert len(heard(person)) == told + 1
    assert f"A recovery code opened your account, {len(codes) - 1} are left, from 203.0.113.7" in heard(person)[-1]


@pytest.mark.parametrize("way", ["page", "rest"])
def test_an_access_token_that_was_made_is_told_and_its_end_is_not(acme: House, settings: Any, way: str) -> None:
    """It opens the account without the password, and whoever sits in a session makes one: its person can end it."""
    settings.EMAIL_IS_SET = True
    User.objects.filter(pk=acme.viewer.pk).update(notices_off=[f"{NoticeKind.ACCOUNT_CHANGED}/{each}" for each in WAYS])
    browser, until = signed_in(acme.viewer, REMOTE_ADDR="203.0.113.7"), timezone.now() + timedelta(days=30)
    if way == "page":
        form = {"name": "harvest", "scope": "read", "days": "30", "tenant": ""}
        assert browser.post("/tokens/new/", form).status_code == 200
    else:
        body = {"name": "harvest", "scope": "read", "expires_at": until.isoformat()}
        assert send(browser, "POST", "tokens/", body).status_code == 201
    (said,) = heard(acme.viewer)
    assert (
        f"The access token “harvest” (read) opens your account until {until:%Y-%m-%d}, or until you revoke it" in said
    )
    assert "from 203.0.113.7" in said
    (message,) = mail.outbox
    assert (message.to, said in message.body) == ([acme.viewer.email], True)
    assert browser.post(f"/tokens/{acme.viewer.access_tokens.get().pk}/revoke/").status_code == 302
    assert heard(acme.viewer) == [said]


def test_whatever_is_recorded_of_an_accounts_opening_is_told(acme: House) -> None:
    """A new kind of event about passkeys, factors or passwords needs a row above."""
    about = {action for action in Action if action.value.split(".")[0] in ("passkey", "factor", "password")}
    assert about - {Action.PASSWORD_LINK_MADE} == CHANGES - {Action.USER_CHANGED}
    assert {Action(each) for each in OWN} == CHANGES - {Action.PASSWORD_GIVEN}


def test_after_a_change_of_the_password_what_still_opens_the_account_is_named(acme: House) -> None:
    for name in ("Phone", "Stick", "Laptop", "Watch"):
        factories.passkey(acme.viewer, name=name)
    browser = signed_in(acme.viewer)
    answer = browser.post("/profile/password/", {"old": factories.PASSWORD, "password": NEW})
    assert answer.headers["Location"] == "/profile/#passkeys"
    page = browser.get("/profile/").content.decode()
    assert "the passkeys “Phone”, “Stick”, “Laptop” and 1 more still sign you in: look through them" in page
    assert "still sign you in" in heard(acme.viewer)[-1]
    bearer(acme.owner)
    third = signed_in(acme.owner)
    third.post("/profile/password/", {"old": factories.PASSWORD, "password": NEW})
    assert "access tokens still work for you (1): revoke those" in third.get("/profile/").content.decode()
    assert "access tokens still work for you (1): revoke those" in heard(acme.owner)[-1]
    Membership.objects.filter(user=acme.viewer).delete()
    other = signed_in(acme.editor)
    answer = other.post("/profile/password/", {"old": factories.PASSWORD, "password": NEW})
    assert answer.headers["Location"] == "/profile/"
