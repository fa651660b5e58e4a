"""The kill switch on a real cluster: it cannot be held, outrun or left, and says what goes on (GW5, P4, P5)."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from django.utils import timezone

from access.credentials import credential_revoke, credentials_expire, kubeconfig_issue
from access.models import Credential
from kube.requests.status import Conflict, Forbidden
from tenants.clusters import objects
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import client_for
from tenants.models import Cluster, Operation, OperationState, Phase, Status, Workspace
from tenants.reconciler.loop import operations_run, workspace_reconcile
from tenants.selectors import workspaces_visible_to
from tenants.services import (
    cluster_check,
    cluster_register,
    tenant_delete,
    tenant_suspend,
    workspace_delete,
    workspace_init,
    workspace_resume,
    workspace_suspend,
)
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user

pytestmark = pytest.mark.django_db

HELD = "example.org/held"


@pytest.fixture
def alice(tiers):
    user = make_user()
    make_tenant("acme", user)
    return user


def make(cluster: TestCluster, user, name: str = "web") -> Workspace:
    workspace = workspace_init(actor=actor_of(user), user=user, tier="basic", name=name)
    return cluster.settle(workspace, Phase.READY)


@pytest.fixture
def workspace(cluster, alice) -> Workspace:
    return make(cluster, alice)


def issue(workspace: Workspace) -> tuple[str, Credential]:
    issued = kubeconfig_issue(
        actor=actor_of(workspace.user), workspace_id=workspace.id, kind="direct", now=timezone.now()
    )
    return yaml.safe_load(issued.yaml)["users"][0]["user"]["token"], issued.credential


def status_of(cluster: TestCluster, token: str, workspace: Workspace, resource: str = "secrets") -> int:
    context = ssl.create_default_context(cadata=cluster.proxy.ca.cert_pem.bytes().decode())
    url = f"{cluster.proxy.url}/api/v1/namespaces/{workspace.k8s_namespace}/{resource}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        return urllib.request.urlopen(request, context=context, timeout=300).status
    except urllib.error.HTTPError as error:
        return error.code


def suspend(workspace: Workspace, **fields) -> Workspace:
    return workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining", **fields)


def replace_anchor(cluster: TestCluster, workspace: Workspace, anchor: str) -> None:
    """What a tenant's admin may do without any fence: a Secret of its own under the anchor's name."""
    cluster.kubectl("delete", "secret", anchor, "-n", workspace.k8s_namespace)
    cluster.kubectl("create", "secret", "generic", anchor, "-n", workspace.k8s_namespace)


def hold_anchor(cluster: TestCluster, workspace: Workspace, anchor: str) -> None:
    """Our label taken off, then a finalizer set, which no fence that goes by the label sees."""
    for patch in ({"labels": None}, {"finalizers": [HELD]}):
        body = json.dumps({"metadata": patch})
        out = cluster.kubectl("patch", "secret", anchor, "-n", workspace.k8s_namespace, "--type=merge", "-p", body)
        assert "patched" in out, out


@pytest.mark.parametrize("hostile", [replace_anchor, hold_anchor])
def test_an_anchor_that_a_tenant_touched_holds_up_no_suspension(cluster, workspace, hostile):
    """Held: the accounts go before the anchors, and no token from before comes back with a resume."""
    token, credential = issue(workspace)
    hostile(cluster, workspace, credential.anchor)
    suspend(workspace)
    operations_run(workspace_id=workspace.id, limit=1)
    workspace.refresh_from_db()
    assert workspace.phase == Phase.SUSPENDED
    assert status_of(cluster, token, workspace) in {401, 403}
    assert not Credential.objects.filter(revoked_at=None).exists()
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    cluster.settle(workspace, Phase.READY)
    assert status_of(cluster, token, workspace) == 401


def test_what_became_of_an_anchor_is_told_apart(cluster, workspace):
    client = client_for(workspace.cluster, workspace.tenant_id)

    def fate(*faults: Fault, hostile=None, uid: bool = True, later: int = 0) -> AnchorState:
        _, credential = issue(workspace)
        if hostile:
            hostile(cluster, workspace, credential.anchor)
        cluster.proxy.faults += faults
        known, now = credential.anchor_uid if uid else "", timezone.now() + timedelta(seconds=later)
        found = anchor_end(client, workspace, credential.anchor, known, now=now)
        cluster.proxy.heal()
        return found

    assert fate() is AnchorState.GONE
    assert fate(hostile=replace_anchor) is AnchorState.GONE, "another Secret under the name is not the anchor"
    assert fate(hostile=hold_anchor) is AnchorState.THERE
    assert fate(hostile=hold_anchor, later=90) is AnchorState.GONE, "no API server accepts its token by then"
    assert fate(Fault("403", "DELETE", "secrets")) is AnchorState.REFUSED
    assert fate(hostile=replace_anchor, uid=False) is AnchorState.REFUSED, "the gateway deletes nothing but anchors"
    assert fate(Fault("drop-before", "DELETE", "secrets")) is AnchorState.SILENT


def test_a_credential_that_cannot_be_confirmed_delays_nobody_elses(cluster, workspace):
    """Held: the oldest ones of one tenant used to put the whole cluster aside."""
    bob = make_user("bob@example.org")
    make_tenant("other", bob)
    theirs = make(cluster, bob, "theirs")
    held = [issue(workspace)[1] for _ in range(3)]
    for credential in held:
        hold_anchor(cluster, workspace, credential.anchor)
    late = issue(theirs)[1]
    cluster.proxy.faults.append(Fault("drop-before", times=10**6))
    for credential in (*held, late):
        credential_revoke(actor=actor_of(credential.issued_to), jti=credential.jti, now=timezone.now())
    cluster.proxy.heal()
    assert credentials_expire(now=timezone.now()) == 1
    late.refresh_from_db()
    assert late.revocation_confirmed_at is not None
    assert set(Credential.objects.filter(revocation_confirmed_at=None).values_list("confirm_attempts", flat=True)) == {
        1
    }
    cluster.proxy.heal()
    credentials_expire(now=timezone.now())
    assert cluster.proxy.calls == [], "what is held waits"
    assert credentials_expire(now=timezone.now() + timedelta(minutes=11)) == 3


def test_one_tenants_many_credentials_do_not_fill_the_batch(cluster, workspace, monkeypatch):
    """The tenants take turns within a sweep."""
    bob = make_user("bob@example.org")
    make_tenant("other", bob)
    theirs = make(cluster, bob, "theirs")
    now = timezone.now()
    for owner, count in ((workspace, 6), (theirs, 1)):
        for number in range(count):
            Credential.objects.create(
                tenant=owner.tenant,
                workspace=owner,
                issued_to=owner.user,
                role="admin",
                anchor=f"tenantry-anchor-{number}",
                issued_at=now - timedelta(hours=1 if owner is theirs else 2),
                revoked_at=now,
            )
    monkeypatch.setattr("access.credentials.revoking._BATCH", 2)
    credentials_expire(now=now)
    assert theirs.credentials.get().revocation_confirmed_at is not None


def test_a_binding_that_is_held_keeps_no_account_alive(cluster, workspace):
    """Held: the layers do not wait for each other, and it is not called suspended."""
    ns = workspace.k8s_namespace
    token, _ = issue(workspace)
    body = {
        **objects.role_bindings(workspace)["tenantry-admin"],
        "metadata": {"name": "held", "namespace": ns, "finalizers": [HELD]},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    cluster.lets_in(lambda: status_of(cluster, token, workspace))
    suspend(workspace)
    operations_run(workspace_id=workspace.id, limit=1)
    workspace.refresh_from_db()
    assert workspace.phase == Phase.SUSPENDING
    accounts = cluster.kubectl("get", "serviceaccounts", "-n", ns, "-o", "name")
    assert "sa-tenant" not in accounts
    operation = Operation.objects.get(desired="suspended")
    assert "held" in operation.error
    assert operation.not_before < timezone.now() + timedelta(seconds=3)


def test_a_refused_layer_is_told_and_the_others_are_done(cluster, workspace):
    cluster.proxy.faults.append(Fault("403", "DELETE", "rolebindings", times=10**6))
    token, _ = issue(workspace)
    suspend(workspace)
    operations_run(workspace_id=workspace.id)
    operation = Operation.objects.get(desired="suspended")
    assert "cannot be deleted: tenantry-admin" in operation.error
    assert "sa-tenant" not in cluster.kubectl("get", "serviceaccounts", "-n", workspace.k8s_namespace, "-o", "name")
    assert operation.not_before < timezone.now() + timedelta(seconds=10)
    cluster.proxy.heal()
    suspend(workspace)
    cluster.settle(workspace, Phase.SUSPENDED)
    assert status_of(cluster, token, workspace) in {401, 403}


@pytest.mark.parametrize("turns", [0, 1])
def test_a_resume_makes_new_accounts_whatever_the_suspension_had_reached(cluster, workspace, turns):
    """Outrun: the resume follows before any worker looked, or after the cluster stopped one half way."""
    token, _ = issue(workspace)
    uids = set(workspace.service_accounts.values())
    cluster.kubectl(
        "create", "rolebinding", "metrics", "--clusterrole=view", "--serviceaccount=monitoring:p", "-n",
        workspace.k8s_namespace,
    )  # fmt: skip
    suspend(workspace)
    cluster.proxy.faults.append(Fault("503", "DELETE", "serviceaccounts", times=10**6))
    for _ in range(turns):
        operations_run(workspace_id=workspace.id, limit=1)
    cluster.proxy.heal()
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    operations_run(workspace_id=workspace.id, limit=1)
    workspace.refresh_from_db()
    if workspace.phase != Phase.READY:
        assert status_of(cluster, token, workspace) in {401, 403}, "no right while an old token may be accepted"
    workspace = cluster.settle(workspace, Phase.READY)
    assert uids.isdisjoint(workspace.service_accounts.values())
    assert timezone.now() - workspace.accounts_gone_at >= timedelta(seconds=10)
    assert status_of(cluster, token, workspace) == 401
    fresh, _ = issue(workspace)
    cluster.lets_in(lambda: status_of(cluster, fresh, workspace))


def test_accounts_that_a_restored_backup_brought_back_are_not_taken_over(cluster, workspace):
    """P5: whatever is not the account that was made is an old one."""
    ns = workspace.k8s_namespace
    cluster.kubectl("delete", "serviceaccount", "sa-tenant-admin", "-n", ns)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(objects.service_account(workspace, "sa-tenant-admin")))
    imposter = cluster.kubectl("get", "sa", "sa-tenant-admin", "-n", ns, "-o", "jsonpath={.metadata.uid}")
    assert workspace_reconcile(workspace.id)
    workspace = cluster.settle(workspace, Phase.READY)
    assert imposter not in workspace.service_accounts.values()


def hold_namespace(cluster: TestCluster, workspace: Workspace) -> None:
    """A pod that keeps its namespace from ending."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stays", "namespace": workspace.k8s_namespace, "finalizers": [HELD]},
        "spec": {"terminationGracePeriodSeconds": 31_536_000, "containers": [{"name": "c", "image": "x"}]},
    }
    out = cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert "created" in out, out


