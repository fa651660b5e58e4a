"""The clusters to provision on: the product's own API server, and a real kube-apiserver where there is one."""

from __future__ import annotations

import base64
import copy
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from cryptography.fernet import Fernet

from tenants.models import Cluster, Operation, Phase, Workspace
from tenants.reconciler.loop import operations_run
from tests import kubeapiserver
from tests.apiserver import ANY_PACE
from tests.faultproxy import FaultProxy, write_certificate
from tests.ports import free_port
from tests.speaking import without_server_fields
from tests.story.product import eventually

STANDING = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
)
"""What holds for whoever uses a cluster. Namespaces do not: each tenant of a test has its own."""

MANIFESTS = Path(__file__).parent.parent / "tenants" / "manifests"


@dataclass
class TestCluster:
    """A cluster behind a fault proxy: the gateway reaches it only through the proxy."""

    __test__ = False

    kind: str
    proxy: FaultProxy
    gateway_kubeconfig: str
    real: kubeapiserver.KubeApiserver

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """As the cluster's administrator; the output, or the error."""
        done = self.real.kubectl(*arguments, stdin=stdin)
        return done.stdout or done.stderr

    def standing(self) -> dict[str, dict[str, Any]]:
        """What holds there for everybody, as it is meant, by kind and name."""
        lists = {path: self.real.admin.send("GET", path).body["items"] for path in STANDING}
        return {
            f"{path}/{item['metadata']['name']}": {**without_server_fields(item), "status": None}
            for path, items in lists.items()
            for item in items
        }

    def lets_in(self, look: Callable[[], int]) -> None:
        """``look`` is answered 200 by a right just given: here at once, by others once their informers have heard."""
        if self.kind == "embedded":
            assert look() == 200
        else:
            eventually(lambda: look() == 200)

    def settle(self, workspace: Workspace, *phases: Phase, seconds: float = 300) -> Workspace:
        """Work until the workspace is in one of the phases."""
        end = time.monotonic() + seconds
        while True:
            operations_run(workspace_id=workspace.id)
            workspace = Workspace.objects.select_related("tenant", "tier", "cluster", "user").get(pk=workspace.pk)
            if workspace.phase in phases and workspace.observed_generation == workspace.generation:
                return workspace
            if time.monotonic() > end:
                rows = list(Operation.objects.filter(workspace=workspace).values("state", "step", "error", "attempts"))
                raise AssertionError(f"still {workspace.phase}: {rows}")
            time.sleep(0.05)
            Cluster.objects.update(away_until=None)


@pytest.fixture(scope="session")
def cluster_kube_apiserver(kube_apiserver):
    """The real kube-apiserver with our manifests applied, behind a proxy."""
    with prepared(kube_apiserver) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(cluster_kube_apiserver: TestCluster) -> Iterator[None]:
    """The cluster of all modules is left by each as it was found: nobody's test depends on whose came before."""
    found = cluster_kube_apiserver.standing()
    yield
    end = time.monotonic() + 300
    # What is deleted is gone, and roles are aggregated, a moment later.
    while (left := cluster_kube_apiserver.standing()) != found:
        changed = sorted(name for name in {*found, *left} if found.get(name) != left.get(name))
        assert time.monotonic() < end, f"the module leaves the cluster another one: {changed}"
        time.sleep(0.1)
    assert not cluster_kube_apiserver.proxy.faults, "the module leaves the cluster behind a faulty proxy"


@contextmanager
def prepared(kube_apiserver: kubeapiserver.KubeApiserver) -> Iterator[TestCluster]:
    """A kube-apiserver with our manifests applied, behind a proxy."""
    for file in ("tenant-roles.yaml", "gateway-role.yaml", "fences.yaml", "mutations.yaml"):
        done = kube_apiserver.kubectl("apply", "--server-side", "-f", str(MANIFESTS / file))
        assert done.returncode == 0, done.stderr
    gateway = kube_apiserver.kubeconfig("tenantry-gateway")
    certificate = write_certificate(gateway)
    proxy = FaultProxy(kube_apiserver.url, kube_apiserver.ca.cert_pem.bytes().decode(), certificate)
    proxy.start()
    config = kube_apiserver.kubeconfig("tenantry-gateway", server=proxy.url, ca=proxy.ca.cert_pem.bytes().decode())
    # Policies take a moment from their creation to their enforcement.
    end = time.monotonic() + 300
    while (
        "denied"
        not in kube_apiserver.kubectl(
            "create", "namespace", "not-ours", "--as=tenantry-gateway", "--dry-run=server"
        ).stderr
    ):
        assert time.monotonic() < end, "the fences do not hold"
        time.sleep(0.2)
    yield TestCluster("kube-apiserver", proxy, config, kube_apiserver)
    proxy.stop()
    certificate.unlink()


