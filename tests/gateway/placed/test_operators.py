"""An operator written with kopf, on a kind of a cluster that was opened to the tenant, whatever breaks (GW4, GW20, TS15)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf
import kubernetes
import pytest
import yaml

from tenants.services import cluster_change
from tests.clusters import TestCluster
from tests.gateway.callers import answered, eventually
from tests.gateway.conftest import Server, stop
from tests.gateway.definitions import definition
from tests.gateway.placed.breaking import Breakable, breakable, kill
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 240.0
"""Where a test gives up on clusters, whatever the machine."""
GROUP = "ships.example.org"
YACHT = definition("Yacht", group=GROUP, subresources={"status": {}})
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "yachts", "labels": {"tenantry.io/aggregate-to-edit": "true"}},
    "rules": [{"apiGroups": [GROUP], "resources": ["yachts", "yachts/status"], "verbs": ["*"]}],
}
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


@pytest.fixture
def place(
    new_door: Callable[[], Door],
    second: TestCluster,
    door_server: tuple[Server, str],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Breakable]:
    for body in (YACHT, ROLE):
        said = second.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
        assert "created" in said, said
    try:
        with breakable(new_door, second, door_server, settings, monkeypatch, tmp_path) as found:
            cluster_change(
                actor=OPERATOR, name="hit", opened=f"customresourcedefinitions.apiextensions.k8s.io/yachts.{GROUP}"
            )
            yachts = f"/apis/{GROUP}/v1/namespaces/{found.hit}/yachts"
            for caller in (found.caller, found.here):
                found.door.until(lambda caller=caller: answered(lambda: caller.get(yachts)).status == 200)
            yield found
    finally:
        # Without waiting: a yacht whose operator has not seen it go keeps its kind.
        second.kubectl("delete", "--wait=false", "crd", f"yachts.{GROUP}")
        second.kubectl("delete", "clusterrole", "yachts")


class Shipyard:
    """The operator: it gives each yacht a ConfigMap of its own, reports in its status, and keeps it until it has seen it go."""

    def __init__(self, file: Path) -> None:
        self.done: Counter[str] = Counter()
        self._core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(file)))
        self.registry = kopf.OperatorRegistry()
        # What fails is tried again after a second.
        on: dict[str, Any] = {"registry": self.registry, "backoff": 1.0}
        kopf.on.login(**on)(kopf.login_with_kubeconfig)
        kopf.on.create(GROUP, "v1", "yachts", **on)(self.build)
        kopf.on.update(GROUP, "v1", "yachts", field="spec.sails", **on)(self.refit)
        kopf.on.delete(GROUP, "v1", "yachts", **on)(self.scrap)

    def build(self, spec: Any, name: str, namespace: str, body: Any, patch: Any, **_: Any) -> None:
        owner = {"apiVersion": f"{GROUP}/v1", "kind": "Yacht", "name": name, "uid": body["metadata"]["uid"]}
        papers = {"metadata": {"name": name, "ownerReferences": [owner]}, "data": {"sails": str(spec["sails"])}}
        try:
            self._core.create_namespaced_config_map(namespace, papers)
        except kubernetes.client.ApiException as error:
            # An attempt that nobody heard of has made it.
            if error.status != 409:
                raise
        patch.status["sails"] = spec["sails"]
        self.done[f"build {name}"] += 1

    def refit(self, spec: Any, name: str, namespace: str, patch: Any, **_: Any) -> None:
        self._core.patch_namespaced_config_map(name, namespace, {"data": {"sails": str(spec["sails"])}})
        patch.status["sails"] = spec["sails"]
        self.done[f"refit {name} {spec['sails']}"] += 1

    def scrap(self, name: str, **_: Any) -> None:
        self.done[f"scrap {name}"] += 1


@contextlib.contextmanager
def working(place: Breakable, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shipyard]:
    monkeypatch.setenv("KUBECONFIG", str(place.file))
    yard = Shipyard(place.file)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = [1.0] * 120
    stopping, ready = threading.Event(), threading.Event()
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            asyncio.run(
                kopf.operator(
                    registry=yard.registry,
                    settings=settings,
                    namespaces=[place.hit],
                    standalone=True,
                    stop_flag=stopping,
                    ready_flag=ready,
                )
            )
        except BaseException as error:
            ended.append(error)
            raise
        ended.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield yard
        assert ended == []
    finally:
        stopping.set()
        thread.join(300)
    assert ended == [None]


def test_an_operator_handles_everything_once_whatever_breaks(place: Breakable, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config(str(place.file)))
    at = (GROUP, "v1", place.hit, "yachts")
    papers = f"/api/v1/namespaces/{place.hit}/configmaps"

    def found(name: str) -> dict[str, Any]:
        answer = answered(lambda: place.here.get(f"/apis/{GROUP}/v1/namespaces/{place.hit}/yachts/{name}"))
        return answer.body if answer.status == 200 else {}

    def is_done(name: str, sails: int) -> bool:
        on_paper = answered(lambda: place.here.get(f"{papers}/{name}"))
        return (
            found(name).get("status", {}).get("sails") == sails
            and on_paper.status == 200
            and on_paper.body["data"] == {"sails": str(sails)}
        )

    def build(name: str, *finalizers: str) -> None:
        metadata = {"name": name, "finalizers": list(finalizers)}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Yacht", "metadata": metadata, "spec": {"sails": 1}}
        assert objects.create_namespaced_custom_object(*at, body)["metadata"]["uid"]

    def refit(name: str, sails: int) -> None:
        # A kube-apiserver that has just come back does not know its own RBAC for a moment.
        changed = {"spec": {"sails": sails}}
        path = f"/apis/{GROUP}/v1/namespaces/{place.hit}/yachts/{name}"
        assert eventually(lambda: place.here.patch(path, changed).status == 200, PATIENCE)

    breaks: dict[str, Callable[[], None]] = {
        "lost": place.doors.relay.lose,
        "cut": place.behind.lose,
        "ended": lambda: place.doors.restart(stop),
        "killed": lambda: place.doors.restart(kill),
        "restarted": place.cluster.real.restart,
    }
    with working(place, monkeypatch) as yard:
        build("before")
        assert eventually(lambda: is_done("before", 1), PATIENCE), (found("before"), yard.done)
        assert found("before")["metadata"]["finalizers"] == [FINALIZER]
        for number, (name, harm) in enumerate(breaks.items(), 2):
            # Where the answer to the finalizer it sets is lost, kopf sets it again on a version that is not there any more,
            # and then waits for a change that does not come.
            build(name, FINALIZER)
            harm()
            refit("before", number)
            assert eventually(lambda: is_done(name, 1) and is_done("before", number), PATIENCE), (  # noqa: B023
                found(name),
                found("before"),
                yard.done,
            )
        for name in ("before", *breaks):
            objects.delete_namespaced_custom_object(*at, name)
            # It goes once the operator has seen it, and what it owns goes with it.
            assert eventually(lambda: found(name) == {}, PATIENCE), found(name)  # noqa: B023
            assert eventually(lambda: place.here.get(f"{papers}/{name}").status == 404, PATIENCE)  # noqa: B023
    expected = [f"build {name}" for name in ("before", *breaks)]
    expected += [f"scrap {name}" for name in ("before", *breaks)]
    expected += [f"refit before {number}" for number in range(2, 2 + len(breaks))]
    assert yard.done == Counter(expected)