def release(cluster: TestCluster, workspace: Workspace) -> None:
    cluster.kubectl(
        "patch", "pod", "stays", "-n", workspace.k8s_namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )


def test_a_deletion_begins_with_all_layers_of_a_suspension(cluster, workspace, alice):
    """Left: a pod holds the namespace, and nobody has a right in it."""
    token, _ = issue(workspace)
    hold_namespace(cluster, workspace)
    workspace_delete(actor=actor_of(alice), workspace_id=workspace.id)
    operations_run(workspace_id=workspace.id, limit=1)
    workspace.refresh_from_db()
    assert (workspace.status, workspace.phase) == (Status.DELETED, Phase.DELETING)
    assert status_of(cluster, token, workspace) in {401, 403}
    layers = [layer["layer"] for layer in workspace.receipt]
    assert layers == ["lock", "bindings", "canary", "service-accounts"]
    assert Credential.objects.get().revoked_at is not None
    assert list(workspaces_visible_to(actor_of(alice))) == [workspace], "what still exists is listed"
    with pytest.raises(Forbidden, match="still being deleted"):
        workspace_init(actor=actor_of(alice), user=alice, tier="basic", name="another")
    again = suspend(workspace)
    assert (again.status, again.suspended_reason) == (Status.DELETED, "mining")
    with pytest.raises(Conflict):
        workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    operations_run(workspace_id=workspace.id, limit=1)
    assert status_of(cluster, token, workspace) in {401, 403}
    release(cluster, workspace)
    cluster.settle(workspace, Phase.DELETED)
    assert list(workspaces_visible_to(actor_of(alice))) == []
    with pytest.raises(Conflict):
        suspend(workspace)
    workspace_init(actor=actor_of(alice), user=alice, tier="basic", name="another")


