"""A day in a shell: the command line and the real product, from a token to a kubeconfig that kubectl takes (GW14)."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.story.product import KUBECTL, ROOT, Product


def test_a_workspace_is_asked_for_used_and_given_back(product: Product, tmp_path: Path) -> None:
    """GW3, GW6: it waits with words, its file is its owner's alone, no terminal shows a credential by surprise."""
    product.add_person("kim@shell.test", "correct horse battery staple", "shell", role="owner")
    kim = product.sign_in("kim@shell.test", "correct horse battery staple")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    token = kim.post("/api/v1/tokens/", json={"name": "shell", "scope": "write", "expires_at": tomorrow}).json()[
        "token"
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "cli"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "TENANTRY_URL": product.portal,
        "TENANTRY_TOKEN": token,
    }

    def tenantry(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tenantry_cli", *arguments]
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )

    made = tenantry("workspaces", "create", "till", "--timeout", "240")
    assert made.returncode == 0, made.stderr
    assert "provisioned" in made.stdout
    keyboard, terminal = pty.openpty()
    shown = tenantry("kubeconfig", "shell/till", stdout=terminal)
    assert (shown.returncode, "-o FILE" in shown.stderr) == (2, True)
    os.close(terminal)
    os.close(keyboard)
    file = tmp_path / "till.kubeconfig"
    saved = tenantry("kubeconfig", "shell/till", "-o", str(file))
    assert saved.returncode == 0, saved.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "token" in file.read_text()
    if KUBECTL is not None:
        answer = subprocess.run(
            [KUBECTL, f"--kubeconfig={file}", "get", "serviceaccounts"], capture_output=True, text=True, check=False
        )
        assert "default" in answer.stdout, answer.stderr
    gone = tenantry("workspaces", "delete", "shell/till", "--yes", "--timeout", "240")
    assert (gone.returncode, "shell/till is deleted." in gone.stderr) == (0, True), gone.stderr
    assert tenantry("workspaces", "get", "shell/till").returncode == 5
