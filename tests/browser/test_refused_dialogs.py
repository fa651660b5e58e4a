"""What is refused while a dialog is open, and while a page asks by itself: heard, once, and nothing typed is lost (GW14)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tenants import actionlimits
from tenants.actionlimits import Bucket
from tenants.suspensions import installation_close, installation_open
from tests.browser.window import Visit

CLOSED = "Restored from a backup: ask Olga."
TOAST = "dialog[open] .toast"


def pace(monkeypatch: pytest.MonkeyPatch, times: int) -> Bucket:
    """Let everybody send so much within an hour, from now on."""
    bucket = Bucket(f"writes-{secrets.token_hex(4)}", burst=times, interval=3600)
    monkeypatch.setattr(actionlimits, "WRITES", bucket)
    return bucket


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_dialog_keeps_what_was_typed_and_says_why(
    visit: Callable[..., Visit], house: dict[str, Any], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    window = visit()
    window.sign_in(house["alice"])
    page = window.page
    page.goto(f"{window.site}/tenants/acme/members/")
    page.get_by_role("link", name="Invite", exact=True).click()
    page.fill("dialog[open] [name=email]", "newt@acme.test")
    if status == 503:
        installation_close(CLOSED)
    else:
        actionlimits.take(pace(monkeypatch, 1), house["alice"].pk)
    for _ in range(2):
        with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
            page.click("dialog[open] [type=submit]")
        assert answered.value.status == status
        page.wait_for_selector(f"{TOAST}[data-verdict=deny]")
    assert page.locator(".toast").count() == 1, "the same words are said once"
    said = page.locator(f"{TOAST} [data-text]").inner_text()
    assert (said == CLOSED) if status == 503 else ("try again" in said.lower())
    window.expect_complaints(4)  # the browser's and htmx's, of each of two requests that failed
    window.check_in_every_look(f"dialog-refused-{status}")
    page.get_by_role("button", name="Dismiss").click()
    page.locator(".toast").wait_for(state="detached")
    assert page.input_value("dialog[open] [name=email]") == "newt@acme.test"
    # A dialog that closes takes nothing with it that is still to be said.
    page.click("dialog[open] [type=submit]")
    page.wait_for_selector(TOAST)
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_selector("body > .toasts .toast")
    if status == 503:
        installation_open()
    else:
        pace(monkeypatch, 100)
    page.get_by_role("link", name="Invite", exact=True).click()
    page.fill("dialog[open] [name=email]", "newt@acme.test")
    page.click("dialog[open] [type=submit]")
    page.wait_for_selector("dialog[open] #invitation")
    assert window.problems == []


def test_a_page_that_asks_by_itself_says_once_that_nobody_answers(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    window = visit()
    window.sign_in(house["alice"])
    page = window.page
    page.goto(f"{window.site}/workspaces/{house['staging'].pk}/")
    page.wait_for_selector("#progress[aria-busy=true]")
    polls = f"/workspaces/{house['staging'].pk}/progress/"
    installation_close(CLOSED)
    for _ in range(3):
        with page.expect_response(lambda answer: answer.url.endswith(polls) and answer.status == 503):
            pass
    page.get_by_text("No answer", exact=True).wait_for()
    assert page.locator(".toast").count() == 0
    installation_open()
    page.get_by_text("No answer", exact=True).wait_for(state="hidden")
