"""What only a browser can tell: the policy holds, nothing is inaccessible, nothing sticks out, dialogs work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests import factories
from tests.browser.window import Visit


def member_pages(house: dict[str, Any]) -> dict[str, str]:
    return {
        "overview": "/",
        "workspaces": "/workspaces/",
        "workspace-new": "/workspaces/new/",
        "workspace": f"/workspaces/{house['web'].pk}/",
        "workspace-progress": f"/workspaces/{house['staging'].pk}/",
        "tenant": "/tenants/acme/",
        "members": "/tenants/acme/members/",
        "in-pods-now": "/connections/",
        "recordings": "/recordings/",
        "requests": "/tenants/acme/requests/",
        "tokens": "/tokens/",
        "audit": "/audit/?chain=acme",
        "explain": "/explain/",
        "profile": "/profile/",
        "docs": "/api/docs/",
        "missing": "/nothing/",
    }


def operator_pages(house: dict[str, Any]) -> dict[str, str]:
    return {
        "op-overview": "/",
        "op-workspace-suspended": f"/workspaces/{house['closed'].pk}/",
        "op-tenants": "/tenants/",
        "op-tiers": "/tiers/",
        "op-tier": "/tiers/basic/",
        "op-clusters": "/clusters/",
        "op-cluster": "/clusters/ber-2/",
        "op-cluster-new": "/clusters/new/",
        "op-cluster-credential": "/clusters/ber-2/credential/",
        "op-users": "/users/",
        "op-audit": "/audit/",
    }


def test_every_page_is_accessible_keeps_the_policy_and_fits(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    """GW11, GW14: no violation of the policy, none of axe's rules, no horizontal scrolling; light, dark, phone."""
    stranger = visit()
    stranger.page.goto(f"{stranger.site}/login/")
    stranger.check_in_every_look("login")
    assert stranger.problems == []
    for person, pages in ((house["alice"], member_pages(house)), (house["operator"], operator_pages(house))):
        window = visit()
        window.sign_in(person)
        for name, path in pages.items():
            window.page.goto(window.site + path)
            if name == "missing":
                window.expect_complaints(1)
            window.check_in_every_look(name)
        assert window.problems == []


