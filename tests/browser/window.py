"""A window of Chromium in which a person works, and that notices what is wrong with what it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from django.test import Client

from tenants.models import User

PICTURES = os.environ.get("TENANTRY_PICTURES", "")
"""A folder to leave pictures of every page in, for eyes."""

LOOKS = {"light": ("light", 1440, 900), "dark": ("dark", 1440, 900), "phone": ("light", 390, 844)}
"""Colours, width and height. A page is loaded once and then looked at in each."""

PATIENCE = 300_000
"""Milliseconds after which a test gives up what it waits for."""


def came(page: Any, selector: str, state: str = "visible") -> None:
    """Wait for a page, or a part of one, that a click leads to, and until its scripts have seen it.

    Before that a link to a dialog is a link to a page, Enter in a field sends its form, and some buttons do nothing.
    """
    page.wait_for_selector(selector, state=state)
    page.wait_for_load_state()
    page.wait_for_selector(".htmx-added", state="detached")


class Visit:
    """A signed-in browser window that remembers what the page complained about."""

    def __init__(self, browser: Any, site: str) -> None:
        self.site = site
        self.context = browser.new_context(reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"])
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.look("light")
        self.complaints: list[str] = []
        self.problems: list[str] = []
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in {"error", "warning"} else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def sign_in(self, user: User) -> None:
        """By a session of the server's own making: the sign-in page is one test's affair and counts attempts."""
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": self.site}])
        self.page.goto(self.site)

    def came(self, selector: str, state: str = "visible") -> None:
        """Wait for the page that a click leads to; see ``came``."""
        came(self.page, selector, state)

    def filled(self) -> None:
        """Wait for the parts that a page asks for by itself once it is there."""
        self.page.wait_for_load_state()
        self.page.wait_for_selector(".htmx-request, .htmx-added", state="detached")

    def look(self, look: str) -> None:
        """Change colours and size, as a person does who switches the theme or turns the phone."""
        scheme, width, height = LOOKS[look]
        self.page.emulate_media(color_scheme=scheme)
        self.page.set_viewport_size({"width": width, "height": height})

    def check_in_every_look(self, name: str) -> None:
        """All of ``check``, light, dark and on a phone; back to light."""
        for look in LOOKS:
            self.look(look)
            self.check(f"{look}-{name}")
        self.look("light")

    def expect_complaints(self, times: int) -> None:
        """Wait for those that are to be expected, and forget them: the console hears of an answer after the page does."""
        while len(self.complaints) < times:
            self.page.wait_for_event("console")
        self.complaints.clear()

    def check(self, name: str) -> None:
        """Nothing complained, axe is content, nothing is wider than the window."""
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(
                path=f"{PICTURES}/{name}.png", full_page=self.page.locator("dialog[open]").count() == 0
            )
        found = [f"{name} complains: {text}" for text in self.complaints]
        self.complaints.clear()
        too_wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if too_wide > 0:
            found.append(f"{name} is {too_wide} px too wide")
        found += [
            f"{name} {violation['id']}: {[node['html'][:140] for node in violation['nodes'][:3]]}"
            for violation in self.violations()
        ]
        self.problems += found

    def violations(self) -> list[dict[str, Any]]:
        """What axe finds by all of its rules; its script is put into a page once."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        found: list[dict[str, Any]] = self.page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        return found
