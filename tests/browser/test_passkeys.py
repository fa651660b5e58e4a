"""Passkeys in a real browser, by the keyboard alone: added, signed in by, asked for after the password (GW16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import factories
from tests.browser.test_accounts import typed
from tests.browser.window import Visit


def phone(window: Visit) -> None:
    """The browser's own authenticator, which knows its person at once: what the protocol of its tools offers."""
    tools = window.context.new_cdp_session(window.page)
    tools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    tools.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def test_a_phone_signs_in_instead_of_a_password_and_after_one(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    window = visit()
    phone(window)
    page = window.page
    window.sign_in(house["alice"])
    page.goto(f"{window.site}/profile/")
    page.get_by_role("link", name="Add a passkey").press("Enter")
    window.came("h1:text-is('Add a passkey')")
    window.check_in_every_look("passkey-new")
    page.focus("[name=name]")
    typed(window, "My phone", factories.PASSWORD)
    window.came("h1:text-is('Profile')")
    page.get_by_text("My phone", exact=True).wait_for()
    window.check_in_every_look("profile-passkey")

    window.context.clear_cookies()
    page.goto(f"{window.site}/login/?next=/workspaces/")
    page.get_by_role("link", name="Sign in with a passkey").press("Enter")
    window.came("h1:text-is('Sign in with a passkey')")
    window.check_in_every_look("login-passkey")
    page.locator("form[data-passkey] button:focus").wait_for()  # a browser gives it after the page is there
    page.keyboard.press("Enter")
    window.came("h1:text-is('Workspaces')")

    window.context.clear_cookies()
    page.goto(f"{window.site}/login/")
    typed(window, "alice@acme.test", factories.PASSWORD)
    window.came("h1:text-is('Second factor')")
    window.check_in_every_look("login-code-passkey")
    assert page.locator("[name=code]").count() == 0, "there is no app whose code could be asked for"
    page.locator("form[data-passkey] button:focus").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_selector("a.person")

    page.goto(f"{window.site}/profile/")
    page.get_by_role("link", name="Remove My phone").press("Enter")
    page.wait_for_selector("dialog[open] h2:text-is('Remove the passkey My phone')")
    window.check_in_every_look("dialog-passkey-remove")
    page.focus("dialog[open] [name=old]")
    typed(window, factories.PASSWORD)
    page.get_by_text("Your phone, browser or security key signs you in").wait_for()
    assert window.problems == []


def test_a_browser_without_one_says_so_and_leaves_the_password(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    window = visit()
    phone(window)
    window.page.goto(f"{window.site}/login/passkey/")
    window.page.locator("form[data-passkey] button:focus").wait_for()
    window.page.keyboard.press("Enter")
    window.page.get_by_role("alert").get_by_text("No passkey was given.").wait_for()
    window.check_in_every_look("login-passkey-none")
    window.page.get_by_role("link", name="Sign in by password").press("Enter")
    window.came("h1:text-is('Sign in')")
    assert window.problems == []