@pytest.mark.parametrize("ending", [False, True])
def test_a_suspension_of_the_tenant_covers_what_is_being_deleted(cluster, workspace, alice, ending):
    token, _ = issue(workspace)
    hold_namespace(cluster, workspace)
    cluster.proxy.faults.append(Fault("drop-before", times=10**6))
    if ending:
        tenant_delete(actor=OPERATOR, name="acme")
    else:
        workspace_delete(actor=actor_of(alice), workspace_id=workspace.id)
    operations_run(workspace_id=workspace.id)
    cluster.proxy.heal()
    cluster.lets_in(lambda: status_of(cluster, token, workspace))
    tenant_suspend(actor=OPERATOR, name="acme", reason="fraud")
    operations_run(workspace_id=workspace.id, limit=1)
    assert status_of(cluster, token, workspace) in {401, 403}
    assert Workspace.objects.get().suspended_reason == "fraud"
    release(cluster, workspace)
    cluster.settle(workspace, Phase.DELETED)


@pytest.mark.parametrize("state", ["failed", "away", "later"])
@pytest.mark.parametrize("remedy", ["press", "press for the tenant", "check", "repair"])
def test_what_waits_is_woken_by_whoever_did_something_about_it(cluster, workspace, state, remedy):
    """Slow: repairing a cluster, checking it, or pressing Suspend again."""
    suspend(workspace)
    far = timezone.now() + timedelta(seconds=300)
    if state == "away":
        Cluster.objects.update(away_until=far)
    else:
        operation_state = OperationState.FAILED if state == "failed" else OperationState.PENDING
        Operation.objects.filter(desired="suspended").update(state=operation_state, not_before=far)
    assert operations_run() == 0
    if remedy == "press":
        suspend(workspace)
    elif remedy == "press for the tenant":
        tenant_suspend(actor=OPERATOR, name="acme", reason="x")
    elif remedy == "check":
        assert cluster_check(actor=OPERATOR, name=cluster.kind) == ""
    else:
        cluster_register(actor=OPERATOR, name=cluster.kind, kubeconfig=cluster.gateway_kubeconfig, is_default=True)
    assert operations_run() == 1
    workspace.refresh_from_db()
    assert workspace.phase == Phase.SUSPENDED


