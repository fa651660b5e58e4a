"""A real kube-apiserver with etcd, and controller-manager where wanted, from ``KUBEBUILDER_ASSETS``."""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.ports import free_port
from tests.speaking import Speaker, speaker_of

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
REASON = (
    "KUBEBUILDER_ASSETS names no folder with etcd, kube-apiserver and kube-controller-manager, or kubectl is missing"
)
START_SECONDS = 240
"""How long a part may take to start on a machine that does much else; a little less than a test may."""

SERVICES = "10.0.0.0/24"
"""The addresses of Services. The first is the server's own."""

TOKEN = "conformance"
"""The administrator's bearer token, for clients without certificates."""

KUBECTL = str(ASSETS / "kubectl") if (ASSETS / "kubectl").is_file() else shutil.which("kubectl")
KUBECTLS = [name for name in os.environ.get("KUBECTLS", str(KUBECTL or "")).split(os.pathsep) if name]
"""Each kubectl that a tenant's story is played with: ``KUBECTLS`` names several versions, as ``PATH`` names folders."""

PRESENT = (
    bool(os.environ.get("KUBEBUILDER_ASSETS"))
    and KUBECTL is not None
    and all((ASSETS / name).is_file() for name in ("etcd", "kube-apiserver", "kube-controller-manager"))
)


