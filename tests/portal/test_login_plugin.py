"""The credential plugin by hand: what it keeps, prints and forgets (GW3, RV-11)."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.databases import ROOT
from tests.ports import free_port

PLUGIN = ROOT / "login" / "tenantry_login.py"
TOKEN = "a-token-of-ten-minutes"
LIFE = 600


class Answering(ThreadingHTTPServer):
    """Somebody who answers as a portal does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status, self.body = 200, dict[str, Any]()
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Answering

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(self.server.body).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def portal() -> Iterator[Answering]:
    with Answering() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


class Person:
    """Somebody's machine, on which a session is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
        self._environment.pop("KUBERNETES_EXEC_INFO", None)

    def keep(self, portal: str) -> None:
        found = importlib.util.spec_from_file_location("tenantry_login", PLUGIN)
        assert found is not None
        assert found.loader is not None
        plugin = importlib.util.module_from_spec(found)
        found.loader.exec_module(plugin)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self._folder))
            plugin.Session(portal).keep("a secret")

    @property
    def keeps(self) -> bool:
        return any(self._folder.rglob("*.json"))

    def run(self, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PLUGIN), *arguments]
        return subprocess.run(
            command, env=self._environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=300, check=False
        )


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "is_over"),
    [
        (200, {}, True),
        (400, {"error": "invalid_grant"}, True),
        (429, {"detail": "slow down"}, False),
        (503, {}, False),
        (400, {"error": "invalid_request"}, False),
    ],
)
def test_a_session_is_forgotten_once_the_portal_has_ended_it(
    portal: Answering, person: Person, status: int, body: dict[str, Any], is_over: bool
) -> None:
    """What is still open there can be ended by trying again."""
    person.keep(portal.url)
    portal.status, portal.body = status, body
    done = person.run("logout", "--portal", portal.url)
    assert (done.returncode == 0, person.keeps) == (is_over, not is_over), done.stderr
    portal.status, portal.body = 200, {}
    assert person.run("logout", "--portal", portal.url).returncode == 0
    assert not person.keeps
    assert len(portal.asked) == (1 if is_over else 2)


def test_a_portal_that_is_away_ends_no_session(person: Person) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    person.keep(url)
    done = person.run("logout", "--portal", url)
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert person.keeps


def test_a_token_is_used_no_more_a_while_before_it_ends(portal: Answering, person: Person) -> None:
    """The clocks of both may differ, and the server's seconds are whole."""
    person.keep(portal.url)
    portal.body = {"access_token": TOKEN, "expires_in": LIFE, "refresh_token": "another"}
    before = time.time()
    said = json.loads(person.run("--portal", portal.url, "--resource", portal.url).stdout)["status"]
    ends = datetime.strptime(said["expirationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    assert said["token"] == TOKEN
    assert before + LIFE - 31 <= ends <= time.time() + LIFE - 30


def test_a_persons_terminal_is_shown_no_token(portal: Answering, person: Person) -> None:
    """It would stay in what can be scrolled back to."""
    person.keep(portal.url)
    portal.body = {"access_token": TOKEN, "expires_in": LIFE, "refresh_token": "another"}
    screen, terminal = pty.openpty()
    try:
        done = person.run("--portal", portal.url, "--resource", portal.url, stdout=terminal)
        os.set_blocking(screen, False)
        try:
            shown = os.read(screen, 65536)
        except BlockingIOError:
            shown = b""
    finally:
        os.close(screen)
        os.close(terminal)
    assert done.returncode == 0
    assert "Signed in." in done.stderr
    assert shown == b""
