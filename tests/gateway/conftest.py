"""A real API server over HTTPS, in a process of its own with a database of its own, for the whole run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import yaml

from tests.apiserver import ANY_PACE
from tests.databases import ROOT, migrated, url_of
from tests.gateway import standingcluster
from tests.gateway.callers import Caller, Certified
from tests.ports import free_port
from tests.story.product import eventually


@dataclass
class Server:
    """A running API server."""

    url: str
    port: int
    folder: Path
    database: str
    process: subprocess.Popen[str]
    issued: Certified = field(init=False)

    def __post_init__(self) -> None:
        self.issued = Certified(self.folder)

    def user(self, tenant: str, name: str, *groups: str) -> Caller:
        """Somebody with a client certificate."""
        certificate, key = self.issued.pair(tenant, name, *groups)
        return Caller(self.url, self.folder / "pki" / "ca.crt", certificate=certificate, key=key)

    def bearer(self, token: str) -> Caller:
        return Caller(self.url, self.folder / "pki" / "ca.crt", token=token)

    @property
    def nobody(self) -> Caller:
        return Caller(self.url, self.folder / "pki" / "ca.crt")

    @property
    def admin(self) -> Caller:
        return Caller(
            self.url,
            self.folder / "pki" / "ca.crt",
            certificate=self.folder / "pki" / "admin.crt",
            key=self.folder / "pki" / "admin.key",
        )

    def sql(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(statement, parameters)

    @contextmanager
    def locked(self, space: str) -> Iterator[None]:
        """A space with a lock on its door."""
        self.sql("INSERT INTO locks (space, namespace, reason, created_at) VALUES (%s, '', 'unpaid', now())", space)
        self.sql("NOTIFY tenantry_locks")
        try:
            yield
        finally:
            self.sql("DELETE FROM locks WHERE space = %s", space)
            self.sql("NOTIFY tenantry_locks")


def start(folder: Path, database: str, *flags: str) -> Server:
    """Start the command and wait until it is ready."""
    port = free_port()
    environment = {**os.environ, "DATABASE_URL": database, "TENANTRY_DATA_DIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "apiserver", "--secure-port", str(port), *ANY_PACE, *flags],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=(folder.parent / f"{folder.name}.log").open("w"),
        text=True,
    )
    server = None
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError((folder.parent / f"{folder.name}.log").read_text()[-3000:])
        if (folder / "admin.kubeconfig").exists():
            server = server or Server(f"https://127.0.0.1:{port}", port, folder, database, process)
            try:
                if server.nobody.get("/readyz").status == 200:
                    return server
            except OSError:
                pass
        time.sleep(0.05)
    process.kill()
    raise RuntimeError("the API server did not become ready")


def stop(server: Server) -> int:
    """End it, as whoever looks after it does; no task of its may have been lost (asyncio says so)."""
    server.process.send_signal(signal.SIGTERM)
    ended = server.process.wait(timeout=300)
    log = server.folder.parent / f"{server.folder.name}.log"
    assert [line for line in log.read_text().splitlines() if " ERROR asyncio: " in line] == []
    return ended


@pytest.fixture(scope="session")
def new_database() -> Iterator[str]:
    """A migrated database."""
    with migrated("gateway") as url:
        yield url


_FOR_ALL: list[Server] = []
"""The server that all modules share, once one has asked for it."""


@pytest.fixture(scope="session")
def server(new_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start(tmp_path_factory.mktemp("apiserver") / "data", new_database)
    _FOR_ALL.append(running)
    yield running
    _FOR_ALL.clear()
    stop(running)
    log = (running.folder.parent / f"{running.folder.name}.log").read_text()
    assert "Traceback" not in log, log[-4000:]


@pytest.fixture(scope="module", autouse=True)
def nothing_placed_is_left() -> Iterator[None]:
    """No module leaves a namespace that is said to be on a cluster: what programs list across tenants is refused then."""
    yield
    for running in _FOR_ALL:
        placed = running.admin.get(
            "/api/v1/tenants/*/namespaces", labelSelector="tenantry.io/cluster,tenantry.io/workspace"
        )
        assert placed.body["items"] == []


@pytest.fixture(scope="session")
def door_server(
    django_db_setup: None, django_db_blocker: Any, sealing_key: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """The API server on the tests' own database, and the key that credentials of clusters are sealed with."""
    from django.db import connection

    with django_db_blocker.unblock():
        database = url_of(connection.settings_dict["NAME"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENANTRY_SEALING_KEYS", sealing_key)
        running = start(tmp_path_factory.mktemp("door") / "data", database)
    yield running, sealing_key
    stop(running)


@contextmanager
def running(folder: Path, database: str, *flags: str) -> Iterator[Server]:
    """An API server on a database."""
    server = start(folder, database, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            stop(server)


def another(server: Server, folder: Path, *flags: str) -> AbstractContextManager[Server]:
    """A second API server on the same database: what rates they promise they promise together (AD6)."""
    return running(folder, server.database, *flags)


def replicas_rule(folder: Path) -> str:
    """The flag of a server that counts the replicas of deployments, and of a kind that a cluster alone has."""
    rules = [
        {"name": "example.com/replicas", "apiGroup": group, "resource": resource, "field": "spec.replicas"}
        for group, resource in (("apps", "deployments"), ("pool.kubevirt.io", "virtualmachinepools"))
    ]
    kind = {"apiVersion": "tenancy.tenantry.io/v1alpha1", "kind": "TenantQuotaConfiguration"}
    told = {"name": "TenantQuota", "configuration": {**kind, "hard": {"pods": "99"}, "usage": rules}}
    file = folder / "rules.yaml"
    file.write_text(
        yaml.safe_dump(
            {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [told]}
        )
    )
    return f"--admission-control-config-file={file}"


@pytest.fixture(scope="session")
def admin(server: Server) -> Caller:
    return server.admin


def completed(caller: Caller, name: str, *, prefix: str = "") -> str:
    """The path of a namespace, once it has what every namespace is given."""
    at = f"{prefix}/api/v1/namespaces/{name}"
    for given in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        eventually(lambda path=f"{at}/{given}": caller.get(path).status == 200)
    return at


def tenant_named(server: Server, name: str) -> str:
    answer = server.admin.post("/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name}})
    assert answer.status == 201, answer.body
    completed(server.admin, "default", prefix=f"/clusters/root:{name}")
    return name


@pytest.fixture(scope="session")
def acme(server: Server) -> str:
    """A tenant."""
    return tenant_named(server, "acme")


@pytest.fixture(scope="session")
def globex(server: Server) -> str:
    """Another tenant."""
    return tenant_named(server, "globex")


@pytest.fixture(scope="session")
def alice(server: Server, acme: str) -> Caller:
    """The owner of acme."""
    return server.user(acme, "alice", "tenantry:owner")


@pytest.fixture(scope="session")
def gina(server: Server, globex: str) -> Caller:
    """The owner of globex."""
    return server.user(globex, "gina", "tenantry:owner")


@pytest.fixture
def namespace(alice: Caller) -> str:
    """A fresh namespace in acme."""
    name = f"n-{uuid4().hex[:8]}"
    answer = alice.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert answer.status == 201, answer.body
    completed(alice, name)
    return name


@pytest.fixture(scope="session")
def standing_in(server: Server) -> str:
    """The gateway's kubeconfig for an API server with a database of its own, which is taken for somebody's cluster."""
    return standingcluster.prepare(server)


@pytest.fixture
def tenant(server: Server) -> str:
    """A tenant of its own."""
    return tenant_named(server, f"t-{uuid4().hex[:8]}")


@pytest.fixture
def owner(server: Server, tenant: str) -> Caller:
    return server.user(tenant, "olga", "tenantry:owner")
