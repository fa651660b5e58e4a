"""Redis is everybody's at once: without it pages and the kill switch go on, and somebody is woken (GW6, GW12, API-29)."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys

import pytest

from tests.databases import ROOT
from tests.portal.test_liveness import House, house, redis_dies, redis_freezes
from tests.ports import free_port
from tests.story.product import eventually

__all__ = ["house"]

SEED = """
import json
from tests import factories
from tests.portal.conftest import house, signed_in
from tests.portal.test_api import bearer

acme, operator = house("acme"), factories.operator()
print(json.dumps({
    "workspace": str(acme.workspace.pk),
    "token": bearer(operator, "operate").defaults["HTTP_AUTHORIZATION"],
    "cookie": "; ".join(f"{each.key}={each.value}" for each in signed_in(operator).cookies.values()),
}))
"""


@pytest.mark.parametrize("away", [redis_dies, redis_freezes], ids=lambda each: str(each.__name__))
def test_an_operator_sees_and_stops_whom_he_wants(house: House, away: object) -> None:
    house.start_redis()
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-v0", "-c", SEED]
    made = subprocess.run(command, cwd=ROOT, env=house.environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    seed = json.loads(made.stdout.splitlines()[-1])
    port = free_port()
    process = house.run([sys.executable, "manage.py", "portal", f"--port={port}"])

    def asked(method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            line.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = line.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            assert process.poll() is None, (house.folder / "part.log").read_text()
            return 0, ""
        finally:
            line.close()

    def told(metric: str) -> list[str]:
        return [line.split()[1] for line in asked("GET", "/metrics")[1].splitlines() if line.startswith(f"{metric} ")]

    assert eventually(lambda: asked("GET", "/readyz")[0] == 200, within=300)
    assert told("tenantry_redis_up") == ["1.0"]
    assert told("tenantry_wakeup_age_seconds") == ["3600.0"]
    away(house)  # type: ignore[operator]
    assert asked("GET", "/readyz")[0] == 200
    assert (told("tenantry_redis_up"), told("tenantry_wakeup_age_seconds")) == (["0.0"], [])
    workspace = f"/workspaces/{seed['workspace']}/"
    for page in (
        "/",
        "/tenants/",
        "/tenants/acme/",
        "/workspaces/",
        workspace,
        "/audit/",
        "/operations/",
        "/clusters/",
    ):
        assert (page, asked("GET", page, Cookie=seed["cookie"])[0]) == (page, 200), (
            house.folder / "part.log"
        ).read_text()
    for path in (f"/api/v1{workspace}suspend", "/api/v1/tenants/acme/suspend"):
        given = {"Authorization": seed["token"], "Content_Type": "application/json"}
        status, text = asked("POST", path, json.dumps({"reason": "mining"}), **given)
        assert status == 200, (path, text, (house.folder / "part.log").read_text())
    house.signal_redis(signal.SIGCONT)
