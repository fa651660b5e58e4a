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
            window.complaints.clear()
        window.check_in_every_look(f"contents-{name}")
    window.page.goto(f"{window.site}/workspaces/{house.workspace.pk}/")
    window.page.wait_for_selector("text=Look at everything that is here")
    window.check_in_every_look("contents-of-workspace")
    assert window.problems == []
