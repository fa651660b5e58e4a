"""What opens accounts, with the keyboard alone: a given password, an app, sessions, a person's page (GW16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyotp
from django.utils import timezone

from portal.signin import resets
from tests import factories
from tests.browser.window import Visit
from tests.tenants.conftest import actor_of

OWN = "a long and windy road"


def typed(window: Visit, *texts: str) -> None:
    """Into the field that has the focus, and those that follow it; then Enter."""
    for number, text in enumerate(texts):
        if number:
            window.page.keyboard.press("Tab")
        window.page.wait_for_selector("input:focus")  # A page that has loaded gives it a moment later.
        window.page.keyboard.type(text)
    window.page.keyboard.press("Enter")


def sign_in(window: Visit, email: str, password: str, *, then: str) -> None:
    """Until ``then`` is on the page that follows: its fields are called as those of this one."""
    window.page.goto(f"{window.site}/login/")
    typed(window, email, password)
    window.page.wait_for_selector(then)


def test_an_operator_gives_a_password_and_its_person_chooses_another(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    desk, person = visit(), visit()
    desk.sign_in(house["operator"])
    desk.page.goto(f"{desk.site}/users/?q=alice")
    desk.page.get_by_role("link", name="alice@acme.test", exact=True).click()
    desk.came("h1:text-is('alice@acme.test')")
    desk.check_in_every_look("op-user")
    desk.page.get_by_role("link", name="Reset password").click()
    desk.page.wait_for_selector("dialog[open] h2:text-is('New password for alice@acme.test')")
    desk.check_in_every_look("dialog-reset")
    desk.page.check("dialog[open] [value=password]")
    desk.page.click("dialog[open] [type=submit]")
    given = desk.page.wait_for_selector("dialog[open] #given-password").text_content()
    desk.check_in_every_look("dialog-reset-made")
    sign_in(person, "alice@acme.test", str(given), then="h1:text-is('Choose your own password')")
    person.check_in_every_look("login-password")
    person.page.goto(f"{person.site}/workspaces/")
    assert "/login/" in person.page.url, "nothing else opens before"
    sign_in(person, "alice@acme.test", str(given), then="h1:text-is('Choose your own password')")
    person.page.focus("[name=password]")
    typed(person, OWN)
    person.page.wait_for_selector("a.person")
    assert desk.problems + person.problems == []


def test_an_app_is_set_up_and_asked_for(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window, other = visit(), visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/profile/")
    window.page.get_by_role("link", name="Set up", exact=True).click()
    secret = str(window.page.wait_for_selector("#secret").text_content()).replace(" ", "")
    window.check_in_every_look("factor")
    app = pyotp.TOTP(secret)
    window.page.focus("[name=code]")
    typed(window, app.now(), factories.PASSWORD)
    codes = str(window.page.wait_for_selector("#codes").text_content()).split()
    window.check_in_every_look("factor-codes")
    window.page.get_by_role("link", name="I have kept them").click()
    window.came("h1:text-is('Profile')")
    window.check_in_every_look("profile-factor")
    sign_in(other, "alice@acme.test", factories.PASSWORD, then="h1:text-is('Second factor')")
    other.check_in_every_look("login-code")
    typed(other, "000000")
    other.page.wait_for_selector("text=This code is wrong")
    other.expect_complaints(1)  # the refusal's own status
    other.page.focus("[name=code]")
    other.page.keyboard.press("Control+A")
    typed(other, codes[0])
    other.page.wait_for_selector("a.person")
    window.page.goto(f"{window.site}/profile/sessions/")
    window.check_in_every_look("sessions")
    window.page.get_by_role("link", name="End all others").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("dialog[open] h2:text-is('End all other sessions')")
    window.page.get_by_role("button", name="End all others").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("text=Your other sessions are over.")
    other.page.goto(f"{other.site}/workspaces/")
    assert "/login/" in other.page.url
    assert window.problems + other.problems == []


def test_operators_set_one_up_on_the_way_in(visit: Callable[..., Visit], house: dict[str, Any], settings: Any) -> None:
    settings.SECOND_FACTOR_FOR_OPERATORS = True
    window = visit()
    sign_in(window, "olga@platform.test", factories.PASSWORD, then="#secret")
    secret = str(window.page.wait_for_selector("#secret").text_content()).replace(" ", "")
    window.check_in_every_look("login-factor")
    window.page.focus("[name=code]")
    typed(window, pyotp.TOTP(secret).now())
    window.came("h1:text-is('Recovery codes')")
    window.check_in_every_look("login-codes")
    window.page.get_by_role("button", name="I have kept them").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("a.person")
    assert window.problems == []


def test_a_forgotten_password_is_asked_for_and_set_by_a_link(
    visit: Callable[..., Visit], house: dict[str, Any], settings: Any
) -> None:
    settings.EMAIL_URL = "smtp://mail.test"
    window = visit()
    window.page.goto(f"{window.site}/login/")
    window.page.get_by_role("link", name="Forgot your password?").click()
    window.came("h1:text-is('Forgot your password?')")
    window.check_in_every_look("forgotten")
    typed(window, "alice@acme.test")
    window.page.wait_for_selector("text=Look into your mail")
    window.check_in_every_look("forgotten-asked")
    made = resets.password_link_create(actor=actor_of(house["operator"]), user_id=house["alice"].pk, now=timezone.now())
    window.page.goto(f"{window.site}/reset/{made.secret}/")
    assert window.page.url == f"{window.site}/reset/", "the secret stays in no address"
    window.check_in_every_look("reset")
    window.page.focus("[name=password]")
    typed(window, OWN)
    window.page.wait_for_selector("text=The password is set.")
    window.page.focus("[name=username]")
    typed(window, "alice@acme.test", OWN)
    window.page.wait_for_selector("a.person")
    assert window.problems == []


def test_all_access_ends_in_one_dialog_with_a_receipt(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    desk, person = visit(), visit()
    person.sign_in(house["alice"])
    desk.sign_in(house["operator"])
    desk.page.goto(f"{desk.site}/users/{house['alice'].pk}/")
    desk.page.get_by_role("link", name="End all access").click()
    desk.page.wait_for_selector("dialog[open] h2:text-is('End all access of alice@acme.test')")
    desk.check_in_every_look("dialog-end")
    desk.page.fill("dialog[open] [name=name]", "alice@acme.test")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_selector("dialog[open] h2:text-is('All access has ended')")
    desk.check_in_every_look("dialog-ended")
    desk.page.get_by_role("link", name="Done").click()
    desk.page.wait_for_selector("text=Disabled")
    desk.check_in_every_look("op-user-disabled")
    person.page.goto(f"{person.site}/workspaces/")
    assert "/login/" in person.page.url
    assert desk.problems + person.problems == []
