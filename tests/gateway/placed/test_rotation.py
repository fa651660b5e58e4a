"""The gateway's credential of a cluster is rotated while people work there (GW4, GW12)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenants.models import Role
from tenants.services import cluster_credential_rotate
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.callers import config_map
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 4


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which knows who still comes that way."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


def test_nobody_notices_and_what_has_begun_ends_with_the_old_one(door: Door) -> None:
    """Requests of four people run all the time; one is held at the cluster from before until after the rotation."""
    owner = door.person("olga", Role.OWNER)
    path = f"/api/v1/namespaces/{door.place(owner)}/configmaps"
    assert owner.post(path, config_map("held")).status == 201
    proxy, real = door.cluster.proxy, door.cluster.real
    over = threading.Event()
    statuses: list[int] = []

    def work(number: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            statuses.append(people[number].post(path, config_map(f"w{number}-{turn}")).status)
            statuses.append(people[number].get(f"{path}/w{number}-{turn}").status)

    people = [door.person(f"w{number}", Role.EDITOR) for number in range(WORKERS)]
    for person in people:
        door.until(lambda person=person: person.get(path).status == 200)
    fault = Fault("hold", method="GET", path=f"{path}/held$")
    proxy.faults.append(fault)
    with ThreadPoolExecutor(WORKERS + 1) as pool:
        begun = pool.submit(owner.get, f"{path}/held")
        try:
            assert fault.met.wait(300)
            workers = [pool.submit(work, number) for number in range(WORKERS)]
            door.until(lambda: len(statuses) > 20)
            new = real.kubeconfig("tenantry-gateway")
            cluster_credential_rotate(actor=OPERATOR, name="kube-apiserver", kubeconfig=new)
            # The API server has heard of it once requests go on and none of them comes by the old way.
            door.until(lambda: quiet(proxy.calls, statuses))
        finally:
            fault.go.set()
            over.set()
        for worker in workers:
            worker.result(300)
        answer = begun.result(300)
    assert (answer.status, answer.body["metadata"]["name"]) == (200, "held")
    assert set(statuses) == {200, 201}


def quiet(calls: list[tuple[str, str, int]], statuses: list[int]) -> bool:
    """Whether forty requests have been answered, and none of them by the old way."""
    before, done = len(calls), len(statuses)
    while len(statuses) < done + 40:
        if len(calls) > before:
            return False
    return True
