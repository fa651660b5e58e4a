"""What a tenant holds is counted whoever is writing, and what came to nothing is given back at once (AD1, AD2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from access.admission.tenancy.placedquota import RESERVED_SECONDS
from access.credentials.webhooks import webhook_credential_rotate
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.callers import PATIENCE, Answer, Caller, config_map, eventually
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.test_tenantquota import MAPS, SPACE, bound, path_of, placed, there, used
from tests.gateway.webhooks.test_admit import write
from tests.tenants.conftest import OPERATOR

__all__ = ["placed"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which lets the tests come in between."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


def while_on_its_way(door: Door, owner: Caller, namespace: str, name: str, meanwhile: Callable[[], Any]) -> Answer:
    """What is answered to a creation that has been admitted, and reaches the cluster after ``meanwhile``."""
    judging, making = (Fault("hold", method="POST", path=f"{path_of(namespace)}$") for _ in range(2))
    judging.go.set()
    door.cluster.proxy.faults += [judging, making]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(owner.post, path_of(namespace), config_map(name))
        try:
            assert making.met.wait(PATIENCE), asked.result()
            meanwhile()
        finally:
            making.go.set()
        return asked.result()


def test_what_was_deleted_is_given_back_while_another_write_is_on_its_way(
    door: Door, placed: tuple[Caller, str]
) -> None:
    """The count waits for nobody, and what is on its way counts once, before it is there and after."""
    owner, namespace = placed
    before = there(owner, namespace, *SPACE)
    assert owner.post(path_of(namespace), config_map("old")).status == 201
    bound(door, **{MAPS: str(before + 2)})

    def given_back() -> None:
        assert used(door) == before + 2
        assert owner.post(path_of(namespace), config_map("more")).status == 403
        assert owner.delete(f"{path_of(namespace)}/old").status == 200
        # Sooner than anybody could take the write for one that never ends.
        assert eventually(lambda: used(door) == before + 1, RESERVED_SECONDS)

    assert while_on_its_way(door, owner, namespace, "new", given_back).status == 201
    assert eventually(lambda: used(door) == there(owner, namespace, *SPACE) == before + 1)
    assert owner.post(path_of(namespace), config_map("more")).status == 201
    assert owner.post(path_of(namespace), config_map("most")).status == 403


def test_what_the_cluster_refuses_after_it_has_asked_is_given_back_with_its_answer(
    door: Door, placed: tuple[Caller, str]
) -> None:
    """GW17: the door and the webhook take once for one object, and the door hears what became of it."""
    owner, namespace = placed
    before = there(owner, namespace, *SPACE)
    token = webhook_credential_rotate(actor=OPERATOR, cluster="kube-apiserver", now=timezone.now())
    asking = door.server.bearer(token)

    def asked_and_taken_by_another() -> None:
        body = config_map("new")
        account = f"system:serviceaccount:{namespace}:sa-tenant-admin"
        review = write(
            namespace,
            {**body, "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "uid": str(uuid4())}},
            userInfo={"username": account, "groups": [f"system:serviceaccounts:{namespace}"]},
        )

        def admitted() -> bool:
            answer = asking.post("/webhooks/kube-apiserver/admit", review, timeout="10s")
            return answer.status == 200 and answer.body["response"]["allowed"]

        assert eventually(admitted)
        assert used(door) == before + 1
        assert door.cluster.real.admin.send("POST", path_of(namespace), config_map("new")).status == 201

    assert while_on_its_way(door, owner, namespace, "new", asked_and_taken_by_another).status == 409
    # The other's, and nothing for what was refused.
    assert eventually(lambda: used(door) == there(owner, namespace, *SPACE) == before + 1)
