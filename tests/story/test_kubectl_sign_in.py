"""A kubeconfig without a secret: kubectl signs in by the browser or by a code, and is out when the person is (D9)."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.story.product import KUBECTL, ROOT, Product, eventually
from tests.story.test_in_the_browser import page as page

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]
EMAIL, PASSWORD = "kim@signing.test", "correct horse battery staple"


class Terminal:
    """A terminal of the person's machine, with the plugin installed and the file from the portal."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self.folder, self.config = folder, folder / "kubeconfig"
        self.config.write_text(kubeconfig)
        (folder / "bin").mkdir()
        (folder / "bin" / "tenantry-login").symlink_to(ROOT / "login" / "tenantry_login.py")
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "BROWSER": "true",
        }

    @property
    def command(self) -> list[str]:
        """What the file tells kubectl to run."""
        said = json.loads(self.kubectl("config", "view", "--output=json").stdout)["users"][0]["user"]["exec"]
        return [said["command"], *said["args"]]

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), f"--kubeconfig={self.config}", *arguments]
        return subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def kubectl_by_hand(self, *arguments: str) -> subprocess.Popen[str]:
        """With somebody at the keyboard: kubectl lets the plugin ask."""
        keyboard, terminal = pty.openpty()
        os.set_inheritable(terminal, True)
        self.keyboards = (keyboard, terminal)
        return subprocess.Popen(
            [str(KUBECTL), f"--kubeconfig={self.config}", *arguments],
            env=self.environment,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def sign_in(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *arguments], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def said_by(process: subprocess.Popen[str], pattern: str) -> str:
    """What the plugin asks for on standard error."""
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(pattern, line)
    assert found is not None, line
    return found[1]


def enter(page: Any, product: Product) -> None:
    page.goto(f"{product.portal}/login/")
    page.fill("input[name=username]", EMAIL)
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_selector("text=What to do next")


def test_kubectl_is_in_and_out_with_the_person(product: Product, page: Any, tmp_path: Path) -> None:
    """GW3, GW5, AN9: browser, sign-out, device's code, revocation, suspension, each by the real kubectl."""
    product.add_person(EMAIL, PASSWORD, "signing", role="owner")
    kim = product.sign_in(EMAIL, PASSWORD)
    made = kim.post("/api/v1/workspaces/init", json={"tier": "basic", "tenant": "signing", "name": "shop"}).json()
    eventually(lambda: kim.get(f"/api/v1/workspaces/{made['id']}/").json()["status"] == "provisioned")
    enter(page, product)
    page.goto(f"{product.portal}/workspaces/{made['id']}/")
    page.click("text=Get kubeconfig")
    page.select_option("dialog[open] select[name=kind]", "exec")
    page.click("text=Issue kubeconfig")
    page.wait_for_selector("dialog[open] >> text=It holds no secret")
    terminal = Terminal(tmp_path, page.locator("#kubeconfig").inner_text())
    assert "token" not in terminal.config.read_text()

    refused = terminal.kubectl("get", "configmaps")
    assert "Sign in first: tenantry-login" in refused.stderr, "nobody is there to sign in"

    process = terminal.kubectl_by_hand("get", "serviceaccounts")
    page.goto(said_by(process, r"in the browser: (\S+)"))
    page.wait_for_selector(f"text=asks to act as {EMAIL}")
    page.click("button:has-text('Allow')")
    page.wait_for_selector("text=The terminal goes on. You can close this window.")
    answer, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "default" in answer
    credential, _ = terminal.sign_in().communicate(timeout=300)
    token = json.loads(credential)["status"]["token"]
    created = terminal.kubectl("create", "configmap", "shapes", "--from-literal=sun=round")
    assert created.returncode == 0, created.stderr
    whoami = json.loads(terminal.kubectl("auth", "whoami", "--output=json").stdout)["status"]["userInfo"]
    assert whoami["username"] == EMAIL
    kept = [path for path in (tmp_path / "cache").rglob("*.json") if path.is_file()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]

    page.goto(product.portal)
    page.evaluate("document.querySelector('form[action=\"/logout/\"]').submit()")
    page.wait_for_selector("input[name=password]")
    refused = terminal.kubectl("get", "configmaps")
    assert refused.returncode != 0
    assert "The session has ended, sign in again." in refused.stderr
    assert not list((tmp_path / "cache").rglob("*.json")), "nothing is left of it"

    enter(page, product)
    process = terminal.sign_in("--device")
    code = said_by(process, r"enter the code (\S+)")
    page.goto(f"{product.portal}/device/")
    page.fill("input[name=user_code]", code)
    page.click("button:has-text('Go on')")
    page.wait_for_selector("text=Has somebody sent you this code?")
    page.click("button:has-text('Allow')")
    page.wait_for_selector("text=The device is signed in.")
    assert process.wait(timeout=300) == 0
    assert terminal.kubectl("get", "configmaps").returncode == 0
    page.goto(f"{product.portal}/credentials/")
    page.click("main >> text=Sign out")
    page.click("dialog[open] >> button:has-text('Sign out')")
    page.wait_for_selector("text=The machine is signed out")
    assert "The session has ended, sign in again." in terminal.kubectl("get", "configmaps").stderr

    process = terminal.sign_in()
    page.goto(said_by(process, r"in the browser: (\S+)"))
    page.click("button:has-text('Allow')")
    assert process.wait(timeout=300) == 0
    operator = product.sign_in(product.facts["operator_email"], product.facts["operator_password"])
    operator.post(f"/api/v1/workspaces/{made['id']}/suspend", json={"reason": "mining suspected"})
    refused = terminal.kubectl("get", "configmaps")
    assert "The workspace is suspended: mining suspected" in refused.stderr