def test_a_recording_plays_by_the_keyboard_in_the_colours_of_the_page(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    """GW21: by a player of ours, under the policy; what was shown can be read as text, and taken away as a file."""
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/recordings/")
    window.page.get_by_role("link", name="Play the session of").click()
    play = window.page.get_by_role("button", name="Play", exact=True)
    play.wait_for()
    window.page.locator(".asciinema-player-theme-tenantry-light").wait_for()
    window.check_in_every_look("recording")
    window.look("dark")
    window.page.locator(".asciinema-player-theme-tenantry-dark").wait_for()
    play.focus()
    window.page.keyboard.press("Enter")
    window.page.locator(".ap-term-text", has_text="notes.txt").wait_for()
    window.page.get_by_text("Read it as text").click()
    text = window.page.get_by_role("region", name="What was shown, as text")
    assert text.text_content() == "$ ls\nnotes.txt  gr\u00fc\u00dfe.txt\n$ "
    with window.page.expect_download() as download:
        window.page.get_by_role("link", name="Download .cast").click()
    assert download.value.suggested_filename == f"{house['played'].pk}.cast"
    window.check("recording-played")
    assert window.problems == []


def test_dialogs_open_by_click_and_close_by_escape(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["operator"])
    window.page.goto(f"{window.site}/workspaces/{house['web'].pk}/")
    for link, title in (
        ("Suspend", "Suspend web"),
        ("Delete workspace", "Delete web"),
        ("Change tier", "Change the tier of web"),
        ("Get kubeconfig", "Kubeconfig for web"),
    ):
        window.page.get_by_role("link", name=link, exact=True).click()
        window.page.wait_for_selector(f"dialog[open] h2:text-is('{title}')")
        window.check_in_every_look(f"dialog-{link.split()[0].lower()}")
        window.page.keyboard.press("Escape")
        window.page.wait_for_selector("dialog[open]", state="detached")
    assert window.problems == []


def test_what_is_shown_once_is_not_lost_by_a_slip(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    """A click beside the dialog and Escape close it only after the token was copied; its button always does."""
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/tokens/")
    window.page.get_by_role("link", name="New token").first.click()
    window.page.fill("dialog[open] [name=name]", "pipeline")
    window.page.click("dialog[open] [type=submit]")
    token = window.page.wait_for_selector("dialog[open] #token").text_content()
    window.page.mouse.click(2, 2)
    window.page.wait_for_selector("text=This is shown once")
    window.page.keyboard.press("Escape")
    assert window.page.text_content("dialog[open] #token") == token
    window.page.click("dialog[open] [data-copy='#token']")
    window.page.wait_for_selector("dialog[open] #token[data-kept]")
    window.page.keyboard.press("Escape")
    window.page.wait_for_selector("dialog[open]", state="detached")


def test_a_session_that_ended_is_asked_for_on_a_page_of_its_own(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    """The sign-in page is not put into a dialog, and leads back to the page that the dialog stood on."""
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/tenants/acme/members/")
    window.context.clear_cookies()
    window.page.get_by_role("link", name="Add member").click()
    window.came("h1:text-is('Sign in')")
    assert window.page.locator("dialog[open]").count() == 0
    assert "next=%2Ftenants%2Facme%2Fmembers%2F" in window.page.url


def test_deletion_waits_for_the_typed_name(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/workspaces/{house['web'].pk}/")
    window.page.get_by_role("link", name="Delete workspace").click()
    submit = window.page.locator("dialog[open] [type=submit]")
    window.page.locator("dialog[open] [name=name]").type("we")
    assert submit.is_disabled()
    window.page.locator("dialog[open] [name=name]").type("b")
    submit.click()
    window.page.wait_for_selector("text=web is being deleted.")
    house["web"].refresh_from_db()
    assert house["web"].status == "deleted"


def test_refusal_of_a_service_is_shown_in_the_dialog(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/tenants/acme/members/")
    window.page.get_by_role("link", name="Add member").click()
    window.page.fill("dialog[open] [name=email]", "nobody@acme.test")
    window.page.click("dialog[open] [type=submit]")
    window.page.wait_for_selector("dialog[open] >> text=Nobody has an account with this address")
    assert window.complaints == []


def test_palette_finds_and_goes(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    window.page.keyboard.press("Control+k")
    window.page.wait_for_selector("dialog[open] input:focus")
    window.page.keyboard.type("payments")
    # As the first: Enter goes there, and what is typed half already finds pages before it.
    window.page.wait_for_selector("dialog[open] li:first-child >> text=payments-staging")
    window.check("light-palette")
    assert window.problems == []
    window.page.keyboard.press("Enter")
    window.came("h1:text-is('payments-staging')")


def test_theme_switch_is_remembered_by_the_server(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    switch = window.page.get_by_role("button", name="Switch theme")
    switch.click()
    switch.click()
    window.page.reload()
    assert window.page.get_attribute("html", "data-theme") == "dark"


def test_progress_follows_the_worker_and_ends_in_a_ready_page(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    """GW6: live steps without a reload by hand."""
    window = visit()
    window.sign_in(house["alice"])
    staging = house["staging"]
    window.page.goto(f"{window.site}/workspaces/{staging.pk}/")
    window.page.wait_for_selector("#progress[aria-busy=true]")
    staging.operations.update(state="done")
    type(staging).objects.filter(pk=staging.pk).update(phase="ready", observed_generation=1)
    window.page.wait_for_selector("#progress", state="detached")
    assert window.page.locator("h1 + .badge").inner_text() == "Ready"


def test_keyboard_reaches_the_content_first(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/workspaces/")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.textContent") == "Skip to content"
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(re.compile("#main$"))


def test_token_is_copied_from_the_page_that_shows_it_once(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/tokens/")
    window.page.get_by_role("link", name="New token").click()
    window.page.fill("dialog[open] [name=name]", "pipeline")
    window.page.click("dialog[open] [type=submit]")
    window.page.wait_for_selector("dialog[open] #token")
    window.check("light-token-created")
    assert window.problems == []
    window.page.click("dialog[open] [data-copy='#token']")
    window.page.wait_for_selector("text=Copied")
    assert window.page.evaluate("navigator.clipboard.readText()").startswith("tnt_")


def test_sign_in_by_password_and_out_again(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.page.goto(f"{window.site}/workspaces/")
    window.page.fill("[name=username]", "alice@acme.test")
    window.page.fill("[name=password]", "wrong")
    window.page.get_by_role("button", name="Sign in").click()
    window.page.wait_for_selector("text=The e-mail address or the password is wrong.")
    window.page.fill("[name=password]", factories.PASSWORD)
    window.page.get_by_role("button", name="Sign in").click()
    window.came("h1:text-is('Workspaces')")
    window.page.get_by_role("button", name="Sign out").click()
    window.came("h1:text-is('Sign in')")
