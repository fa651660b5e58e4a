"""Two portals are replaced one after the other while everybody goes on working, behind a balancer: no request fails."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.utils import timezone

from access.credentials import token_create
from access.models import PersonalAccessToken
from audit.recorder import Actor
from tenants.models import Tier
from tests import factories
from tests.balancer import Balancer, status_of
from tests.databases import ROOT, url_of
from tests.ports import free_port
from tests.story.product import eventually

CALLERS = 4
PATIENCE = 300.0


class Caller(threading.Thread):
    """Reads pages and makes tiers over a kept connection, one request after the other, and repeats nothing."""

    def __init__(self, port: int, token: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port, self._token, self._number, self._stop_asking = port, token, number, stop
        self.failures: list[str] = []
        self.made: list[str] = []
        self.asked = 0

    def run(self) -> None:
        """Work until told to stop."""
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        known = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        while not self._stop_asking.is_set():
            name = f"t{self._number}-{self.asked}"
            body = json.dumps({"name": name, "display_name": name, "quota": {"pods": "1"}})
            for method, path, data, wanted in (
                ("GET", "/login/", None, 200),
                ("POST", "/api/v1/tiers/", body, 201),
                ("GET", f"/api/v1/tiers/{name}/", None, 200),
            ):
                self.asked += 1
                try:
                    line.request(method, path, data, known if path.startswith("/api") else {})
                    answer = line.getresponse()
                    text = answer.read()
                except (OSError, http.client.HTTPException) as error:
                    self.failures.append(f"{method} {path}: {error!r}")
                    line.close()
                    continue
                if answer.status != wanted:
                    self.failures.append(f"{method} {path}: {answer.status} {text[:200]!r}")
                elif method == "POST":
                    self.made.append(name)
        line.close()


@pytest.fixture
def start(transactional_db: None, tmp_path: Path) -> Iterator[Callable[..., tuple[int, subprocess.Popen[bytes]]]]:
    """Start portals on the database of this test."""
    environment = {
        **os.environ,
        "DATABASE_URL": url_of(connection.settings_dict["NAME"]),
        "SECRET_KEY": secrets.token_urlsafe(48),
        "TENANTRY_SEALING_KEYS": Fernet.generate_key().decode(),
    }
    processes: list[subprocess.Popen[bytes]] = []

    def started(delay: str) -> tuple[int, subprocess.Popen[bytes]]:
        port = free_port()
        command = [sys.executable, "manage.py", "portal", f"--port={port}", f"--shutdown-delay-duration={delay}"]
        with (tmp_path / "portals.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        processes.append(process)

        def ready() -> bool:
            assert process.poll() is None, (tmp_path / "portals.log").read_text()
            return status_of(port, "/readyz") == 200

        assert eventually(ready, within=PATIENCE)
        return port, process

    yield started
    for process in processes:
        process.kill()
        process.wait(PATIENCE)


def operator_token() -> str:
    """A personal access token that may make tiers."""
    olga = factories.operator("olga@platform.test")
    now = timezone.now()
    made = token_create(
        actor=Actor(name=olga.email, user_id=olga.pk, operator=True),
        user=olga,
        name="rolling",
        scope=PersonalAccessToken.Scope.OPERATE,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    return made.text


def test_portals_are_rolled_and_nobody_notices(start: Callable[..., tuple[int, subprocess.Popen[bytes]]]) -> None:
    """GW18: each of two is replaced, under requests that are asked once; what was acknowledged is there."""
    token = operator_token()
    portals = [start("10m"), start("10m")]
    balancer = Balancer(port for port, _ in portals)
    stop = threading.Event()
    with balancer.served():
        assert eventually(lambda: len(balancer.ready) == 2, within=PATIENCE)
        callers = [Caller(balancer.port, token, number, stop) for number in range(CALLERS)]
        for caller in callers:
            caller.start()

        def work_goes_on() -> None:
            asked = sum(caller.asked for caller in callers)
            assert eventually(lambda: sum(caller.asked for caller in callers) > asked + 60, within=PATIENCE)

        for old_port, old in portals:
            work_goes_on()
            port, _ = start("10m")
            balancer.ports.append(port)
            assert eventually(lambda port=port: port in balancer.ready, within=PATIENCE)
            old.terminate()
            assert eventually(lambda old_port=old_port: old_port not in balancer.ready, within=PATIENCE)
            # Told by their last answers there, all of them leave by themselves; then its time need not be waited for.
            assert eventually(lambda old_port=old_port: not balancer.leading[old_port], within=PATIENCE)
            old.send_signal(signal.SIGINT)
            old.wait(PATIENCE)
            balancer.ports.remove(old_port)
        work_goes_on()
        stop.set()
        for caller in callers:
            caller.join(PATIENCE)
    assert [failure for caller in callers for failure in caller.failures] == []
    made = {name for caller in callers for name in caller.made}
    assert made <= set(Tier.objects.values_list("name", flat=True))
    assert len(made) == sum(len(caller.made) for caller in callers)


def test_a_portal_that_stops_says_so_first_and_serves_until_then(
    start: Callable[..., tuple[int, subprocess.Popen[bytes]]],
) -> None:
    """Not ready, but alive; every request is answered, and told that it is the last of its connection."""
    port, process = start("10m")
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read()
    process.terminate()
    assert eventually(lambda: status_of(port, "/readyz") == 503, within=PATIENCE)
    kept.request("GET", "/login/")
    answer = kept.getresponse()
    assert (answer.status, answer.getheader("Connection")) == (200, "close")
    assert status_of(port, "/healthz") == 200
    assert process.poll() is None
    # A second signal hurries.
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    assert process.returncode is not None
