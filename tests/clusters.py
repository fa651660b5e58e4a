"""The clusters that provisioning is tested on: the product's own API server, and a real kube-apiserver if there is one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenants.models import Cluster, Operation, Phase, Workspace
from tenants.worker import operations_run
from tests import kubeapiserver
from tests.faultproxy import FaultProxy, write_certificate

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

    def settle(self, workspace: Workspace, *phases: Phase, seconds: float = 20) -> Workspace:
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
    for file in ("tenant-roles.yaml", "gateway-role.yaml", "fences.yaml"):
        done = kube_apiserver.kubectl("apply", "--server-side", "-f", str(MANIFESTS / file))
        assert done.returncode == 0, done.stderr
    gateway = kube_apiserver.kubeconfig("tenantry-gateway")
    certificate = write_certificate(gateway)
    proxy = FaultProxy(kube_apiserver.url, kube_apiserver.ca.cert_pem.bytes().decode(), certificate)
    proxy.start()
    config = kube_apiserver.kubeconfig("tenantry-gateway", server=proxy.url, ca=proxy.ca.cert_pem.bytes().decode())
    # Policies take a moment from their creation to their enforcement.
    end = time.monotonic() + 20
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


@pytest.fixture(params=["kube-apiserver"])
def cluster(request, db):
    """Each cluster there is, registered as the default one."""
    from tenants.services import cluster_register
    from tests.tenants.conftest import OPERATOR

    found = request.getfixturevalue(f"cluster_{request.param.replace('-', '_')}")
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
