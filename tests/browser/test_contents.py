"""The contents of a workspace in a real browser: every page in every look, by the keyboard, alive (GW27, GW11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.browser.window import Visit
from tests.clusters import TestCluster
from tests.portal.inhabited import HOSTILE, Inhabited, deployment, inhabited, pod, secret


@pytest.fixture
def house(transactional_db: None, settings: Any, request: pytest.FixtureRequest) -> Inhabited:
    """Instead of the house of all other pages: one with an API server behind it."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    embedded: TestCluster = request.getfixturevalue("embedded")
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    return inhabited(embedded, "acme")


def test_every_page_fits_and_is_accessible(visit: Callable[..., Visit], house: Inhabited) -> None:
    window = visit()
    window.sign_in(house.people["editor"])
    window.page.goto(window.site + house.url())
    window.check_in_every_look("contents-empty")
    house.put(
        deployment("web", note=HOSTILE),
        *(pod(f"web-7d4b9c6f5-x2kq{number}") for number in "abcdefg"),
        pod("told", told=HOSTILE),
        secret("keys", token="c2VjcmV0"),
    )
    pages = {
        "contents": "",
        "pods": "pods/",
        "pods-none": "pods/?q=nothing",
        "events": "events/",
        "deployment": "deployments.apps/web/",
        "pod": "pods/told/",
        "logs": "pods/told/logs/",
        "secret": "secrets/keys/",
        "gone": "pods/nobody/",
    }
    for name, path in pages.items():
        window.page.goto(window.site + house.url(path))
        if name == "gone":
            window.expect_complaints(1)
        window.check_in_every_look(f"contents-{name}")
    window.page.goto(f"{window.site}/workspaces/{house.workspace.pk}/")
    window.page.wait_for_selector("text=Look at everything that is here")
    window.check_in_every_look("contents-of-workspace")
    assert window.problems == []


def test_a_list_lives_is_paused_and_leads_on_by_the_keyboard(visit: Callable[..., Visit], house: Inhabited) -> None:
    """What comes is shown without a reload, the focus stays, a paused list stands still, and a dialog asks first."""
    house.put(pod("web-1"))
    window = visit()
    window.sign_in(house.people["editor"])
    window.page.goto(window.site + house.url("pods/"))
    window.page.focus("#to-web-1")
    house.put(pod("web-2"))
    window.page.wait_for_selector("td >> text=web-2")
    assert window.page.evaluate("document.activeElement.textContent") == "web-1"
    window.page.get_by_role("button", name="Live").click()
    window.page.wait_for_selector("button[aria-pressed=false]:has-text('Paused')")
    with window.page.expect_response(lambda answer: "pods/" in answer.url and "seen=" in answer.url):
        window.page.get_by_role("button", name="Paused").click()
    window.page.focus("#to-web-2")
    window.page.keyboard.press("Enter")
    window.came("h1:has-text('web-2')")
    window.page.get_by_role("link", name="Delete").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("dialog[open] h2:text-is('Delete web-2')")
    window.check_in_every_look("contents-delete")
    window.page.locator("dialog[open] [type=submit]").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("text=web-2 is being deleted.")
    assert window.problems == []
