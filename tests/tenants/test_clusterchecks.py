"""What a registered cluster must be: user, rights, fences, the credential's end (GW10)."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from kube.authentication.kubeconfig import RegisteredCluster
from tenants import manifests
from tenants.clusters.selfcheck import _expiry, expiry_of
from tenants.models import Cluster, Phase
from tenants.reconciler.loop import clusters_recheck, workspace_reconcile
from tenants.services import (
    cluster_check,
    cluster_delete,
    cluster_register,
)
from tests.clusters import MANIFESTS
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, get

pytestmark = pytest.mark.django_db


def test_the_connection_check_tells_what_is_wrong(cluster):
    assert cluster_check(actor=OPERATOR, name=cluster.kind) == ""
    assert Cluster.objects.get().last_seen_at is not None
    cluster.proxy.faults.append(Fault("401", times=10))
    assert "credential" in cluster_check(actor=OPERATOR, name=cluster.kind)


def findings() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in Cluster.objects.get().checks}


@pytest.fixture
def storage(cluster):
    """Brings classes to the cluster, of which one makes volumes that go with their claims."""
    yield lambda: cluster.kubectl("apply", "-f", "-", stdin=STORAGE)
    cluster.kubectl("delete", "-f", "-", stdin=STORAGE)


def test_the_check_proves_each_right_and_each_fence(cluster, workspace, storage):
    """GW10: by reviews and dry runs; without a workspace a tenant's attempts stay unproved, and it says so."""
    assert cluster_check(actor=OPERATOR, name=cluster.kind) == ""
    found = findings()
    names = {body["metadata"]["name"] for body in manifests.load("fences.yaml")}
    assert set(found) == {"user", "expiry", "rights", "no more rights"} | names
    assert found["tenantry-gateway-fence"]["state"] == "ok"
    assert found["tenantry-pod-fence"]["state"] == "unproved"
    cluster.settle(workspace, Phase.READY)
    storage()
    assert cluster_check(actor=OPERATOR, name=cluster.kind) == ""
    assert {row["state"] for row in findings().values()} == {"ok"}, findings()
    assert Cluster.objects.get().storage_classes == ["trial-dynamic"]
    assert workspace_reconcile(workspace.id)
    workspace = cluster.settle(workspace, Phase.READY)
    metadata = get(cluster, "namespace", "default", workspace.k8s_namespace)["metadata"]
    assert metadata["annotations"]["tenantry.io/storage-classes"] == "trial-dynamic"


STORAGE = yaml.safe_dump_all(
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **fields}
    for name, fields in {
        "trial-dynamic": {"provisioner": "example.org/disks"},
        "trial-static": {"provisioner": "kubernetes.io/no-provisioner"},
        "trial-kept": {"provisioner": "example.org/disks", "reclaimPolicy": "Retain"},
    }.items()
)


@pytest.mark.parametrize(
    "fence",
    [body["metadata"]["name"] for body in manifests.load("fences.yaml") if body["kind"] == "ValidatingAdmissionPolicy"],
)
def test_a_fence_that_is_gone_is_found_with_the_command_that_mends_it(cluster, workspace, fence):
    """Each fence in turn: its binding is taken away, the check names it, the command brings it back."""
    cluster.settle(workspace, Phase.READY)
    cluster.kubectl("delete", "validatingadmissionpolicybinding", fence)
    try:
        end = time.monotonic() + 300
        while True:
            cluster_check(actor=OPERATOR, name=cluster.kind)
            found = findings()[fence]
            if found["state"] == "failed" or time.monotonic() > end:
                break
            time.sleep(0.5)
        assert found["state"] == "failed"
        assert found["remedy"] == "kubectl apply --server-side -f tenants/manifests/fences.yaml"
    finally:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(MANIFESTS / "fences.yaml"))
    end = time.monotonic() + 300
    while findings()[fence]["state"] != "ok":
        assert time.monotonic() < end
        time.sleep(0.5)
        cluster_check(actor=OPERATOR, name=cluster.kind)


def test_clusters_are_checked_without_anybody_asking(cluster):
    assert clusters_recheck() == 1
    assert findings()["rights"]["state"] == "ok"
    assert clusters_recheck() == 0
    Cluster.objects.update(checked_at=datetime.now(UTC) - timedelta(hours=2))
    assert clusters_recheck() == 1


def test_a_missing_right_and_another_user_are_found(cluster):
    """One verb less is named; a credential of somebody else, or of an administrator, is none."""
    roles = manifests.load("gateway-role.yaml")
    less = json.loads(json.dumps(roles[0]))
    less["rules"] = [rule for rule in less["rules"] if "patch" not in rule["verbs"]]
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(less))
    try:
        assert "patch" in cluster_check(actor=OPERATOR, name=cluster.kind)
        assert "gateway-role.yaml" in findings()["rights"]["remedy"]
    finally:
        cluster.kubectl("replace", "-f", "-", stdin=json.dumps(roles[0]))
    admin = cluster.real.kubeconfig("admin", "system:masters")
    cluster_delete(actor=OPERATOR, name=cluster.kind)
    cluster_register(actor=OPERATOR, name=cluster.kind, kubeconfig=admin, is_default=True)
    assert "admin" in cluster_check(actor=OPERATOR, name=cluster.kind)
    assert findings()["no more rights"]["state"] == "failed"


@pytest.mark.parametrize(
    ("left", "state"), [(timedelta(days=30), "ok"), (timedelta(days=13), "failed"), (-timedelta(days=1), "failed")]
)
def test_the_end_of_a_credential_is_found_in_time(left, state):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int((now + left).timestamp())}).encode()).decode().rstrip("=")
    access = RegisteredCluster(server="https://x", certificate_authority=b"", token=f"a.{claims}.b")
    assert expiry_of(access) == now + left
    assert _expiry(access, now).state == state


def test_a_credential_without_an_end_is_named():
    assert (
        _expiry(
            RegisteredCluster(server="https://x", certificate_authority=b"", token="static"), datetime.now(UTC)
        ).state
        == "unproved"
    )