@dataclass
class KubeApiserver:
    """A running one: where it is, and kubeconfigs for it by user."""

    url: str
    ca: trustme.CA
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def restart(self) -> None:
        """Kill the server and start it again: where it was, on what etcd has kept."""
        number = next(i for i, each in enumerate(self.processes) if Path(each.args[0]).name == "kube-apiserver")  # type: ignore[index]
        stop([self.processes[number]])
        _, *arguments = self.processes[number].args  # type: ignore[misc]
        self.processes[number] = _spawn(self.folder, "kube-apiserver", *arguments)  # type: ignore[arg-type]
        self.wait()

    def wait(self) -> None:
        """Until it is ready."""
        context = ssl.create_default_context(cadata=self.ca.cert_pem.bytes().decode())
        _wait(
            self.folder,
            self.processes,
            lambda: b"ok" in urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=2).read(),
        )

    def kubeconfig(self, user: str, *groups: str, server: str = "", ca: str = "") -> str:
        """A kubeconfig with a client certificate of this name and these organisations."""
        certificate = self.ca.issue_cert(
            "client.example.org", common_name=user, organization_name=groups[0] if groups else None
        )
        return make_kubeconfig(
            server or self.url,
            ca or self.ca.cert_pem.bytes().decode(),
            {
                "client-certificate-data": _b64(certificate.cert_chain_pems[0].bytes()),
                "client-key-data": _b64(certificate.private_key_pem.bytes()),
            },
        )

    @cached_property
    def admin(self) -> Speaker:
        """The administrator, speaking plain HTTP."""
        return speaker_of((self.folder / "admin.kubeconfig").read_text())

    def kubectl(self, *arguments: str, config: str = "admin", stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the real kubectl."""
        assert KUBECTL is not None
        return subprocess.run(
            [KUBECTL, "--kubeconfig", str(self.folder / f"{config}.kubeconfig"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def make_kubeconfig(server: str, ca: str, user: dict[str, Any]) -> str:
    """A kubeconfig of one cluster, one user and one context."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": _b64(ca.encode())}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def start(
    folder: Path,
    processes: list[subprocess.Popen[bytes]],
    *,
    controllers: bool = True,
    serious: bool = False,
    client_cas: bytes = b"",
    authorization: Sequence[str] = ("--authorization-mode=Node,RBAC",),
    more_controllers: Sequence[str] = (),
    flags: Sequence[str] = (),
    names: Sequence[str] = (),
) -> KubeApiserver:
    """Start etcd and kube-apiserver, into ``processes``, and wait until the server is ready.

    With ``serious`` it runs as where its data counts: etcd writes to the disk before it answers, and every request is
    audited. With ``controllers`` also the controller-manager, until the bootstrap roles are filled, and the audit; without
    them nothing makes the service account that pods need, so its admission is off. ``client_cas`` (PEM) are believed beside
    its own; ``authorization`` and ``flags`` are for kube-apiserver, ``more_controllers`` for the controller-manager. ``names``
    are what else the server is called.
    """
    ca = trustme.CA()
    (folder / "ca.pem").write_bytes(ca.cert_pem.bytes())
    (folder / "ca.key").write_bytes(ca.private_key_pem.bytes())
    (folder / "clients.pem").write_bytes(ca.cert_pem.bytes() + client_cas)
    serving = ca.issue_cert("127.0.0.1", "localhost", *names)
    (folder / "server.pem").write_bytes(b"".join(pem.bytes() for pem in serving.cert_chain_pems))
    (folder / "server.key").write_bytes(serving.private_key_pem.bytes())
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "sa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    etcd_port, peer_port, port = free_port(), free_port(), free_port()
    server = KubeApiserver(f"https://127.0.0.1:{port}", ca, folder, processes)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    (folder / "admin.kubeconfig").write_text(server.kubeconfig("admin", "system:masters"))
    etcd = f"http://127.0.0.1:{etcd_port}"
    processes += [
        _spawn(
            folder,
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            *(() if serious else ("--unsafe-no-fsync",)),
        ),
        _spawn(
            folder,
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder / 'server.pem'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--client-ca-file={folder / 'clients.pem'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            f"--service-cluster-ip-range={SERVICES}",
            *authorization,
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--token-auth-file={folder / 'tokens.csv'}",
            *(() if controllers else ("--disable-admission-plugins=ServiceAccount",)),
            *(_audited(folder) if serious or controllers else ()),
            *flags,
        ),
    ]
    server.wait()
    if not controllers:
        _wait(folder, processes, lambda: server.admin.send("GET", "/api/v1/namespaces/default").status == 200)
        return server
    processes.append(
        _spawn(
            folder,
            "kube-controller-manager",
            f"--kubeconfig={folder / 'admin.kubeconfig'}",
            f"--authentication-kubeconfig={folder / 'admin.kubeconfig'}",
            f"--authorization-kubeconfig={folder / 'admin.kubeconfig'}",
            f"--service-account-private-key-file={folder / 'sa.key'}",
            f"--root-ca-file={folder / 'ca.pem'}",
            f"--cluster-signing-cert-file={folder / 'ca.pem'}",
            f"--cluster-signing-key-file={folder / 'ca.key'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'kcm'}",
            "--concurrent-namespace-syncs=4",
            "--namespace-sync-period=10s",
            "--controllers=namespace,serviceaccount,root-ca-certificate-publisher-controller,resourcequota,"
            "clusterrole-aggregation,garbagecollector,"
            + ",".join(("validatingadmissionpolicy-status-controller", *more_controllers)),
        )
    )
    _wait(folder, processes, lambda: '"verbs"' in server.kubectl("get", "clusterrole", "admin", "-o", "json").stdout)
    return server


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what ``start`` started."""
    for process in reversed(processes):
        process.kill()
        process.wait()


@contextmanager
def running(*, controllers: bool = False, **chosen: Any) -> Iterator[KubeApiserver]:
    """The real thing, as ``start`` is told, stopped and cleared away afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    folder = Path(tempfile.mkdtemp(prefix="kube-"))
    try:
        yield start(folder, processes, controllers=controllers, **chosen)
    finally:
        stop(processes)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kube_apiserver() -> Iterator[KubeApiserver]:
    """The real thing with its controllers, once for the whole run; skipped with the reason where there is none."""
    if not PRESENT:
        pytest.skip(REASON)
    with running(controllers=True) as server:
        yield server


@pytest.fixture(scope="session")
def bare_kube_apiserver() -> Iterator[Speaker]:
    """The real thing without controllers, as its administrator; skipped with the reason where there is none."""
    if not PRESENT:
        pytest.skip(REASON)
    with running() as server:
        yield server.admin


def _audited(folder: Path) -> tuple[str, ...]:
    """Who did what to which object, once a request."""
    policy = folder / "audit.yaml"
    rules = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}
    policy.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **rules}))
    return f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"


def _spawn(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([str(ASSETS / name), *arguments], stdout=log, stderr=log, cwd=folder)


def _wait(folder: Path, processes: Sequence[subprocess.Popen[bytes]], condition: Callable[[], bool]) -> None:
    """Until it is so, however slow the machine; not for a process that has ended."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if condition():
                return
        except (OSError, subprocess.TimeoutExpired):
            pass
        ended = [process.args[0] for process in processes if process.poll() is not None]
        if ended or time.monotonic() > end:
            logs = {log.name: log.read_text(errors="replace")[-1000:] for log in folder.glob("*.log")}
            raise AssertionError(f"the real kube-apiserver has not started; ended: {ended}; {logs}")
        time.sleep(0.1)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
