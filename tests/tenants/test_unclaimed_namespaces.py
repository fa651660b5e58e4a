"""Namespaces on a cluster that carry our labels and belong to nobody (GW12)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from audit.actions import Action
from audit.models import AuditEntry
from tenants.clusters import unclaimednamespaces
from tenants.models import Cluster, Phase, Workspace
from tenants.services import cluster_check, cluster_register, workspace_abandon, workspace_delete
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, get

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_from_other_tests(cluster: TestCluster) -> None:
    """The cluster outlives the databases of tests: to this one the workspaces of all others are nobody's."""
    cluster.kubectl("delete", "namespace", "-l", "app.kubernetes.io/managed-by=tenantry", "--wait=false")


def nobodys(cluster: TestCluster) -> list[str]:
    """The names that a check finds."""
    cluster_check(actor=OPERATOR, name=cluster.kind)
    return [each["name"] for each in Cluster.objects.get(name=cluster.kind).unclaimed_namespaces]


def left(cluster: TestCluster, *names: str, workspace: object = None) -> None:
    """Namespaces as another database's workspaces have left them."""
    labels = {
        "app.kubernetes.io/managed-by": "tenantry",
        "tenantry.io/tenant": "acme",
        "tenantry.io/workspace": str(workspace or uuid4()),
    }
    bodies = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}} for name in names]
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))


def metadata_of(cluster: TestCluster, name: str) -> dict[str, Any]:
    return dict(get(cluster, "namespace", "default", name)["metadata"])


def test_what_a_workspace_that_was_given_up_has_left_is_named(cluster: TestCluster, workspace: Workspace) -> None:
    """While it lives it is somebody's, under whichever name its cluster is registered; the namespace itself is left alone."""
    workspace = cluster.settle(workspace, Phase.READY)
    again = cluster.real.kubeconfig("tenantry-gateway")
    cluster_register(actor=OPERATOR, name="under-another-name", kubeconfig=again)
    cluster_check(actor=OPERATOR, name="under-another-name")
    assert Cluster.objects.get(name="under-another-name").unclaimed_namespaces == []
    assert nobodys(cluster) == []
    before = metadata_of(cluster, workspace.k8s_namespace)
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    assert nobodys(cluster) == [], "on its way to its end"
    Cluster.objects.filter(name=cluster.kind).update(last_error="The cluster cannot be reached.")
    workspace_abandon(actor=OPERATOR, workspace_id=workspace.id, reason="the cluster was lost")
    assert nobodys(cluster) == [workspace.k8s_namespace]
    (found,) = Cluster.objects.get(name=cluster.kind).unclaimed_namespaces
    assert (found["uid"], found["tenant"]) == (before["uid"], workspace.tenant_id)
    assert (found["workspace"], found["created_at"]) == (str(workspace.id), before["creationTimestamp"])
    told = AuditEntry.objects.filter(action=Action.CLUSTER_CHECKED).order_by("-sequence").first()
    assert told is not None
    assert told.detail["unclaimed_namespaces"] == 1
    assert metadata_of(cluster, workspace.k8s_namespace) == before
    cluster.kubectl("delete", "namespace", workspace.k8s_namespace, "--wait=false")
    assert nobodys(cluster) == []


def test_what_a_living_workspace_may_be_about_to_take_is_not_nobodys(
    cluster: TestCluster, workspace: Workspace
) -> None:
    """It was made a moment ago, or came back on the cluster from a backup: not to be deleted before its workspace is asked."""
    left(cluster, workspace.k8s_namespace, workspace=workspace.id)
    assert nobodys(cluster) == []
    cluster.kubectl("label", "namespace", workspace.k8s_namespace, "--overwrite", f"tenantry.io/workspace={uuid4()}")
    assert nobodys(cluster) == [workspace.k8s_namespace]


def test_many_are_read_page_by_page(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are shown, and no page more."""
    monkeypatch.setattr(unclaimednamespaces, "_PAGE", 3)
    names = [f"left-{number:02}" for number in range(10)]
    left(cluster, *names)
    cluster.proxy.heal()
    assert nobodys(cluster) == names
    monkeypatch.setattr(unclaimednamespaces, "KEPT", 5)
    assert nobodys(cluster) == names[:5]


def test_a_cluster_that_does_not_say_changes_nothing(cluster: TestCluster) -> None:
    left(cluster, "left-alone")
    assert nobodys(cluster) == ["left-alone"]
    cluster.proxy.faults.append(Fault("503", path="labelSelector", times=1))
    assert nobodys(cluster) == ["left-alone"]
