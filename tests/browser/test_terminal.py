"""A terminal in a container, in a real browser: opened by a ticket, used by the keyboard, ended with the reason (GW27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tenants.models import Cluster, User, Workspace
from tests import factories
from tests.browser.window import Visit
from tests.gateway.callers import eventually
from tests.podserver import PodServer, pod_server
from tests.portalserver import served_portal

SAID = "[data-terminal-said]"
ROWS = ".xterm-rows"


@dataclass
class Entered:
    """A workspace with one pod, its editor, and the API server that lets into it."""

    workspace: Workspace
    editor: User
    viewer: User
    pods: PodServer

    def url(self, path: str = "terminal/") -> str:
        return f"/workspaces/{self.workspace.pk}/contents/pods/web-1/{path}"


@pytest.fixture
def house(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Entered]:
    """Instead of the house of all other pages: one pod."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "key.pem"
    (tmp_path / "key.pem").write_bytes(key)
    acme = factories.tenant("acme")
    editor, viewer = (
        factories.member(acme, role, factories.user(f"{role}@acme.test")) for role in ("editor", "viewer")
    )
    with pod_server() as pods:
        authority = pods.cluster.ca.cert_pem.bytes().decode()
        factories.cluster(
            "own", kind=Cluster.Kind.EMBEDDED, server=pods.cluster.url, ca_data=authority, is_default=False
        )
        yield Entered(factories.workspace(acme, editor, "shop"), editor, viewer, pods)


@pytest.fixture
def site(house: Entered) -> Iterator[str]:
    """The portal as uvicorn serves it: Django's own server for tests knows no WebSockets."""
    with served_portal() as (url, _):
        yield url


def until(window: Visit, selector: str, text: str) -> None:
    window.page.locator(selector, has_text=text).wait_for()


def test_a_shell_is_opened_used_and_left_by_the_keyboard(visit: Callable[..., Visit], house: Entered) -> None:
    window = visit()
    window.sign_in(house.editor)
    page, keys = window.page, window.page.keyboard
    page.goto(window.site + house.url(""))
    page.get_by_role("link", name="Terminal").focus()
    keys.press("Enter")
    window.came("h1:has-text('Terminal in web-1')")
    window.check_in_every_look("terminal-closed")
    page.get_by_label("Container", exact=True).focus()
    keys.type("side")
    assert page.get_by_label("Container", exact=True).input_value() == "sidecar"
    page.get_by_label("Command", exact=True).focus()
    keys.press("Control+A")
    keys.type("bash -l")
    keys.press("Enter")
    until(window, SAID, "Open.")
    assert page.evaluate("document.activeElement.className") == "xterm-helper-textarea"
    keys.type("hello\r")
    until(window, ROWS, "HELLO")
    assert house.pods.asked == [
        f"/api/v1/namespaces/{house.workspace.k8s_namespace}/pods/web-1/exec"
        "?container=sidecar&command=bash&command=-l&stdin=true&stdout=true&tty=true"
    ]
    keys.type("hostile\r")
    until(window, ROWS, "true colours")
    assert page.title().startswith("Terminal in web-1")
    assert page.evaluate("navigator.clipboard.readText()") != "stolen"
    window.check_in_every_look("terminal")
    page.set_viewport_size({"width": 700, "height": 800})
    # Not by wait_for_function: it asks again by an eval of its own, which the page's policy refuses.
    assert eventually(lambda: 400 < page.evaluate(f"document.querySelector('{ROWS}').offsetWidth") < 700)
    keys.type("size\r")
    assert eventually(
        lambda: "{Height} {Width}".format(**house.pods.sizes[-1]) in (page.locator(ROWS).text_content() or "")
    )
    assert house.pods.sizes[-1]["Width"] < house.pods.sizes[0]["Width"]

    page.evaluate("navigator.clipboard.writeText('pasted')")
    keys.press("Control+Shift+V")
    until(window, ROWS, "pasted")
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "xterm-helper-textarea", "Tab belongs to the shell"
    keys.press("Shift+F6")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Close"
    assert eventually(lambda: b"\t" in house.pods.typed)
    keys.press("Enter")
    until(window, SAID, "Closed.")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Open"
    assert window.problems == []


def test_what_is_selected_is_copied_and_what_a_reader_hears_is_there(
    visit: Callable[..., Visit], house: Entered
) -> None:
    window = visit()
    window.sign_in(house.editor)
    window.page.goto(window.site + house.url())
    window.page.get_by_label("For a screen reader").check()
    window.page.get_by_role("button", name="Open").click()
    until(window, SAID, "Open.")
    window.page.keyboard.type("heard\r")
    window.page.locator(".xterm-accessibility", has_text="HEARD").wait_for()
    window.check_in_every_look("terminal-read")
    window.page.locator(".xterm-screen").dblclick(position={"x": 30, "y": 8})
    window.page.keyboard.press("Control+Shift+C")
    window.page.locator("text=Copied").wait_for()
    assert window.page.evaluate("navigator.clipboard.readText()") == "heard"
    window.page.reload()
    assert window.page.get_by_label("For a screen reader").is_checked(), "it is remembered in the browser"
    assert window.problems == []


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("exit", "The command has ended."),
        ("exit 5", "The command has ended with the exit status 5."),
        ("die", "The connection was lost"),
    ],
)
def test_the_end_says_why(visit: Callable[..., Visit], house: Entered, typed: str, sentence: str) -> None:
    window = visit()
    window.sign_in(house.editor)
    window.page.goto(window.site + house.url())
    for _ in range(2):
        window.page.get_by_role("button", name="Open").click()
        until(window, SAID, "Open.")
        window.page.keyboard.type(f"{typed}\r")
        until(window, SAID, sentence)
        assert window.page.evaluate("document.activeElement.textContent.trim()") == "Open", "one press opens it again"


def test_what_is_refused_is_said_in_the_words_of_who_refuses(visit: Callable[..., Visit], house: Entered) -> None:
    window = visit()
    window.sign_in(house.editor)
    window.page.goto(window.site + house.url())
    house.pods.refusal = 503, "this session has to be recorded, and its recording cannot be kept"
    window.page.get_by_role("button", name="Open").click()
    until(window, SAID, "Ended: this session has to be recorded, and its recording cannot be kept")
    house.pods.may = False
    window.page.get_by_role("button", name="Open").click()
    until(window, SAID, "Not opened: Your role in the tenant does not let you into pods")
    window.page.reload()
    until(window, "main", "No terminal here")
    assert window.page.get_by_role("button", name="Open").count() == 0
