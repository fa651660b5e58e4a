"""Workers that die, messages that are lost or doubled, calls that come at once: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from kube.status import StatusError, TooManyRequests
from tenants import clusters
from tenants.models import Membership, Operation, OperationState, Phase, Workspace
from tenants.operations import Superseded, Turn, claim
from tenants.services import workspace_init, workspace_suspend
from tenants.tasks import operations_sweep
from tenants.worker import operations_run, workspaces_reconcile
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


@pytest.fixture
def workspace(cluster, tiers) -> Workspace:
    owner = make_user()
    make_tenant("acme", owner)
    return workspace_init(actor=actor_of(owner), user=owner, tier="basic", name="web")


def die_at(point: str, settings) -> None:
    """A worker of its own process that kills itself there by SIGKILL."""
    connections.close_all()
    settings.FAILPOINT = point
    child = os.fork()
    if child == 0:
        # Sockets of the parent must not be shared.
        clusters._pools.clear()
        operations_run()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    settings.FAILPOINT = ""
    assert os.WIFSIGNALED(status), point
    assert os.WTERMSIG(status) == signal.SIGKILL


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
        assert len(written) == 9, point
        operation = workspace.operations.get()
        assert operation.state == OperationState.DONE
        assert [done["step"] for done in operation.steps_done] == STEPS, point


def test_a_worker_thought_dead_can_no_longer_commit(cluster, workspace):
    """Fencing: SIGSTOP longer than the lease, then CONT."""
    claimed = claim()
    assert claimed is not None
    late = Turn(Operation.objects.select_related("workspace__tenant", "workspace__cluster").get(), claimed[1])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE operations SET lease_until = now(), not_before = now()")
    cluster.settle(workspace, Phase.READY)
    before = len(cluster.proxy.calls)
    for attempt in (late.hold, lambda: late.client.delete("/api/v1/namespaces/x"), lambda: late.keep(phase="deleted")):
        with pytest.raises(Superseded):
            attempt()
    assert len(cluster.proxy.calls) == before
    late.postpone("late", 0)
    assert Operation.objects.get().state == OperationState.DONE


def test_the_next_generation_waits_for_a_worker_that_may_be_in_a_call(cluster, workspace):
    claimed = claim()
    assert claimed is not None
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    assert operations_run() == 0
    late = Turn(
        Operation.objects.select_related("workspace__tenant", "workspace__cluster").get(pk=claimed[0]), claimed[1]
    )
    late.let_go()
    cluster.settle(workspace, Phase.SUSPENDED)


def test_lost_and_doubled_messages_change_nothing(cluster, workspace):
    """GW15: nobody was woken; then everybody is, five times at once."""
    threads = [threading.Thread(target=lambda: (operations_sweep(), connections.close_all())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.settle(workspace, Phase.READY)
    assert len([call for call in cluster.proxy.calls if call[0] == "POST" and call[2] == 201]) == 9


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
