"""What somebody changed on a cluster is found, recorded and put right (PR-28)."""

from __future__ import annotations

import json

import pytest

from audit.models import AuditEntry
from kube.requests.status import Invalid
from tenants.models import Cluster, Operation, OperationState, Phase
from tenants.reconciler.loop import operations_run, workspace_reconcile
from tenants.services import cluster_change, tenant_policies_change, tier_change
from tests.tenants.conftest import OPERATOR, get

pytestmark = pytest.mark.django_db

FENCED = ("priority-classes", "tolerations", "node-names", "node-labels", "affinity-namespaces")
"""What the fences on a cluster are told of."""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (("delete", "resourcequota", "tenantry-quota"), "quota"),
        (("delete", "rolebinding", "tenantry-admin"), "tenantry-admin"),
        (("delete", "serviceaccount", "sa-tenant-admin"), "sa-tenant-admin"),
        (("patch", "limitrange", "tenantry-limits", "--type=merge", "-p", '{"spec":{"limits":[]}}'), "limits"),
        (
            (
                "patch",
                "rolebinding",
                "tenantry-view",
                "--type=json",
                "-p",
                '[{"op":"add","path":"/subjects/-","value":{"kind":"User","name":"mallory"}}]',
            ),
            "tenantry-view",
        ),
    ],
)
def test_drift_is_found_recorded_and_repaired(cluster, workspace, damage, words):
    """PR-28."""
    workspace = cluster.settle(workspace, Phase.READY)
    assert workspace_reconcile(workspace.id) == []
    out = cluster.kubectl(*damage, "-n", workspace.k8s_namespace)
    (found,) = workspace_reconcile(workspace.id)
    assert words in found, out
    cluster.settle(workspace, Phase.READY)
    Operation.objects.get(state=OperationState.DONE)
    assert workspace_reconcile(workspace.id) == []
    assert AuditEntry.objects.filter(action="workspace.drift").count() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}, "pod security"),
        ({"labels": {"pod-security.kubernetes.io/enforce": None}}, "pod security"),
        ({"labels": {"tenantry.io/workspace": None}}, "lost its labels"),
        ({"labels": {"app.kubernetes.io/managed-by": "somebody", "tenantry.io/tenant": None}}, "lost its labels"),
        ({"annotations": {"tenantry.io/hosts": "bank.example.org"}}, "marks"),
    ],
)
def test_marks_that_somebody_changed_on_the_namespace_come_back(cluster, workspace, change, words):
    """PR-28: without its labels no fence holds there."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    before = get(cluster, "namespace", "default", ns)["metadata"]
    cluster.kubectl("patch", "namespace", ns, "--type=merge", "-p", json.dumps({"metadata": change}))
    assert words in workspace_reconcile(workspace.id)[0]
    assert AuditEntry.objects.filter(action="workspace.drift").count() == 1
    cluster.settle(workspace, Phase.READY)
    after = get(cluster, "namespace", "default", ns)["metadata"]
    assert (after["labels"], after["annotations"]) == (before["labels"], before["annotations"])
    assert workspace_reconcile(workspace.id) == []


def test_a_replaced_subject_is_drift_and_is_put_right(cluster, workspace):
    """PR-28: one subject, but another."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    other = [{"kind": "ServiceAccount", "name": "default", "namespace": ns}]
    patch = json.dumps({"subjects": other})
    cluster.kubectl("patch", "rolebinding", "tenantry-admin", "-n", ns, "--type=merge", "-p", patch)
    assert workspace_reconcile(workspace.id) == ["the RoleBinding tenantry-admin differs"]
    cluster.settle(workspace, Phase.READY)
    (subject,) = get(cluster, "rolebinding", ns, "tenantry-admin")["subjects"]
    assert subject["name"] == "sa-tenant-admin"


def test_a_binding_that_the_cluster_would_not_make_costs_no_working_one(cluster, workspace):
    """A role that the gateway may not bind is refused before the old binding is touched."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    Cluster.objects.update(tenant_role="admin")
    assert workspace_reconcile(workspace.id)
    operations_run(workspace_id=workspace.id)
    assert Operation.objects.get().state == OperationState.FAILED
    assert get(cluster, "rolebinding", ns, "tenantry-admin")["roleRef"]["name"] == "tenantry-tenant-admin"


@pytest.mark.parametrize("role", ["admin", "cluster-admin", "x", ""])
def test_a_role_that_the_fences_do_not_know_is_refused_when_it_is_set(cluster, role):
    with pytest.raises(Invalid, match="tenant_role"):
        cluster_change(actor=OPERATOR, name=cluster.kind, tenant_role=role)
    cluster_change(actor=OPERATOR, name=cluster.kind, tenant_role="tenantry-tenant-edit")


def test_a_tiers_boundaries_reach_its_workspaces(cluster, workspace):
    """GW2: pod security and network are the tier's choice."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    assert get(cluster, "networkpolicy", ns, "tenantry-default")["spec"]["egress"]
    tier_change(
        actor=OPERATOR,
        name="basic",
        pod_security="restricted",
        network="open",
        policies={"priority_classes": ["batch"], "tolerations": ["spot", "gpu=yes:NoSchedule"], "node_names": None},
    )
    cluster.settle(workspace, Phase.READY)
    metadata = get(cluster, "namespace", "default", ns)["metadata"]
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    opened = {name: metadata["annotations"][f"tenantry.io/{name}"] for name in FENCED}
    assert opened == {
        "priority-classes": "batch",
        "tolerations": "spot,gpu=yes:NoSchedule",
        "node-names": "*",
        "node-labels": "",
        "affinity-namespaces": "",
    }
    own = {"tolerations": [], "affinity_namespaces": ["shared"]}
    tenant_policies_change(actor=OPERATOR, name=workspace.tenant_id, policies=own)
    cluster.settle(workspace, Phase.READY)
    annotations = get(cluster, "namespace", "default", ns)["metadata"]["annotations"]
    assert {name for name in FENCED if annotations[f"tenantry.io/{name}"] != opened[name]} == {
        "tolerations",
        "affinity-namespaces",
    }
    assert get(cluster, "networkpolicy", ns, "tenantry-default")["spec"]["ingress"] == [{}]
    tier_change(actor=OPERATOR, name="basic", network="internet")
    cluster.settle(workspace, Phase.READY)
    assert workspace_reconcile(workspace.id) == []


def test_amounts_that_a_cluster_writes_its_own_way_are_no_drift(cluster, workspace):
    """PR-28: 1000 comes back as 1k, 1500m as it is, 1024Mi as 1Gi."""
    cluster.settle(workspace, Phase.READY)
    quota = {"requests.cpu": "1500m", "requests.memory": "1024Mi", "count/configmaps": "1000"}
    limits = [{"type": "Container", "default": {"cpu": "1000m"}, "defaultRequest": {"cpu": "1000m"}}]
    tier_change(actor=OPERATOR, name="basic", quota=quota, limit_range=limits)
    cluster.settle(workspace, Phase.READY)
    assert workspace_reconcile(workspace.id) == []
