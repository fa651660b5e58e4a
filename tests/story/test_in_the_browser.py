"""The main job with a mouse: sign in, workspace, kubeconfig, kubectl, suspension, resumption, and what one sees.

Pictures are kept in ``build/pictures`` (or ``TENANTRY_PICTURES``).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.browser.window import PATIENCE, came
from tests.story.product import KUBECTL, ROOT, Product

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]
PICTURES = Path(os.environ.get("TENANTRY_PICTURES") or ROOT / "build" / "pictures")


@pytest.fixture
def page(product: Product) -> Iterator[Any]:
    """A window; whatever the browser complains of, a blocked script above all, fails the test."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        page.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        browser.close()
    assert complaints == []


def kubectl(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real kubectl with what the dialog gave."""
    command = [str(KUBECTL), "--kubeconfig", str(config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_whole_story(product: Product, page: Any, tmp_path: Path) -> None:
    """GW1, GW3, GW5, GW14: every step through the pages, kubectl in between."""
    page.goto(product.portal)
    page.screenshot(path=PICTURES / "story-1-sign-in.png")
    page.fill("input[name=username]", product.facts["operator_email"])
    page.fill("input[name=password]", product.facts["operator_password"])
    page.click("button[type=submit]")
    page.wait_for_selector("text=What to do next")
    page.screenshot(path=PICTURES / "story-2-overview.png")

    page.goto(f"{product.portal}/workspaces/new/")
    page.fill("input[name=name]", "payments")
    page.click("text=Create workspace")
    came(page, "text=Get kubeconfig")
    page.screenshot(path=PICTURES / "story-3-workspace.png", full_page=True)
    workspace = page.url

    page.click("text=Get kubeconfig")
    page.click("text=Issue kubeconfig")
    page.wait_for_selector("dialog[open] >> text=Download")
    page.screenshot(path=PICTURES / "story-4-kubeconfig.png")
    with page.expect_download() as download:
        page.click("dialog[open] >> text=Download")
    config = tmp_path / "kubeconfig"
    download.value.save_as(config)
    assert kubectl(config, "create", "configmap", "colours", "--from-literal=sky=blue").returncode == 0
    watch = subprocess.Popen(
        [str(KUBECTL), "--kubeconfig", str(config), "get", "configmaps", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert watch.stdout is not None
    watch.stdout.readline()

    page.goto(workspace)
    assert page.locator("text=eyJ").count() == 0, "a kubeconfig is shown once"
    page.click("main >> text=Suspend")
    page.fill("dialog[open] input[name=reason]", "Mining suspected")
    page.click("text=Suspend now")
    watch.wait(timeout=300)
    refused = kubectl(config, "get", "configmaps")
    assert refused.returncode != 0
    came(page, "text=Receipt of the suspension")
    page.screenshot(path=PICTURES / "story-5-suspended.png", full_page=True)

    page.click("main >> text=Resume")
    page.click("dialog[open] >> button:has-text('Resume')")
    came(page, "text=Get kubeconfig")
    page.wait_for_selector("#progress", state="detached")
    assert "Unauthorized" in kubectl(config, "get", "configmaps").stderr, "a stolen token stays dead"

    for name, path in (("audit", "/audit/"), ("tenants", "/tenants/"), ("admin", "/admin/")):
        page.goto(product.portal + path)
        page.screenshot(path=PICTURES / f"story-6-{name}.png")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(workspace)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=PICTURES / "story-7-phone-dark.png")
