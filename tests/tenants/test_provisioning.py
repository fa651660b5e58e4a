"""Workspaces on a cluster: made, closed, brought back, ended, whatever goes wrong (GW1, GW5, GW15)."""

from __future__ import annotations

import json
import time

import pytest

from audit.models import AuditEntry
from audit.verifying import chain_flaw
from tenants.models import Cluster, Operation, OperationState, Phase, Workspace
from tenants.reconciler.loop import operations_run, workspace_reconcile
from tenants.services import (
    tenant_resume,
    tenant_suspend,
    tier_change,
    workspace_delete,
    workspace_resume,
    workspace_suspend,
)
from tenants.suspensions import locks_all
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, get

pytestmark = pytest.mark.django_db

STEPS = [
    "shown",
    "old-accounts",
    "namespace",
    "network-policy",
    "quota",
    "limits",
    "quota-counted",
    "service-accounts",
    "old-tokens",
    "role-bindings",
    "restored-bindings",
]


def test_a_workspace_is_made_with_rights_last(cluster, workspace):
    """GW1."""
    assert workspace.k8s_namespace == f"tenant-{workspace.id.hex[:8]}"
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    assert get(cluster, "resourcequota", ns, "tenantry-quota")["status"]["hard"]["requests.cpu"] == "4"
    assert get(cluster, "limitrange", ns, "tenantry-limits")["spec"]["limits"] == workspace.tier.limit_range
    assert set(workspace.service_accounts) == {"sa-tenant-admin", "sa-tenant-edit", "sa-tenant-view"}
    assert all(workspace.service_accounts.values())
    assert len(get(cluster, "rolebindings", ns)["items"]) == 3
    written = [path for method, path, code in cluster.proxy.calls if method == "POST" and code == 201]
    assert "rolebindings" in written[-1]
    operation = Operation.objects.get(workspace=workspace)
    assert [done["step"] for done in operation.steps_done] == STEPS
    assert operation.state == OperationState.DONE
    can = cluster.kubectl(
        "auth", "can-i", "create", "pods", "-n", ns, f"--as=system:serviceaccount:{ns}:sa-tenant-admin"
    )
    assert can.strip() == "yes"
    for verb, thing in (
        ("create", "serviceaccounts --subresource=token"),
        ("create", "pods --subresource=binding"),
        ("update", "resourcequotas"),
    ):
        me = f"--as=system:serviceaccount:{ns}:sa-tenant-admin"
        can = cluster.kubectl("auth", "can-i", verb, *thing.split(), "-n", ns, me)
        assert can.strip().endswith("no"), (verb, thing)
    actions = list(AuditEntry.objects.filter(workspace_id=workspace.id).values_list("action", flat=True))
    assert set(actions) == {"workspace.create", "workspace.ready"}
    assert chain_flaw("acme") is None


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop-before", "POST"),
        Fault("drop-after", "POST", times=2),
        Fault("drop-after", "POST", "namespaces$"),
        Fault("drop-after", "POST", "rolebindings"),
        Fault("drop-after", "GET", times=3),
        Fault("409", "POST", "serviceaccounts"),
        Fault("429", "POST", "resourcequotas", retry_after="1"),
        Fault("500", ".", "limitranges", times=2),
        Fault("503", ".", "namespaces", times=2),
        Fault("truncated", "GET", "serviceaccounts"),
        Fault("html", "GET"),
        Fault("html", "POST", "rolebindings"),
        Fault("huge", "GET", "resourcequotas"),
        Fault("redirect", "GET", "namespaces"),
        Fault("delay", "."),
    ],
    ids=lambda fault: f"{fault.action}-{fault.method}-{fault.path}",
)
def test_a_fault_of_the_cluster_delays_and_doubles_nothing(cluster, workspace, fault):
    cluster.proxy.faults.append(Fault(**{**fault.__dict__, "hits": 0}))
    started = time.monotonic()
    workspace = cluster.settle(workspace, Phase.READY)
    if fault.retry_after:
        assert time.monotonic() - started >= int(fault.retry_after)
    assert cluster.proxy.faults[0].hits == fault.times
    assert len(get(cluster, "rolebindings", workspace.k8s_namespace)["items"]) == 3
    created = [path for method, path, code in cluster.proxy.calls if method == "POST" and code == 201]
    assert len(created) == len(set(created)) + 4  # three accounts and three bindings share two collections


def test_a_refusal_is_told_in_words_and_tried_again_later(cluster, workspace):
    cluster.proxy.faults.append(Fault("403", "POST", "resourcequotas"))
    operations_run(workspace_id=workspace.id)
    operation = Operation.objects.get()
    assert operation.state == OperationState.FAILED
    assert "refused" in operation.error
    assert AuditEntry.objects.filter(action="workspace.fail", outcome="failure").count() == 1
    Operation.objects.update(not_before=operation.created_at)
    cluster.settle(workspace, Phase.READY)


def test_a_cluster_that_is_away_holds_up_nobody_else(cluster, workspace):
    away = Fault("drop-before", times=10**6)
    cluster.proxy.faults.append(away)
    operations_run()
    assert away.hits == 1
    assert Cluster.objects.get().last_error
    assert operations_run() == 0
    cluster.proxy.heal()
    cluster.settle(workspace, Phase.READY)
    assert Cluster.objects.get().last_error == ""


