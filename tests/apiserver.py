"""The product's own API server in processes of its own, for tests that come in through HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.databases import ROOT, migrated
from tests.ports import free_port
from tests.speaking import Speaker, speaker_of
from tests.story.product import eventually

KUBECTL = shutil.which("kubectl")
ANY_PACE = tuple(f"--tenant-{what}=0" for what in ("read-qps", "write-qps", "watch-qps", "max-watches"))
"""A test asks as one tenant as fast as the machine lets it: what a tenant may ask a second must not decide what it shows.
The limits have tests of their own, on servers that set them."""


@dataclass(frozen=True)
class OwnApiserver:
    """A running one, and its administrator."""

    url: str
    kubeconfig: Path
    admin: Speaker
    processes: list[subprocess.Popen[bytes]]
    database: str
    environment: Mapping[str, str] = field(repr=False)

    def tenant(self, name: str) -> Speaker:
        """The administrator in this tenant's space; the tenant is made when it is missing."""
        answer = self.admin.send(
            "POST", "/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name}}
        )
        assert answer.status in (201, 409), answer
        return self.admin.at(f"/clusters/root:{name}")


def started(
    server: OwnApiserver, *, workers: int = 1, flags: tuple[str, ...] = (), stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start another one as ``server`` was, beside it; whoever asks for it ends it, or adds it to ``processes``."""
    return _start(server.environment, workers=workers, flags=flags, stderr=stderr)


def _start(
    environment: Mapping[str, str], *, workers: int, flags: tuple[str, ...], stderr: int | None = None
) -> subprocess.Popen[bytes]:
    with (Path(environment["TENANTRY_DATA_DIR"]) / "apiserver.log").open("ab") as log:
        arguments = [sys.executable, "manage.py", "apiserver", f"--workers={workers}", *ANY_PACE, *flags]
        return subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=log, stderr=stderr or log)


@contextmanager
def running(database: str, *, workers: int = 1, flags: tuple[str, ...] = ()) -> Iterator[OwnApiserver]:
    """Start an API server on a database, with a data folder of its own; stop it and drop the folder afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="apiserver-"))
    port = free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": database,
        "TENANTRY_DATA_DIR": str(folder),
        "TENANTRY_SEALING_KEYS": Fernet.generate_key().decode(),
        "APISERVER_PORT": str(port),
        "TENANTRY_STATIC_DIR": str(folder / "static"),  # to collect a portal's files costs as much as to start
    }
    processes: list[subprocess.Popen[bytes]] = []
    try:
        command = [sys.executable, "manage.py"]
        done = subprocess.run(
            [*command, "bootstrap"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        processes.append(_start(environment, workers=workers, flags=flags))
        kubeconfig = Path(facts["admin_kubeconfig"])
        admin = speaker_of(kubeconfig.read_text())

        def ready() -> bool:
            assert processes[0].poll() is None, (folder / "apiserver.log").read_text()
            try:
                return admin.send("GET", "/readyz").status == 200
            except OSError:
                return False

        eventually(ready, within=300)
        yield OwnApiserver(f"https://127.0.0.1:{port}", kubeconfig, admin, processes, database, environment)
    finally:
        if processes:
            admin.close()
        for process in processes:
            process.terminate()
            process.wait(timeout=300)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def apiserver() -> Iterator[OwnApiserver]:
    """One API server with two worker processes for the whole run; its tenants' pods are free as in Kubernetes."""
    flags = (f"--admission-control-config-file={ROOT / 'tests' / 'openpolicies.yaml'}",)
    with migrated("apiserver") as database, running(database, workers=2, flags=flags) as server:
        yield server
