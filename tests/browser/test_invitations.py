"""Invitations by a link, made and followed (GW14); a newcomer's whole way is in the stories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import factories
from tests.browser.window import Visit


def invited(window: Visit, email: str) -> str:
    """The link, made and copied by an owner on the page of members."""
    window.page.goto(f"{window.site}/tenants/acme/members/")
    window.page.get_by_role("link", name="Invite", exact=True).click()
    window.page.fill("dialog[open] [name=email]", email)
    window.page.click("dialog[open] [type=submit]")
    link = window.page.wait_for_selector("dialog[open] #invitation").text_content()
    window.check_in_every_look("invitation-created")
    window.page.click("dialog[open] [data-copy='#invitation']")
    window.page.wait_for_selector("dialog[open] #invitation[data-kept]")
    window.page.get_by_role("link", name="Done").click()
    window.page.wait_for_selector("h2:text-is('Invited, not here yet')")
    window.check_in_every_look("members-invited")
    return str(link)


def test_somebody_with_an_account_signs_in_on_the_way(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    person = factories.user("dora@elsewhere.test")
    owner, window = visit(), visit()
    owner.sign_in(house["alice"])
    window.page.goto(invited(owner, "dora@elsewhere.test"))
    window.page.locator("section").get_by_role("link", name="Sign in").click()
    window.page.fill("[name=username]", person.email)
    window.page.fill("[name=password]", factories.PASSWORD)
    window.page.keyboard.press("Enter")
    window.page.get_by_role("button", name="Accept").click()
    window.page.wait_for_selector("text=Welcome to acme.")
    assert person.memberships.get().tenant_id == "acme"