@pytest.fixture(scope="session")
def sealing_key() -> str:
    """What all API servers on the tests' own database open credentials of clusters with.

    As in any installation: whichever of them leads works with the clusters of all, as long as it lives.
    """
    return Fernet.generate_key().decode()


@pytest.fixture(scope="session")
def cluster_embedded(django_db_setup, django_db_blocker, sealing_key, tmp_path_factory):
    """The product's own API server as a process on the tests' database, behind a proxy."""
    from django.db import connection

    from kube.authentication import pki

    folder = tmp_path_factory.mktemp("embedded")
    with django_db_blocker.unblock():
        database = connection.settings_dict["NAME"]
    given = urlsplit(os.environ["DATABASE_URL"])
    port = free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": urlunsplit(given._replace(path=f"/{database}")),
        "TENANTRY_DATA_DIR": str(folder),
        "TENANTRY_SEALING_KEYS": sealing_key,
    }
    command = [
        sys.executable,
        "manage.py",
        "apiserver",
        f"--secure-port={port}",
        "--service-account-issuer=https://api.example.org",
        *ANY_PACE,
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=MANIFESTS.parent.parent)
    try:
        end = time.monotonic() + 300
        while b"API server at" not in (folder / "log").read_bytes():
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
            time.sleep(0.1)
        authority = pki.KeyPair(
            (folder / "pki/client-ca.crt").read_bytes(), (folder / "pki/client-ca.key").read_bytes()
        )
        certificate = pki.make_client_certificate(
            authority,
            "tenantry-gateway",
            organizations=["tenant:system"],
            now=datetime.now(UTC),
            lifetime=timedelta(days=1),
        )
        pair = folder / "gateway.pem"
        pair.write_bytes(certificate.certificate + b"\n" + certificate.key)
        proxy = FaultProxy(f"https://127.0.0.1:{port}", (folder / "pki/ca.crt").read_text(), pair)
        proxy.start()
        user = {
            "client-certificate-data": base64.b64encode(certificate.certificate).decode(),
            "client-key-data": base64.b64encode(certificate.key).decode(),
        }
        config = kubeapiserver.make_kubeconfig(proxy.url, proxy.ca.cert_pem.bytes().decode(), user)
        yield TestCluster("embedded", proxy, config, kubeapiserver.KubeApiserver("", proxy.ca, folder))
        proxy.stop()
    finally:
        process.terminate()
        process.wait(300)


@pytest.fixture
def embedded(cluster_embedded, transactional_db):
    """The embedded cluster, its gateway's role written to the system space, registered as the default one."""
    from store import synchronous
    from store.types import Create, Key
    from tenants import manifests
    from tenants.services import cluster_register
    from tests.tenants.conftest import OPERATOR

    group = "rbac.authorization.k8s.io"
    synchronous.commit(
        [
            Create(Key("root", group, f"{body['kind'].lower()}s", "", body["metadata"]["name"]), copy.deepcopy(body))
            for body in manifests.load("embedded-gateway-role.yaml")
        ]
    )
    cluster_embedded.proxy.heal()
    cluster_register(
        actor=OPERATOR,
        name="embedded",
        kubeconfig=cluster_embedded.gateway_kubeconfig,
        kind=Cluster.Kind.EMBEDDED,
        is_default=True,
    )
    yield cluster_embedded
    cluster_embedded.proxy.heal()


@pytest.fixture(params=["kube-apiserver"])
def cluster(request, db):
    """A cluster registered as the default one.

    The real one by default: it does not see the database, so tests may roll back. The product's own needs committed
    tests (``transaction=True``), which ask for both by parametrizing this fixture.
    """
    from tenants.services import cluster_register
    from tests.tenants.conftest import OPERATOR

    if request.param == "embedded":
        yield request.getfixturevalue("embedded")
        return
    found = request.getfixturevalue(f"cluster_{request.param.replace('-', '_')}")
    request.getfixturevalue("undisturbed")
    found.proxy.heal()
    cluster_register(
        actor=OPERATOR,
        name=found.kind,
        kubeconfig=found.gateway_kubeconfig,
        kind=Cluster.Kind.EXTERNAL,
        is_default=True,
    )
    yield found
    found.proxy.heal()
