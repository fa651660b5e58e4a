"""What is asked of a slow cluster is done, shown and begun only for who still may when its turn comes (CT-07, RV-11, D8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pytest

from gateway.process.streams import PROMPT_SECONDS
from tenants.models import Role
from tenants.services import tenant_suspend
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.callers import PATIENCE, Answer, Caller, eventually
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.test_policies import deployment
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "rbac.authorization.k8s.io"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which makes it slow."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


@dataclass
class Robot:
    """A program of a tenant, with an account and a binding in the tenant's space, at work in a placed namespace."""

    door: Door
    caller: Caller
    namespace: str

    @property
    def space(self) -> str:
        return f"/clusters/root:{self.door.name}"

    def revoked(self) -> int:
        """Its credential ends; the status that its requests are given from now on."""
        assert (
            self.door.server.admin.delete(f"{self.space}/api/v1/namespaces/default/serviceaccounts/robot").status == 200
        )
        return self._refused(401)

    def unbound(self) -> int:
        assert self.door.server.admin.delete(f"{self.space}/apis/{RBAC}/v1/clusterrolebindings/robot").status == 200
        return self._refused(403)

    def suspended(self) -> int:
        tenant_suspend(actor=OPERATOR, name=self.door.name, reason="unpaid")
        return self._refused(403)

    def _refused(self, status: int) -> int:
        self.door.until(lambda: self.caller.get("/api/v1/namespaces/default/configmaps").status == status)
        return status


@pytest.fixture
def robot(door: Door) -> Robot:
    space, admin = f"/clusters/root:{door.name}", door.server.admin
    accounts = f"{space}/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    assert admin.post(accounts, account).status == 201
    rule = {"apiGroups": ["", "apps"], "resources": ["configmaps", "deployments"], "verbs": ["*"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "robot"}, "rules": [rule]}
    assert admin.post(f"{space}/apis/{RBAC}/v1/clusterroles", role).status == 201
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "robot"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }
    assert admin.post(f"{space}/apis/{RBAC}/v1/clusterrolebindings", binding).status == 201
    token = admin.post(f"{accounts}/robot/token", {"spec": {}}).body["status"]["token"]
    made = Robot(door, door.server.bearer(token), door.place(door.person("olga", Role.OWNER)))
    path = DEPLOYMENTS.format(made.namespace)
    door.until(lambda: made.caller.get(path).status == 200)
    assert made.caller.post(path, deployment("web", "nginx")).status == 201
    return made


def held(
    robot: Robot, method: str, ask: Callable[[], Answer], end: Callable[[Robot], int], called: str = "/web$"
) -> tuple[Answer, int]:
    """What is answered to a request whose first call to the cluster is held until the right to it has ended."""
    proxy = robot.door.cluster.proxy
    fault = Fault("hold", method=method, path=f"{DEPLOYMENTS.format(robot.namespace)}{called}")
    proxy.faults.append(fault)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        try:
            assert fault.met.wait(300)
            status = end(robot)
            # More than a moment; how much more decides nothing.
            time.sleep(2 * PROMPT_SECONDS)
        finally:
            fault.go.set()
        return asked.result(), status


ENDS = pytest.mark.parametrize("end", [Robot.revoked, Robot.unbound, Robot.suspended])


@ENDS
def test_a_write_whose_right_has_ended_meanwhile_never_reaches_the_cluster(
    robot: Robot, end: Callable[[Robot], int]
) -> None:
    """The cluster takes its time to say what the write would make; it is not asked to make it."""
    path = f"{DEPLOYMENTS.format(robot.namespace)}/web"
    change = {"metadata": {"labels": {"too": "late"}}}
    answer, status = held(robot, "PATCH", lambda: robot.caller.patch(path, change), end)
    assert answer.status == status, answer.body
    calls = [call for call in robot.door.cluster.proxy.calls if call[:2] == ("PATCH", path)]
    assert len(calls) == 1, "the dry run alone"
    assert "too: late" not in robot.door.cluster.kubectl("get", "deployment", "-n", robot.namespace, "-o", "yaml")


@ENDS
@pytest.mark.parametrize(
    ("path", "called"),
    [
        (f"{DEPLOYMENTS}/web", "/web$"),
        (DEPLOYMENTS, "$"),
        ("/apis/apps/v1/deployments", "$"),
        ("/apis/apps/v1/deployments?limit=5", "$"),
    ],
    ids=["one", "those of a namespace", "all", "some of all"],
)
def test_an_answer_that_took_long_is_shown_to_nobody_who_may_not_read_it_any_more(
    robot: Robot, end: Callable[[Robot], int], path: str, called: str
) -> None:
    answer, status = held(robot, "GET", lambda: robot.caller.get(path.format(robot.namespace)), end, called)
    assert (answer.status, "nginx" in str(answer.body)) == (status, False)


@pytest.mark.parametrize(
    ("path", "query"),
    [(f"{DEPLOYMENTS}/web", ""), (DEPLOYMENTS, "?watch=1"), ("/apis/apps/v1/deployments", "?limit=5")],
    ids=["one", "a watch", "some of all"],
)
def test_nothing_is_shown_or_begun_while_nobody_would_hear_of_the_end_of_the_right(
    robot: Robot, path: str, query: str
) -> None:
    """Its cluster takes its time, and meanwhile the server cannot read who is locked out."""
    proxy, server = robot.door.cluster.proxy, robot.door.server
    where = path.format(robot.namespace)
    fault = Fault("hold", method="GET", path=f"{DEPLOYMENTS.format(robot.namespace)}(/web)?$")
    proxy.faults.append(fault)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(server.database) as held_back:
        asked = pool.submit(robot.caller.open, "GET", where + query, timeout=PATIENCE)
        try:
            assert fault.met.wait(300)
            held_back.execute("LOCK TABLE locks IN ACCESS EXCLUSIVE MODE")
            assert eventually(lambda: server.nobody.get("/readyz").status == 503)
            fault.go.set()
            answer = asked.result()
            assert (answer.status, answer.getheader("Retry-After")) == (503, "1")
            assert "cannot verify permissions" in answer.read().decode()
        finally:
            fault.go.set()
            held_back.rollback()
    assert eventually(lambda: robot.caller.get(where).status == 200)
