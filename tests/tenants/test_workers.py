"""Workers that die, messages that are lost or doubled, calls that come at once: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from kube.requests.status import StatusError, TooManyRequests
from tenants.clusters import client
from tenants.models import Cluster, Membership, Operation, OperationState, Phase, Workspace
from tenants.operationqueue import TENANT_LANES, OperationLease, Superseded, claim
from tenants.reconciler import loop
from tenants.reconciler.loop import operations_run, workspaces_reconcile
from tenants.services import tenant_suspend, tier_change, workspace_init, workspace_resume, workspace_suspend
from tenants.tasks import operations_sweep
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user
from tests.tenants.test_provisioning import STEPS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("cluster", ["embedded", "kube-apiserver"], indirect=True),
]

POINTS = [
    "claimed",
    *(f"{step}.{moment}" for step in STEPS for moment in ("before", "called", "committed")),
    "finish.before",
    "finish.committed",
]


def die_at(point: str, settings) -> None:
    """A worker of its own process that kills itself there by SIGKILL."""
    connections.close_all()
    settings.FAILPOINT = point
    child = os.fork()
    if child == 0:
        # Sockets of the parent must not be shared.
        client._pools.clear()
        operations_run()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    settings.FAILPOINT = ""
    assert os.WIFSIGNALED(status), point
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.usefixtures("leases_last")
def test_a_worker_killed_anywhere_loses_and_doubles_nothing(cluster, tiers, settings):
    """PR-01, P7: one workspace for each of the points."""
    make_tenant("acme", make_user())
    for point in POINTS:
        user = make_user(f"{point}@example.org")
        Membership.objects.create(tenant_id="acme", user=user, role="editor")
        workspace = workspace_init(actor=actor_of(user), user=user, tier="basic")
        cluster.proxy.heal()
        die_at(point, settings)
        if point != "finish.committed":
            assert operations_run() == 0, "the dead worker's lease still holds"
            with connection.cursor() as cursor:
                # The lease ends: database time cannot be moved, the row can.
                cursor.execute("UPDATE operations SET lease_until = now(), not_before = now() WHERE state = 'running'")
        workspace = cluster.settle(workspace, Phase.READY)
        written = [call for call in cluster.proxy.calls if call[0] == "POST" and call[2] == 201]
        assert len(written) == 10, point
        operation = workspace.operations.get()
        assert operation.state == OperationState.DONE
        assert [done["step"] for done in operation.steps_done] == STEPS, point


def test_a_worker_thought_dead_can_no_longer_commit(cluster, workspace):
    """Fencing: SIGSTOP longer than the lease, then CONT."""
    claimed = claim()
    assert claimed is not None
    late = OperationLease(Operation.objects.select_related("workspace__tenant", "workspace__cluster").get(), claimed[1])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE operations SET lease_until = now(), not_before = now()")
    cluster.settle(workspace, Phase.READY)
    before = len(cluster.proxy.calls)
    for attempt in (late.renew, lambda: late.client.delete("/api/v1/namespaces/x"), lambda: late.save(phase="deleted")):
        with pytest.raises(Superseded):
            attempt()
    assert len(cluster.proxy.calls) == before
    late.postpone("late", 0)
    assert Operation.objects.get().state == OperationState.DONE


@pytest.mark.usefixtures("leases_last")
def test_the_next_generation_waits_for_a_worker_that_may_be_in_a_call(cluster, workspace):
    claimed = claim()
    assert claimed is not None
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    assert operations_run() == 0
    late = OperationLease(
        Operation.objects.select_related("workspace__tenant", "workspace__cluster").get(pk=claimed[0]), claimed[1]
    )
    late.release()
    cluster.settle(workspace, Phase.SUSPENDED)


def test_lost_and_doubled_messages_change_nothing(cluster, workspace):
    """GW15: nobody was woken; then everybody is, five times at once."""
    threads = [threading.Thread(target=lambda: (operations_sweep(), connections.close_all())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.settle(workspace, Phase.READY)
    assert len([call for call in cluster.proxy.calls if call[0] == "POST" and call[2] == 201]) == 10


def test_a_row_without_an_operation_gets_one(cluster, workspace):
    """As after a restore."""
    Operation.objects.all().delete()
    workspaces_reconcile()
    cluster.settle(workspace, Phase.READY)


def test_fifty_parallel_calls_give_one_workspace(cluster, tiers):
    """GW6."""
    user = make_user()
    make_tenant("acme", user)

    def call(_: int) -> object:
        try:
            return workspace_init(actor=actor_of(user), user=user, tier="basic").id
        except TooManyRequests as error:
            assert error.retry_after
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(call, range(50)))
    assert Workspace.objects.count() == 1
    assert set(found) == {Workspace.objects.get().id, None}
    assert Operation.objects.count() == 1


def test_parallel_calls_of_two_members_for_one_name_give_one_workspace(cluster, tiers):
    users = [make_user(f"u{number}@example.org") for number in range(6)]
    tenant = make_tenant("acme", users[0])
    for user in users[1:]:
        tenant.memberships.create(user=user, role="editor")

    def call(user) -> str:
        try:
            workspace_init(actor=actor_of(user), user=user, tier="basic", name="web")
        except StatusError as error:
            return error.reason
        finally:
            connections.close_all()
        return "made"

    with ThreadPoolExecutor(6) as pool:
        found = sorted(pool.map(call, users))
    assert found == ["AlreadyExists"] * 5 + ["made"]


def claims(count: int) -> list[str]:
    """To which tenants the next free workers go."""
    found = []
    for _ in range(count):
        claimed = claim()
        found.append("" if claimed is None else Operation.objects.get(pk=claimed[0]).workspace.tenant_id)
    return found


def make_many(tenant: str, count: int, **fields) -> list[Workspace]:
    user = make_user(f"many@{tenant}.example.org")
    make_tenant(tenant, user)
    tier_change(actor=OPERATOR, name="basic", workspaces_per_user=100)
    made = []
    for number in range(count):
        workspace = Workspace.objects.create(
            tenant_id=tenant,
            user=user,
            name=f"w{number}",
            cluster=Cluster.objects.get(),
            tier_id="basic",
            k8s_namespace=f"tenant-{uuid.uuid4().hex[:12]}",
            **fields,
        )
        Operation.objects.create(workspace=workspace, desired="ready", generation=1)
        made.append(workspace)
    return made


@pytest.mark.usefixtures("leases_last")
def test_one_tenants_many_operations_hold_nobody_elses(cluster, tiers):
    """Slow: the next worker is for whoever keeps fewest busy, and nobody keeps all of them."""
    make_many("many", 30)
    assert set(claims(1)) == {"many"}
    make_many("few", 1)
    assert claims(1) == ["few"]
    assert claims(20) == ["many"] * (TENANT_LANES - 1) + [""] * (21 - TENANT_LANES)


def test_a_single_worker_takes_the_tenants_by_lot(cluster, tiers):
    """Whoever waits with one operation beside forty of another tenant does not wait for forty."""
    make_many("many", 40)
    (few,) = make_many("few", 1)
    served = 0
    while Operation.objects.get(workspace=few).state == OperationState.PENDING:
        claimed = claim()
        assert claimed is not None
        Operation.objects.filter(pk=claimed[0]).update(state=OperationState.DONE, lease_until=None)
        served += 1
    assert served < 40, "one in a million millions, by chance"


@pytest.mark.usefixtures("leases_last")
def test_a_suspension_waits_for_no_other_operation(cluster, tiers):
    (first, *_) = make_many("many", TENANT_LANES + 4)
    claims(TENANT_LANES)
    assert claim() is None
    Operation.objects.filter(workspace=first).update(lease_until=None)
    workspace_suspend(actor=OPERATOR, workspace_id=first.id, reason="mining")
    claimed = claim()
    assert claimed is not None
    assert Operation.objects.get(pk=claimed[0]).desired == "suspended"


@pytest.mark.usefixtures("leases_last")
def test_a_tenants_workspaces_are_suspended_side_by_side(cluster, tiers, monkeypatch):
    """Slow: all lanes of the tenant meet in the middle of their work."""
    made = make_many("many", TENANT_LANES, ready_at=timezone.now(), phase=Phase.READY)
    Operation.objects.update(state=OperationState.DONE)
    meeting = threading.Barrier(TENANT_LANES, timeout=300)

    def perform(turn: OperationLease) -> None:
        meeting.wait()
        turn.finish(lambda _: None)

    monkeypatch.setitem(loop._PERFORM, "suspended", perform)
    tenant_suspend(actor=OPERATOR, name="many", reason="fraud")
    operations_sweep()
    assert Operation.objects.filter(desired="suspended", state=OperationState.DONE).count() == len(made)


CLOSING = [
    "claimed",
    *(
        f"{step}.{moment}"
        for step in ("bindings", "canary", "service-accounts", "anchors", "held", "own-accounts", "pods-ended")
        for moment in ("before", "called", "committed")
    ),
    "finish.before",
]


def test_a_worker_killed_anywhere_in_a_suspension_holds_it_up_for_less_than_ten_seconds(cluster, workspace, settings):
    """PR-01, GW5: by its lease; whoever comes next does the rest, and a resume makes new accounts."""
    for point in CLOSING:
        workspace = cluster.settle(workspace, Phase.READY)
        old = set(workspace.service_accounts.values())
        workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining", stop=True)
        die_at(point, settings)
        operation = workspace.operations.get(generation=workspace.generation + 1)
        assert operation.lease_until < timezone.now() + timedelta(seconds=9)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE operations SET lease_until = now(), not_before = now() WHERE state = 'running'")
        workspace = cluster.settle(workspace, Phase.SUSPENDED)
        assert [layer["layer"] for layer in workspace.receipt][:4] == ["lock", "bindings", "canary", "service-accounts"]
        workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
        # The cluster's memory of tokens is measured elsewhere.
        Workspace.objects.filter(pk=workspace.pk).update(accounts_gone_at=timezone.now() - timedelta(minutes=1))
        workspace = cluster.settle(workspace, Phase.READY)
        assert old.isdisjoint(workspace.service_accounts.values()), point
