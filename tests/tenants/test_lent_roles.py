"""Bindings that a cluster's people made come back after a suspension, where the gateway has been lent their role (GW5, GW10)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from tenants.models import Phase, Workspace
from tenants.services import workspace_resume, workspace_suspend
from tests.clusters import TestCluster
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db


def suspended_and_resumed(cluster: TestCluster, workspace: Workspace) -> Workspace:
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="mining")
    cluster.settle(workspace, Phase.SUSPENDED)
    workspace_resume(actor=OPERATOR, workspace_id=workspace.pk)
    # The cluster's memory of tokens is measured elsewhere.
    Workspace.objects.filter(pk=workspace.pk).update(accounts_gone_at=timezone.now() - timedelta(minutes=1))
    return cluster.settle(workspace, Phase.READY)


@pytest.fixture
def auditor(cluster: TestCluster) -> Iterator[str]:
    """A ClusterRole of the cluster's people."""
    cluster.kubectl("create", "clusterrole", "auditor", "--verb=list", "--resource=pods")
    yield "auditor"
    for thing in ("clusterrole/auditor", "clusterrole/lent", "clusterrolebinding/lent"):
        cluster.kubectl("delete", thing)


def lend(cluster: TestCluster, role: str) -> None:
    """What docs/operators/operations.md tells the cluster's people to do."""
    cluster.kubectl(
        "create", "clusterrole", "lent", "--verb=bind", "--resource=clusterroles.rbac.authorization.k8s.io",
        f"--resource-name={role}",
    )  # fmt: skip
    cluster.kubectl("create", "clusterrolebinding", "lent", "--clusterrole=lent", "--user=tenantry-gateway")
    end = time.monotonic() + 300
    while "yes" not in cluster.kubectl("auth", "can-i", "bind", f"clusterroles/{role}", "--as=tenantry-gateway"):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_binding_of_the_clusters_people_comes_back_with_a_role_that_is_lent(cluster, workspace, auditor):
    """Without it the binding stays listed, with the reason."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    cluster.kubectl("create", "rolebinding", "audit", f"--clusterrole={auditor}", "--user=carol", "-n", ns)
    workspace = suspended_and_resumed(cluster, workspace)
    assert "audit" not in cluster.kubectl("get", "rolebindings", "-n", ns, "-o", "name")
    (left,) = workspace.saved_bindings
    assert (left["metadata"]["name"], "refused" in left["refused"]) == ("audit", True)
    lend(cluster, auditor)
    workspace = suspended_and_resumed(cluster, workspace)
    assert workspace.saved_bindings == []
    found = json.loads(cluster.kubectl("get", "rolebinding", "audit", "-n", ns, "-o", "json"))
    assert [subject["name"] for subject in found["subjects"]] == ["carol"]


@pytest.mark.parametrize(
    ("role", "subject"), [("auditor", "tenantry-gateway"), ("view", "carol"), ("cluster-admin", "carol")]
)
def test_a_stolen_gateway_credential_gets_no_role_for_itself_and_none_that_is_not_lent(
    cluster, workspace, auditor, role, subject
):
    """P6."""
    workspace = cluster.settle(workspace, Phase.READY)
    lend(cluster, auditor)
    out = cluster.kubectl(
        "create", "rolebinding", "stolen", f"--clusterrole={role}", f"--user={subject}", "-n", workspace.k8s_namespace,
        "--as=tenantry-gateway", "--dry-run=server",
    )  # fmt: skip
    assert "denied" in out or "forbidden" in out, out
