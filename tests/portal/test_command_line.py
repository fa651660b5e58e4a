"""The command ``tenantry``: signing in, the day's commands, and how they fail (GW14)."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from audit.actions import Action
from tenants.models import Membership, Tenant, User, Workspace
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House
from tests.requirements import ROOT


@pytest.fixture
def shell(
    live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Shell(live_server.url, monkeypatch, capsys)


def test_whoever_signs_in_is_known_until_they_sign_out(
    acme: House, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is in a file of one's own, and goes to no other portal."""
    assert shell.run("whoami").status == 3
    token = shell.sign_in(acme.owner).token
    monkeypatch.delenv("TENANTRY_TOKEN")
    assert acme.owner.email in shell.done("login", typed=f"{token}\n").errors
    kept = tmp_path / "config" / "tenantry" / "sign-in.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    monkeypatch.delenv("TENANTRY_URL")
    assert shell.done("whoami", "-o", "json").json["memberships"] == [{"tenant": "acme", "role": "owner"}]
    elsewhere = shell.run("--url", "https://elsewhere.test", "whoami")
    assert (elsewhere.status, "Nobody is signed in to https://elsewhere.test" in elsewhere.errors) == (3, True)
    kept.chmod(0o644)
    assert "Others can read" in shell.run("whoami").errors
    kept.chmod(0o600)
    shell.done("logout")
    assert not kept.exists()
    assert shell.run("whoami").status == 3


def test_a_wrong_token_is_not_kept(acme: House, shell: Shell, tmp_path: Path) -> None:
    refused = shell.run("--token", "tnt_nonsense", "login", shell.url)
    assert (refused.status, "tnt_nonsense" in refused.errors) == (3, False)
    assert not (tmp_path / "config").exists()