def pod(workspace: Workspace, name: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": workspace.k8s_namespace},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        }
    )


def test_stopping_everything_ends_pods_until_the_resume(cluster, workspace):
    """Honest: the receipt says what goes on, and operators may choose that nothing does."""
    assert "created" in cluster.kubectl("create", "-f", "-", stdin=pod(workspace, "runs"))
    suspend(workspace)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    streams = next(layer for layer in workspace.receipt if layer["layer"] == "streams")
    assert streams["verified"] is False
    assert "Pods run on" in streams["note"]
    assert "runs" in cluster.kubectl("get", "pods", "-n", workspace.k8s_namespace)
    suspend(workspace, stop=True)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    notes = {layer["layer"]: layer["note"] for layer in workspace.receipt[1:]}
    assert "pods-ended" in notes
    assert "Watches" in notes["streams"]
    assert "runs" not in cluster.kubectl("get", "pods", "-n", workspace.k8s_namespace)
    assert "exceeded quota" in cluster.kubectl("create", "-f", "-", stdin=pod(workspace, "again"))
    assert workspace_reconcile(workspace.id) == []
    cluster.kubectl("delete", "resourcequota", "tenantry-quota", "-n", workspace.k8s_namespace)
    assert workspace_reconcile(workspace.id) == ["pods may run again"]
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    workspace = cluster.settle(workspace, Phase.READY)
    assert "created" in cluster.kubectl("create", "-f", "-", stdin=pod(workspace, "again"))


@pytest.mark.parametrize("code", ["429", "503"])
def test_no_cluster_puts_a_suspension_off_for_long(cluster, workspace, code):
    """Whatever it asks for by Retry-After."""
    cluster.proxy.faults.append(Fault(code, "DELETE", "rolebindings|serviceaccounts", times=10**6, retry_after="300"))
    suspend(workspace)
    operations_run(workspace_id=workspace.id, limit=1)
    operation = Operation.objects.get(desired="suspended")
    assert operation.state == OperationState.PENDING
    assert operation.not_before < timezone.now() + timedelta(seconds=10)


