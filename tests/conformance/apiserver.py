"""A real kube-apiserver with etcd on free loopback ports, for tests that compare answers with it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

TOKEN = "conformance"


class APIServer:
    """Speaks JSON to one server as a cluster administrator; answers are (status, body)."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._context = ssl._create_unverified_context()
        self._connection: HTTPSConnection | None = None

    def request(
        self, method: str, path: str, body: Any = None, media_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        if self._connection is None:
            self._connection = HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=30)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media_type, "User-Agent": "conformance/1"}
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        content = response.read()
        try:
            return response.status, json.loads(content)
        except ValueError:
            return response.status, {"message": content.decode(errors="replace")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(assets: str) -> Iterator[APIServer]:
    """Start etcd and kube-apiserver from the folder, wait until it is ready, stop both afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="apiserver-"))
    etcd_port, peer_port, port = free_port(), free_port(), free_port()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "sa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            command = [str(Path(assets) / name), *arguments]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))

    try:
        start(
            "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync",
        )
        start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/sa.key",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        server = APIServer(port)
        _wait(server, processes, folder)
        yield server
    finally:
        # Nothing of theirs outlives this, so there is nothing that an orderly end would save.
        for process in reversed(processes):
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: APIServer, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if (
                server.request("GET", "/readyz")[0] == 200
                and server.request("GET", "/api/v1/namespaces/default")[0] == 200
            ):
                return
        server._connection = None
        if any(process.poll() is not None for process in processes):
            break
        time.sleep(0.2)
    logs = {path.name: path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log")}
    raise RuntimeError(f"the API server did not become ready: {logs}")


def without_server_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what the server alone decides: uid, revision, times and managed fields."""
    own = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name not in own}
    return {**document, "metadata": metadata}