def test_the_token_is_asked_for_without_an_echo(acme: House, shell: Shell, tmp_path: Path) -> None:
    token = shell.sign_in(acme.owner).token
    keyboard, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    del environment["TENANTRY_TOKEN"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tenantry_cli", "login", shell.url],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        # Without a terminal of its own, what it asks it asks at its standard input.
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    while b"Personal access token:" not in shown:
        shown += os.read(keyboard, 4096)
    os.write(keyboard, f"{token}\n".encode())
    while True:
        try:
            piece = os.read(keyboard, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert process.wait(timeout=300) == 0, shown
    assert token.encode() not in shown
    assert f"You are {acme.owner.email}".encode() in shown


@pytest.mark.parametrize("url", ["http://portal.test", "ftp://portal.test", "portal.test", "https://u:p@portal.test"])
def test_a_token_is_never_sent_in_the_clear(url: str, shell: Shell) -> None:
    refused = shell.run("--url", url, "--token", "tnt_x", "whoami")
    assert (refused.status, "https://HOST" in refused.errors) == (2, True)


def test_an_owner_looks_after_their_people(acme: House, shell: Shell) -> None:
    shell.sign_in(acme.owner)
    factories.user("nina@acme.test")
    assert [row["name"] for row in shell.done("tenants", "list", "-o", "json").json] == ["acme"]
    shell.done("tenants", "members", "set", "acme", "nina@acme.test", "viewer")
    shell.done("tenants", "members", "set", "acme", "nina@acme.test", "editor")
    listed = yaml.safe_load(shell.done("tenants", "members", "list", "acme", "-o", "yaml").output)
    assert {row["email"]: row["role"] for row in listed}["nina@acme.test"] == "editor"
    shell.done("tenants", "members", "remove", "acme", "Nina@acme.test")
    assert not Membership.objects.filter(user__email="nina@acme.test").exists()
    assert shell.run("tenants", "members", "remove", "acme", "nina@acme.test").status == 5


def test_an_operator_makes_bounds_closes_and_ends_a_tenant(operator: User, shell: Shell) -> None:
    """The same creation again is no failure, another one is."""
    shell.sign_in(operator, "operate")
    owner = factories.user("olaf@orca.test")
    create = ("tenants", "create", "orca", "--display-name", "Orca", "--owner", owner.email, "--quota", "pods=5")
    for _ in range(2):
        assert shell.done(*create, "-o", "json").json["display_name"] == "Orca"
    other = shell.run("tenants", "create", "orca", "--display-name", "Whale")
    assert (other.status, "differs in display_name" in other.errors) == (6, True)
    assert Membership.objects.get(tenant_id="orca").user == owner
    changed = shell.done("tenants", "quota", "set", "orca", "services=7", "-o", "json").json
    assert changed["hard"] == {"pods": "5", "services": "7"}
    assert shell.done("tenants", "quota", "set", "orca", "pods=", "-o", "json").json["hard"] == {"services": "7"}
    assert "services" in shell.done("tenants", "quota", "get", "orca").output
    assert shell.done("tenants", "suspend", "orca", "--reason", "not paid", "-o", "json").json["state"] == "suspended"
    assert shell.done("tenants", "resume", "orca", "-o", "json").json["state"] == "active"
    assert "RULE" in shell.done("policies", "get", "orca").output
    assert shell.run("tenants", "delete", "orca", typed="n\n").status == 1
    assert Tenant.objects.get(name="orca").state == "active", "nobody said yes"
    shell.done("tenants", "delete", "orca", typed="y\n")
    assert Tenant.objects.get(name="orca").state == "terminating"


def test_a_list_is_followed_to_its_last_page(operator: User, shell: Shell) -> None:
    for number in range(120):
        factories.tenant(f"fleet-{number:03}")
    shell.sign_in(operator, "operate")
    names = [row["name"] for row in shell.done("tenants", "list", "--search", "fleet", "-o", "json").json]
    assert names == [f"fleet-{number:03}" for number in range(120)]


def test_workspaces_are_named_as_people_name_them(acme: House, globex: House, shell: Shell, operator: User) -> None:
    factories.workspace(globex.tenant, globex.editor, "acme-web")
    shell.sign_in(acme.editor)
    found = shell.done("workspaces", "get", "acme-web", "-o", "json").json
    assert found["id"] == str(acme.workspace.pk)
    assert shell.done("workspaces", "get", found["id"], "-o", "json").json == found
    assert shell.run("workspaces", "get", "acme/nothing").status == 5
    again = shell.done("workspaces", "create", "acme-web", "--tier", "basic", "-o", "json").json
    assert again["id"] == found["id"], "the same name is the same workspace"
    begun = shell.done("workspaces", "create", "more", "--no-wait", "-o", "json").json
    assert begun["status"] == "provisioning"
    late = shell.run("workspaces", "create", "more", "--timeout", "1")
    assert (late.status, "acme/more is still provisioning" in late.errors) == (8, True)
    shell.sign_in(operator, "operate")
    several = shell.run("workspaces", "get", "acme-web")
    assert (several.status, "acme/acme-web" in several.errors) == (6, True)
    closing = ("workspaces", "suspend", "acme/acme-web", "--reason", "mining", "--no-wait", "-o", "json")
    assert shell.done(*closing).json["status"] == "suspending"
    assert shell.done("workspaces", "resume", "acme/acme-web", "--no-wait", "-o", "json").json["status"] == "resuming"
    shell.done("workspaces", "delete", "acme/acme-web", "--yes", "--no-wait")
    assert Workspace.objects.get(pk=acme.workspace.pk).status == "deleted"


def test_rights_are_explained(acme: House, shell: Shell, tmp_path: Path) -> None:
    shell.sign_in(acme.owner)
    path = "/api/v1/namespaces/default/pods"
    found = shell.done("explain", "GET", path, "--tenant", "acme", "-o", "json").json
    assert found["resolved"]["resource"] == "pods"
    assert found["trace"]
    table = shell.done("explain", "GET", path, "--as", acme.viewer.email, "--tenant", "acme")
    assert "decided by" in table.errors
    changes = tmp_path / "changes.yaml"
    changes.write_text("- {op: add, path: /metadata/labels/a, value: b}")
    sent = ("--tenant", "acme", "--type", "json", "-f", str(changes), "-o", "json")
    judged = shell.done("explain", "PATCH", f"{path}/none", *sent).json
    assert judged["resolved"]["verb"] == "patch"
    changes.write_text("metadata: {}")
    assert shell.run("explain", "PATCH", f"{path}/none", *sent).status == 7
    holders = shell.done("who-can", "create", "deployments.apps", "--tenant", "acme", "-o", "json").json
    assert isinstance(holders, list)
    assert shell.run("who-can", "get", "pods").status == 2


def test_the_audit_log_is_read_and_exported(acme: House, shell: Shell) -> None:
    for _ in range(60):
        factories.event("acme", Action.SIGN_IN, acme.viewer)
    factories.event("acme", Action.WORKSPACE_READY, acme.owner, of=acme.workspace)
    shell.sign_in(acme.owner)
    assert len(shell.done("audit", "list", "--tenant", "acme", "-o", "json").json) == 50
    everything = shell.done("audit", "list", "--tenant", "acme", "--limit", "0", "-o", "json").json
    assert len(everything) > 60
    some = shell.done("audit", "list", "--action", "workspace.ready", "-o", "json").json
    assert [row["actor"] for row in some] == [acme.owner.email]
    ready = ("--tenant", "acme", "--action", "workspace.ready")
    lines = [json.loads(line) for line in shell.done("audit", "export", *ready).output.splitlines()]
    assert [line["actor"] for line in lines] == [acme.owner.email]
    assert shell.done("audit", "export", *ready, "--format", "csv").output.count("workspace.ready") == 1
    assert shell.run("audit", "export", "--tenant", "globex").status == 5


def test_recorded_sessions_are_listed(acme: House, shell: Shell, settings: Any) -> None:
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    kept = factories.recording(acme.workspace, acme.editor, shown=None)
    shell.sign_in(acme.owner)
    (row,) = shell.done("audit", "recordings", "-o", "json").json
    assert (row["id"], row["caller"], row["exit_code"]) == (str(kept.pk), acme.editor.email, 0)
    assert acme.editor.email in shell.done("audit", "recordings", "--tenant", "acme").output


@pytest.mark.parametrize(
    ("who", "arguments", "status", "words"),
    [
        ("viewer", ("tenants", "suspend", "acme", "--reason", "x"), 4, "operators"),
        ("owner", ("tenants", "get", "globex"), 5, "not found"),
        ("owner", ("tenants", "members", "set", "acme", "no", "king"), 7, "email"),
        ("owner", ("tenants", "members", "set", "acme", "nobody@acme.test", "viewer"), 7, "no such account"),
        ("owner", ("clusters", "list"), 4, "operators"),
        ("owner", ("tenants", "list", "--nonsense"), 2, "nonsense"),
        ("owner", ("tenants", "quota", "set", "acme", "pods"), 2, "RESOURCE=AMOUNT"),
    ],
)
def test_a_failure_is_one_line_and_a_status(
    who: str, arguments: tuple[str, ...], status: int, words: str, acme: House, shell: Shell
) -> None:
    shell.sign_in(getattr(acme, who))
    refused = shell.run(*arguments)
    assert (refused.status, refused.output) == (status, "")
    assert words in refused.errors
    if status != 2:
        assert refused.errors.count("\n") == 1


def test_a_portal_that_is_not_there_is_said_to_be_so(shell: Shell) -> None:
    refused = shell.run("--url", "https://127.0.0.1:1", "--token", "tnt_x", "whoami")
    assert (refused.status, refused.errors.count("\n")) == (8, 1)
    assert "does not answer" in refused.errors


def test_what_others_wrote_gives_a_terminal_no_orders(acme: House, shell: Shell) -> None:
    Tenant.objects.filter(name="acme").update(display_name="\x1b]0;owned\x07Acme\nevil")
    shell.sign_in(acme.owner)
    for form in ("table", "json", "yaml"):
        printed = shell.done("tenants", "list", "-o", form).output
        assert "\x1b" not in printed
        assert "\x07" not in printed


def test_a_shell_completes_the_commands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TENANTRY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "tenantry tenants me")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert shell.run().output.split() == ["members"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in an environment that has nothing of the server's."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    # Building leaves things beside the source.
    source = shutil.copytree(ROOT / "cli", folder / "source")
    made = subprocess.run(
        [str(folder / "bin" / "pip"), "install", "--quiet", str(source)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"pip can install nothing here: {made.stderr.strip().splitlines()[-1]}")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(folder / "bin" / command[0]), *command[1:]], capture_output=True, text=True, check=False
        )

    return run


def test_it_is_installed_without_the_server(
    installed: Callable[..., subprocess.CompletedProcess[str]], acme: House, shell: Shell
) -> None:
    shell.sign_in(acme.owner)
    answer = installed("tenantry", "tenants", "list")
    assert (answer.returncode, "acme" in answer.stdout) == (0, True), answer.stderr
    assert installed("python", "-c", "import django").returncode != 0
