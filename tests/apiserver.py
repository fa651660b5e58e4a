"""The product's own API server in processes of its own, for tests that come in through HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet

from tests.speaking import Speaker, speaker_of
from tests.story.product import eventually, free_port

ROOT = Path(__file__).resolve().parents[1]
KUBECTL = shutil.which("kubectl")


@dataclass(frozen=True)
class OwnApiserver:
    """A running one, and its administrator."""

    url: str
    kubeconfig: Path
    admin: Speaker
    processes: list[subprocess.Popen[bytes]]

    def tenant(self, name: str) -> Speaker:
        """The administrator in this tenant's space; the tenant is made when it is missing."""
        answer = self.admin.send(
            "POST", "/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name}}
        )
        assert answer.status in (201, 409), answer
        return self.admin.at(f"/clusters/root:{name}")


@contextmanager
def running(*, workers: int = 1, flags: tuple[str, ...] = ()) -> Iterator[OwnApiserver]:
    """Start an API server on a database and a data folder of its own; stop it and drop both afterwards."""
    name = f"apiserver_{uuid.uuid4().hex[:12]}"
    url = os.environ["DATABASE_URL"]
    own = (
        re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)
        if "@/" in url
        else re.sub(r"(//[^/]*)/[^?]*", rf"\1/{name}", url)
    )
    folder = Path(tempfile.mkdtemp(prefix="apiserver-"))
    port = free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": own,
        "TENANTRY_DATA_DIR": str(folder),
        "TENANTRY_SEALING_KEYS": Fernet.generate_key().decode(),
        "APISERVER_PORT": str(port),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    processes: list[subprocess.Popen[bytes]] = []
    try:
        command = [sys.executable, "manage.py"]
        done = subprocess.run(
            [*command, "bootstrap"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        with (folder / "apiserver.log").open("wb") as log:
            arguments = [*command, "apiserver", f"--workers={workers}", *flags]
            processes.append(subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=log, stderr=log))
        kubeconfig = Path(facts["admin_kubeconfig"])
        admin = speaker_of(kubeconfig.read_text())

        def ready() -> bool:
            assert processes[0].poll() is None, (folder / "apiserver.log").read_text()
            try:
                return admin.send("GET", "/readyz").status == 200
            except OSError:
                return False

        eventually(ready, within=60)
        yield OwnApiserver(f"https://127.0.0.1:{port}", kubeconfig, admin, processes)
    finally:
        if processes:
            admin.close()
        for process in processes:
            process.terminate()
            process.wait(timeout=30)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def apiserver() -> Iterator[OwnApiserver]:
    """One API server with two worker processes for the whole run."""
    with running(workers=2) as server:
        yield server