def test_a_foreign_namespace_is_never_adopted(cluster, workspace):
    cluster.kubectl("create", "namespace", workspace.k8s_namespace)
    operations_run(workspace_id=workspace.id)
    operation = Operation.objects.get()
    assert operation.state == OperationState.FAILED
    assert "was not made for this workspace" in operation.error
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    cluster.settle(workspace, Phase.DELETED)
    assert get(cluster, "namespace", "default", workspace.k8s_namespace), "somebody else's namespace was deleted"


def test_a_changed_tier_reaches_its_workspaces(cluster, workspace):
    """GW2."""
    workspace = cluster.settle(workspace, Phase.READY)
    quota = {"requests.cpu": "2", "pods": "5"}
    tier_change(actor=OPERATOR, name="basic", quota=quota)
    workspace = cluster.settle(workspace, Phase.READY)
    assert get(cluster, "resourcequota", workspace.k8s_namespace, "tenantry-quota")["spec"]["hard"] == quota


def suspend(workspace: Workspace) -> None:
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")


def test_a_suspension_is_shown_only_when_it_is_proved(cluster, workspace):
    """GW5, P4, P5."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns, uids = workspace.k8s_namespace, set(workspace.service_accounts.values())
    cluster.kubectl("create", "rolebinding", "backdoor", "--clusterrole=admin", "--user=mallory", "-n", ns)
    suspend(workspace)
    assert locks_all() == {("root:acme", ns): "mining"}
    cluster.proxy.faults.append(Fault("drop-before", times=10**6))
    operations_run(workspace_id=workspace.id)
    assert Workspace.objects.get().phase == Phase.SUSPENDING
    cluster.proxy.heal()
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    assert get(cluster, "rolebindings", ns)["items"] == []
    accounts = [item["metadata"]["name"] for item in get(cluster, "serviceaccounts", ns)["items"]]
    assert accounts == ["default"]
    assert [layer["layer"] for layer in workspace.receipt] == [
        "lock",
        "bindings",
        "canary",
        "service-accounts",
        "anchors",
        "streams",
        "own-accounts",
    ]
    assert [layer["layer"] for layer in workspace.receipt if not layer["verified"]] == ["streams"]
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    assert locks_all(), "the door opens only when the worker is done"
    workspace = cluster.settle(workspace, Phase.READY)
    assert locks_all() == {}
    assert uids.isdisjoint(workspace.service_accounts.values())
    assert len(get(cluster, "rolebindings", ns)["items"]) == 3
    (left,) = workspace.saved_bindings
    assert left["metadata"]["name"] == "backdoor"
    assert "refused" in left


def test_a_binding_held_by_a_finalizer_is_never_called_suspended(cluster, workspace):
    """CT-11: DELETE answers 200 and the binding stays."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    held = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "held", "namespace": ns, "finalizers": ["example.org/hold"]},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(held))
    suspend(workspace)
    end = time.monotonic() + 300
    while "held" not in Operation.objects.get(desired="suspended").error:
        assert time.monotonic() < end
        operations_run(workspace_id=workspace.id)
        time.sleep(0.1)
    operations_run(workspace_id=workspace.id)
    assert Workspace.objects.get().phase == Phase.SUSPENDING
    cluster.kubectl("patch", "rolebinding", "held", "-n", ns, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster.settle(workspace, Phase.SUSPENDED)


@pytest.mark.parametrize("step", STEPS)
def test_a_suspension_in_the_middle_of_provisioning_wins(cluster, workspace, step, monkeypatch):
    from tenants import operationqueue

    pulled = []

    def pull_the_switch(name: str) -> None:
        if name == f"{step}.called":
            pulled.append(suspend(workspace))

    monkeypatch.setattr(operationqueue, "failpoint", pull_the_switch)
    end = time.monotonic() + 300
    while not pulled and time.monotonic() < end:
        # A cluster that has not counted the quota yet makes the worker come again.
        operations_run(limit=1, workspace_id=workspace.id)
    monkeypatch.undo()
    cluster.settle(workspace, Phase.SUSPENDED)
    assert not get(cluster, "rolebindings", workspace.k8s_namespace)["items"]
    assert Operation.objects.filter(state=OperationState.SUPERSEDED).count() == 1


def test_what_a_restored_backup_brings_back_is_taken_away_again(cluster, workspace):
    workspace = cluster.settle(workspace, Phase.READY)
    suspend(workspace)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    ns = workspace.k8s_namespace
    assert workspace_reconcile(workspace.id) == []
    cluster.kubectl("create", "rolebinding", "revived", "--clusterrole=admin", "--user=mallory", "-n", ns)
    assert workspace_reconcile(workspace.id) == ["the RoleBinding revived is back"]
    assert Workspace.objects.get().phase == Phase.SUSPENDING
    cluster.settle(workspace, Phase.SUSPENDED)
    assert get(cluster, "rolebindings", ns)["items"] == []


def test_a_deleted_workspace_leaves_nothing_but_its_row(cluster, workspace):
    workspace = cluster.settle(workspace, Phase.READY)
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    workspace_delete(actor=OPERATOR, workspace_id=workspace.id)
    workspace = cluster.settle(workspace, Phase.DELETED)
    assert get(cluster, "namespace", "default", workspace.k8s_namespace) == {}
    assert workspace.deleted_at is not None
    assert locks_all() == {}


def test_a_suspended_tenant_takes_its_workspaces_along_and_brings_them_back(cluster, workspace):
    workspace = cluster.settle(workspace, Phase.READY)
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    cluster.settle(workspace, Phase.SUSPENDED)
    tenant_resume(actor=OPERATOR, name="acme")
    workspace = cluster.settle(workspace, Phase.READY)
    assert locks_all() == {}