def test_pods_that_cannot_be_stopped_hold_up_no_suspension(cluster, workspace):
    cluster.proxy.faults.append(Fault("403", "DELETE", "pods$", times=10**6))
    suspend(workspace, stop=True)
    operations_run(workspace_id=workspace.id)
    workspace.refresh_from_db()
    operation = Operation.objects.get(desired="suspended")
    assert workspace.phase == Phase.SUSPENDED
    assert (operation.state, "refused" in operation.error) == (OperationState.FAILED, True)


def test_bindings_that_are_no_tenants_to_use_survive(cluster, workspace):
    """One that a cluster admin made for the cluster's own stays; what the tenant's own accounts had comes back."""
    ns = workspace.k8s_namespace
    for name, role, account in (
        ("metrics", "--clusterrole=view", "monitoring:prometheus"),
        ("chart", "--role=chart", f"{ns}:chart"),
    ):
        cluster.kubectl("create", "rolebinding", name, role, f"--serviceaccount={account}", "-n", ns)
    cluster.kubectl("create", "role", "chart", "--verb=get", "--resource=configmaps", "-n", ns)

    def names() -> set[str]:
        return set(cluster.kubectl("get", "rolebindings", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}").split())

    suspend(workspace)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    assert names() == {"metrics"}
    assert workspace_reconcile(workspace.id) == []
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    workspace = cluster.settle(workspace, Phase.READY)
    assert names() == {"metrics", "chart", "tenantry-admin", "tenantry-edit", "tenantry-view"}
    assert workspace.saved_bindings == []


def test_neither_many_nor_big_bindings_hold_up_a_suspension(cluster, workspace):
    """An answer has 4 MiB at most: the list is read in pages, and in smaller ones where they are too big."""
    subjects = [
        {"kind": "ServiceAccount", "name": "x" * 60, "namespace": workspace.k8s_namespace} for _ in range(9_000)
    ]
    items = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"big-{number}", "namespace": workspace.k8s_namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": subjects,
        }
        for number in range(5)
    ]
    for item in items:
        out = cluster.kubectl("create", "-f", "-", stdin=json.dumps(item))
        assert "created" in out, out
    suspend(workspace)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    assert len(json.dumps(workspace.saved_bindings)) < 4 * 1024 * 1024


def test_a_strangers_namespace_is_left_alone(cluster, alice):
    """Not ours by uid, not ours by label: nothing of this workspace was ever there."""
    workspace = workspace_init(actor=actor_of(alice), user=alice, tier="basic", name="web")
    cluster.kubectl("create", "namespace", workspace.k8s_namespace)
    cluster.kubectl("create", "rolebinding", "theirs", "--clusterrole=view", "--user=x", "-n", workspace.k8s_namespace)
    suspend(workspace)
    workspace = cluster.settle(workspace, Phase.SUSPENDED)
    assert "theirs" in cluster.kubectl("get", "rolebindings", "-n", workspace.k8s_namespace)
    assert datetime.fromisoformat(workspace.receipt[0]["at"]) <= datetime.now(UTC)
    cluster.kubectl("delete", "namespace", workspace.k8s_namespace, "--wait=false")


def test_names_and_notes_that_no_row_can_hold_hold_up_no_suspension(cluster, workspace):
    """RBAC takes any text as a name, and any as an annotation; PostgreSQL stores no NUL."""
    ns = workspace.k8s_namespace
    for name, note in (("a\0b", "plain"), ("plain", "x\0y"), ("c\x1b[2Jd", "\x01" * 1000)):
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "annotations": {"note": note}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": ns}],
        }
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
        assert cluster.real.admin.send("POST", path, body).status == 201
    suspend(workspace)
    suspended = cluster.settle(workspace, Phase.SUSPENDED)
    assert cluster.real.admin.send("GET", path)["items"] == []
    assert len(suspended.saved_bindings) == 6


def test_bindings_of_the_greatest_size_hold_up_no_suspension(cluster, workspace):
    """Two of them are more than an answer may be long."""
    ns = workspace.k8s_namespace
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
    for name in ("first", "second"):
        subjects = [{"kind": "ServiceAccount", "name": f"a{n}", "namespace": ns} for n in range(31_000)]
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": subjects,
        }
        answer = cluster.real.admin.send("POST", path, body)
        assert answer.status == 201, answer.body
    suspend(workspace)
    cluster.settle(workspace, Phase.SUSPENDED)
    assert cluster.real.admin.send("GET", path)["items"] == []
