"""What is judged at the door is what the cluster stores, whoever else writes to the object meanwhile (AD1, AD5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import yaml

from tenants.models import Role
from tenants.services import tenant_policies_change
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.gateway.callers import Answer, Caller
from tests.gateway.placed.conftest import Door
from tests.gateway.placed.test_policies import deployment, is_refused_at
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

IMAGE = "spec.template.spec.containers[0].image"
GOOD, EVIL = "ghcr.io/a/b", "docker.io/evil"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> Iterator[str]:
    """Through the proxy, which lets the tests come in between."""
    cluster_kube_apiserver.proxy.heal()
    yield cluster_kube_apiserver.gateway_kubeconfig
    cluster_kube_apiserver.proxy.heal()


@pytest.fixture
def shop(door: Door) -> tuple[Caller, str]:
    """An owner, and the Deployments of a namespace with a policy on images."""
    owner = door.person("olga", Role.OWNER)
    namespace = door.place(owner)
    tenant_policies_change(actor=OPERATOR, name=door.name, policies={"registries": ["ghcr.io"]})
    return owner, f"/apis/apps/v1/namespaces/{namespace}/deployments"


def between(door: Door, method: str, path: str, ask: Callable[[], Answer], race: Callable[[], Any]) -> Answer:
    """What is answered to a write when ``race`` happens after it was judged and before it is made."""
    judging, making = (Fault("hold", method=method, path=f"{path}$") for _ in range(2))
    judging.go.set()
    door.cluster.proxy.faults += [judging, making]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        try:
            assert making.met.wait(300), asked.result()
            race()
        finally:
            making.go.set()
        return asked.result()


def stored(door: Door, path: str) -> Any:
    """The object as the cluster has it, ``None`` where there is none."""
    answer = door.cluster.real.admin.send("GET", path)
    return answer.body if answer.status == 200 else None


def write(door: Door, method: str, path: str, body: Any, media: str = "application/json") -> None:
    answer = door.cluster.real.admin.send(method, path, body, media)
    assert answer.status in (200, 201), answer.body


def note(door: Door, path: str, image: str) -> None:
    """Another writer puts an image where no rule looks."""
    body = {"metadata": {"annotations": {"image": image}}}
    write(door, "PATCH", path, body, "application/merge-patch+json")


MOVES = [
    {"op": op, "from": "/metadata/annotations/image", "path": "/spec/template/spec/containers/0/image"}
    for op in ("copy", "move")
]


@pytest.mark.parametrize("operation", MOVES, ids=["copy", "move"])
def test_a_patch_takes_nothing_from_elsewhere_in_the_object_that_was_not_judged(
    door: Door, shop: tuple[Caller, str], operation: dict[str, Any]
) -> None:
    owner, path = shop
    assert owner.post(path, deployment("web", GOOD)).status == 201
    one = f"{path}/web"
    note(door, one, f"{GOOD}:2")
    answer = between(door, "PATCH", one, lambda: owner.patch(one, [operation], "json"), lambda: note(door, one, EVIL))
    assert is_refused_at(answer, IMAGE), answer.body
    assert stored(door, one)["spec"]["template"]["spec"]["containers"][0]["image"] == GOOD


def test_what_was_there_may_stay_only_as_long_as_it_is_there(door: Door, shop: tuple[Caller, str]) -> None:
    """Every kind of write says again an image from before the rule, which another writer mends meanwhile."""
    owner, path = shop
    for number, ask in enumerate(
        (
            lambda one, body: owner.patch(one, {"spec": body["spec"]}),
            lambda one, body: owner.patch(one, {"spec": body["spec"]}, "strategic-merge"),
            lambda one, body: owner.patch(one, [{"op": "replace", "path": "/spec", "value": body["spec"]}], "json"),
            lambda one, body: owner.patch(one, body, "apply", fieldManager="me", force="true"),
            lambda one, body: owner.call(
                "PATCH",
                f"{one}?fieldManager=me&force=true",
                yaml.safe_dump(body).encode(),
                {"Content-Type": "application/apply-patch+yaml"},
            ),
            lambda one, body: owner.put(one, body),
            lambda one, body: owner.put(one, yaml.safe_dump(body).encode(), YAML),
        )
    ):
        body, mended = (deployment(f"d{number}", image) for image in (EVIL, GOOD))
        one = f"{path}/d{number}"
        write(door, "POST", path, body)
        method = "PUT" if number > 4 else "PATCH"
        answer = between(door, method, one, partial(ask, one, body), partial(write, door, "PUT", one, mended))
        assert is_refused_at(answer, IMAGE), (number, answer.body)
        assert stored(door, one)["spec"]["template"]["spec"]["containers"][0]["image"] == GOOD


def test_what_is_applied_as_new_is_judged_anew_on_what_came_meanwhile(door: Door, shop: tuple[Caller, str]) -> None:
    owner, path = shop
    one, other = f"{path}/web", deployment("web", EVIL)
    other["spec"]["template"]["spec"]["containers"][0]["name"] = "other"
    applied = deployment("web", GOOD)
    answer = between(
        door,
        "PATCH",
        one,
        lambda: owner.patch(one, applied, "apply", fieldManager="me"),
        lambda: write(door, "POST", path, other),
    )
    assert answer.status == 200, answer.body
    patches = [status for method, target, status in door.cluster.proxy.calls if (method, target) == ("PATCH", one)]
    assert patches == [201, 409, 200, 200]


def test_who_is_overtaken_by_harmless_writes_is_done_all_the_same(door: Door, shop: tuple[Caller, str]) -> None:
    owner, path = shop
    assert owner.post(path, deployment("web", GOOD)).status == 201
    one = f"{path}/web"
    change = {"metadata": {"labels": {"by": "olga"}}}
    for kind in ("merge", "strategic-merge"):
        ask, race = partial(owner.patch, one, change, kind), partial(note, door, one, kind)
        answer = between(door, "PATCH", one, ask, race)
        assert answer.status == 200, answer.body
        metadata = stored(door, one)["metadata"]
        assert (metadata["labels"], metadata["annotations"]["image"]) == ({"by": "olga"}, kind)


def test_what_only_its_status_has_overtaken_is_not_judged_again(door: Door, shop: tuple[Caller, str]) -> None:
    """By every kind of write, of an image that may stay because it was there."""
    owner, path = shop
    body = deployment("web", EVIL)
    write(door, "POST", path, body)
    one = f"{path}/web"
    operation = [{"op": "add", "path": "/spec/minReadySeconds", "value": 3}]
    for number, ask in enumerate(
        (
            lambda: owner.patch(one, {"spec": {"replicas": 2}}),
            lambda: owner.patch(one, {"spec": {"replicas": 3}}, "strategic-merge"),
            lambda: owner.patch(one, operation, "json"),
            lambda: owner.patch(one, body, "apply", fieldManager="me", force="true"),
            lambda: owner.put(one, {**body, "spec": {**body["spec"], "replicas": 5}}),
        )
    ):
        status = {"status": {"observedGeneration": number + 1}}
        race = partial(write, door, "PATCH", f"{one}/status", status, "application/merge-patch+json")
        door.cluster.proxy.calls.clear()
        method = "PUT" if number == 4 else "PATCH"
        answer = between(door, method, one, ask, race)
        assert answer.status == 200, (number, answer.body)
        assert answer.body["status"]["observedGeneration"] == number + 1
        sent = [status for of, target, status in door.cluster.proxy.calls if (of, target) == (method, one)]
        assert sent in ([200, 409, 200], [200, 422, 200]), (number, sent)


def test_a_patch_with_a_version_of_its_own_is_answered_as_by_the_cluster(door: Door, shop: tuple[Caller, str]) -> None:
    owner, path = shop
    assert owner.post(path, deployment("web", GOOD)).status == 201
    one = f"{path}/web"
    version = owner.get(one).body["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version, "labels": {"by": "olga"}}}
    answer = between(door, "PATCH", one, lambda: owner.patch(one, change), lambda: note(door, one, "x"))
    straight = door.cluster.real.admin.send("PATCH", one, change, "application/merge-patch+json")
    for said in (answer, owner.patch(one, change)):
        assert (said.status, said.body) == (409, straight.body)
    assert owner.patch(one, {"metadata": {"resourceVersion": "0", "labels": {"by": "olga"}}}).status == 200
    test = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    straight = door.cluster.real.admin.send("PATCH", one, test, "application/json-patch+json")
    answer = owner.patch(one, test, "json")
    assert (answer.status, answer.body) == (422, straight.body)
