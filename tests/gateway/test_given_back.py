"""What goes is given back once, and all of it: to the quota of the tenant, and to that of the namespace (AD1, AD2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.client import HTTPSConnection
from typing import Any

import pytest

from tests.gateway import test_quotas, test_tenantquotas
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server
from tests.gateway.test_quotas import pod, quota
from tests.gateway.test_tenantquotas import bound

PODS = "/api/v1/namespaces/default/pods"
FREE = {"metadata": {"finalizers": None}}
SECOND = 1.2
"""Times in objects are whole seconds: after this another one has begun, and every grace period of none is over."""

Used = Callable[[], dict[str, str]]


@pytest.fixture(params=["tenant", "namespace"])
def bounding(
    request: pytest.FixtureRequest, server: Server, tenant: str, owner: Caller
) -> Callable[[dict[str, str]], Used]:
    """Bounds what the tenant, or its namespace, may hold, and tells what is used of that."""

    def of_tenant(hard: dict[str, str]) -> Used:
        bound(server, tenant, hard)
        return lambda: test_tenantquotas.used(owner)

    def of_namespace(hard: dict[str, str]) -> Used:
        assert owner.post("/api/v1/namespaces/default/resourcequotas", quota(hard)).status == 201
        return lambda: test_quotas.used(owner, "default")

    return of_tenant if request.param == "tenant" else of_namespace


def held(name: str) -> dict[str, Any]:
    """A pod that stays until somebody takes its finalizer off."""
    body = pod(name)
    return {**body, "metadata": {"name": name, "finalizers": ["example.com/held"]}}


def begun(caller: Caller, path: str, change: dict[str, Any]) -> Callable[[], int]:
    """A patch of which the server has the headers; its body is sent by what this returns, which says the status."""
    body = json.dumps(change).encode()
    connection = HTTPSConnection(caller.host, context=caller.context, timeout=300)
    connection.putrequest("PATCH", path)
    connection.putheader("Content-Type", "application/merge-patch+json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:5])

    def ended() -> int:
        connection.send(body[5:])
        status = connection.getresponse().status
        connection.close()
        return status

    return ended


def test_a_request_that_began_long_ago_gives_nothing_back_that_was_counted_since(
    owner: Caller, bounding: Callable[[dict[str, str]], Used]
) -> None:
    """Whoever counts, and whoever gives back, says of a pod that waits for its finalizers that it takes as much: whenever."""
    used = bounding({"pods": "3"})
    for body in (held("a"), held("b"), pod("c")):
        assert owner.post(PODS, body).status == 201
    slow = begun(owner, f"{PODS}/a", FREE)
    time.sleep(SECOND)
    for name in ("a", "b"):
        assert owner.delete(f"{PODS}/{name}").status == 200
    time.sleep(SECOND)
    assert owner.patch(f"{PODS}/b", FREE).status == 200
    assert eventually(lambda: used()["pods"] < "3")
    more = 0

    def refused() -> bool:
        nonlocal more
        more += 1
        return owner.post(PODS, pod(f"more-{more}")).status == 403

    assert eventually(refused)
    assert slow() == 200
    assert eventually(refused)
    assert eventually(lambda: len(owner.get(PODS).body["items"]) == 3 and used()["pods"] == "3")


def test_what_waited_for_its_finalizers_is_given_back_when_it_goes(
    owner: Caller, bounding: Callable[[dict[str, str]], Used]
) -> None:
    """Also where a change of what else was used of it goes with it, after which nobody looks again."""
    used = bounding({"pods": "1", "count/pods": "9"})
    assert owner.post(PODS, held("a")).status == 201
    assert owner.delete(f"{PODS}/a").status == 200
    time.sleep(SECOND)
    assert owner.patch(f"{PODS}/a", FREE).status == 200
    assert eventually(lambda: used() == {**used(), "pods": "0", "count/pods": "0"})
    assert owner.post(PODS, pod("b")).status == 201
    assert used()["pods"] == "1"


def test_a_pod_that_waits_for_its_finalizers_takes_nothing_but_its_place_of_the_namespaces_quota(
    server: Server, tenant: str, owner: Caller
) -> None:
    """As in Kubernetes; of the tenant's it takes what it took until it is gone."""
    bound(server, tenant, {"pods": "3"})
    hard = {"pods": "1", "count/pods": "3", "requests.cpu": "1"}
    assert owner.post("/api/v1/namespaces/default/resourcequotas", quota(hard)).status == 201
    assert owner.post(PODS, held("a")).status == 201
    assert owner.post(PODS, pod("b")).status == 403
    assert owner.delete(f"{PODS}/a").status == 200
    assert eventually(
        lambda: test_quotas.used(owner, "default") == {"pods": "0", "count/pods": "1", "requests.cpu": "0"}
    )
    assert test_tenantquotas.used(owner)["pods"] == "1"
    assert owner.post(PODS, pod("b")).status == 201
    assert owner.post(PODS, pod("c")).status == 403
    assert owner.patch(f"{PODS}/a", FREE).status == 200
    assert eventually(
        lambda: test_quotas.used(owner, "default") == {"pods": "1", "count/pods": "1", "requests.cpu": "1"}
    )
    assert test_tenantquotas.used(owner)["pods"] == "1"


def test_what_a_change_ends_gives_back_all_that_it_took(
    owner: Caller, bounding: Callable[[dict[str, str]], Used]
) -> None:
    """The last finalizer goes with something that counts: nobody looks again at what a commit has settled."""
    used = bounding({"services": "5", "services.nodeports": "5"})
    path = "/api/v1/namespaces/default/services"
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "finalizers": ["example.com/held"]},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    }
    before = used()
    assert owner.post(path, body).status == 201
    assert owner.delete(f"{path}/s").status == 200
    assert int(used()["services"]) == int(before["services"]) + 1
    last = {"metadata": {"finalizers": None}, "spec": {"type": "ClusterIP", "externalTrafficPolicy": None}}
    assert owner.patch(f"{path}/s", last).status == 200
    assert owner.get(f"{path}/s").status == 404
    assert used() == before, "in the same commit: nobody looks again"
