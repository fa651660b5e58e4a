"""The process around the application: start, ports, workers, the end, tenants and the way in without a socket."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.options import Options
from gateway.server.inprocess import Gateway
from kube.authentication.identity import Principal
from tests.databases import ROOT, migrated
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, another, running, stop, tenant_named


def test_taken_port_is_one_line_that_says_what_to_do(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": server.database, "TENANTRY_DATA_DIR": str(tmp_path)}
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "manage.py", "apiserver", "--secure-port", str(server.port)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert str(server.port) in lines[0]
    assert "APISERVER_PORT" in lines[0]


def test_generated_keys_are_their_owners_alone(server: Server) -> None:
    for path in [*(server.folder / "pki").glob("*.key"), server.folder / "admin.kubeconfig"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_no_core_file_can_hold_what_is_in_memory(server: Server) -> None:
    """Neither in a file nor by a program that takes them, which alone a limit of 1 keeps from it (core(5))."""
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert line.split()[4:6] in (["1", "1"], ["0", "0"])


def test_second_server_sees_writes_and_revocations_of_the_first(
    server: Server, alice: Caller, namespace: str, tmp_path: Path
) -> None:
    maps = f"/api/v1/tenants/acme/namespaces/{namespace}/configmaps"
    with another(server, tmp_path / "data", "--workers", "2", "--default-tenant", "initech") as second:
        admin = second.admin
        with admin.watch(maps) as watch:
            assert alice.post(maps, config_map("x")).status == 201
            assert admin.get(f"{maps}/x").status == 200
            assert watch.take(2)[1]["object"]["metadata"]["name"] == "x"
            # TS8: the default tenant is made when it is missing.
            assert admin.get("/api/v1/tenants/initech").status == 200
            stop(second)
            last = watch.until_end()
        assert not last or last[-1]["object"]["code"] == 503


def test_tenants_come_and_go_by_kubectl(server: Server) -> None:
    """TS1."""
    name = tenant_named(server, "hooli")
    admin = server.admin
    assert admin.get(f"/api/v1/tenants/{name}/namespaces/default").status == 200
    listed = admin.get("/api/v1/tenants").body
    assert (listed["kind"], name in {item["metadata"]["name"] for item in listed["items"]}) == ("TenantList", True)
    owner = server.user(name, "gavin", "tenantry:owner")
    assert owner.get("/api/v1/namespaces").status == 200
    assert admin.post("/api/v1/tenants", tenant(name)).status == 409
    for bad in ("Upper", "all", "a/b", "system", "x" * 64, ""):
        assert admin.post("/api/v1/tenants", tenant(bad)).status in (409, 422), bad
    assert admin.post("/api/v1/tenants", tenant("dry"), dryRun="All").status == 201
    assert admin.get("/api/v1/tenants/dry").status == 404
    assert admin.delete(f"/api/v1/tenants/{name}").status == 200
    assert eventually(lambda: owner.get("/api/v1/namespaces").status == 403)


def tenant(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name}}


def test_callers_in_the_process_pass_the_same_stages(server: Server, alice: Caller, tmp_path: Path) -> None:
    """The portal reads and writes as its user, and no more than that user may."""
    options = Options(database_url=server.database, data_folder=tmp_path)
    owner = Principal(name="olga", groups=("tenantry:owner",), tenant="acme", authenticator="portal")
    stranger = Principal(name="sam", tenant="globex", authenticator="portal")
    path = "/api/v1/namespaces/default/configmaps"
    with Gateway(options) as gateway:
        assert gateway.call(owner, "POST", path, body=config_map("by-portal")).status == 201
        assert alice.get(f"{path}/by-portal").status == 200
        assert gateway.call(stranger, "GET", f"/clusters/root:acme{path}/by-portal").status == 403
        assert gateway.call(owner, "GET", "/api/v1/namespaces/../x").status == 400
        assert gateway.call(owner, "GET", path, query="watch=1").status == 400
        assert gateway.call(owner, "DELETE", f"{path}/by-portal").status == 200


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/version"])
def test_nobody_is_let_in_without_a_credential(server: Server, path: str) -> None:
    """AN11."""
    answer = server.nobody.get(path)
    assert (answer.status, answer.reason) == (401, "Unauthorized")


def test_anonymous_users_exist_only_where_configured(server: Server, tmp_path: Path) -> None:
    """AN11."""
    with another(server, tmp_path / "data", "--anonymous-auth") as second:
        assert second.nobody.get("/version").status in (200, 403)
        assert second.nobody.get("/api/v1/namespaces").status == 403
        assert second.bearer("wrong").get("/version").status == 401


def test_stop_waits_for_no_client_that_has_its_answer(server: Server, tmp_path: Path) -> None:
    """A pooled connection reads TLS's goodbye only when it asks again."""
    with another(server, tmp_path / "data") as second:
        idle = [second.admin.open("GET", "/readyz") for _ in range(3)]
        assert [answer.read() for answer in idle] == [b"ok"] * 3
        watch = second.admin.watch("/api/v1/tenants")
        stop(second)
        assert "shutdown exceeded" not in (tmp_path / "data.log").read_text(), "it ended before the grace was over"
        # Its client begins it again where it was; told of an error, an informer would list everything.
        assert "ERROR" not in [event["type"] for event in watch.until_end()]


def test_flooding_tenant_gets_429_and_the_others_are_served(tmp_path: Path) -> None:
    """AD6: ``Retry-After`` in the header and in the body."""
    flags = ("--tenant-write-qps", "0.01", "--tenant-write-burst", "1", "--tenant-max-watches", "1")
    flags += ("--tenant-read-qps", "2000")
    path = "/api/v1/namespaces/default/configmaps"
    with migrated("flood") as database, running(tmp_path / "data", database, *flags) as second:
        flooding = second.user(tenant_named(second, "flooding"), "florian", "tenantry:owner")
        quiet = second.user(tenant_named(second, "quiet"), "quentin", "tenantry:owner")
        assert flooding.post(path, config_map("first")).status == 201
        refused = flooding.post(path, config_map("second"))
        assert (refused.status, refused.reason) == (429, "TooManyRequests")
        assert refused.headers["retry-after"] == str(refused.body["details"]["retryAfterSeconds"])
        assert refused.headers["ratelimit-policy"] == '"person-write";q=1;w=200'
        assert refused.headers["ratelimit"].startswith('"person-write";r=0;t=')
        assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == ("1", "0")
        assert 0 < int(refused.headers["x-ratelimit-reset"]) <= 200
        read = flooding.get(f"{path}/first")
        assert read.status == 200
        assert read.headers["ratelimit"].startswith('"person-read";r=')
        assert "ratelimit" not in second.admin.get(path).headers
        assert quiet.post(path, config_map("first")).status == 201
        with flooding.watch(path):
            assert flooding.get(f"{path}?watch=true").status == 429
        assert all(second.admin.get("/api/v1/tenants").status == 200 for _ in range(3))
