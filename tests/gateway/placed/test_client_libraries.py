"""The official client for Python, its dynamic half and lightkube with one file of the product, into containers (GW4, D9, TS15).

The tenant has a stored namespace and one on a cluster with a node. What is an object's life is the same in both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from lightkube import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import CascadeType, PatchType

from tenants.models import Role, Tier
from tenants.services import cluster_register
from tests import node
from tests.clusters import TestCluster
from tests.gateway.callers import eventually
from tests.gateway.placed.conftest import Door, bearer, tenant_file
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

LIFE = ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
COUNTING = "echo begun; for i in $(seq 1000000); do echo line $i; sleep 1; done"


@dataclass
class Home:
    """What a tenant has, and its file."""

    stored: str
    placed: str
    file: Path

    @property
    def both(self) -> tuple[str, str]:
        return self.stored, self.placed


@pytest.fixture
def home(new_door: Callable[[], Door], second: TestCluster, with_node: None, settings: Any, tmp_path: Path) -> Home:
    Tier.objects.update(limit_range=[], quota={"services": "9"})
    cluster_register(actor=OPERATOR, name="second", kubeconfig=second.real.kubeconfig("tenantry-gateway"))
    door = new_door()
    owner = door.person("olga", Role.OWNER)
    stored = f"{door.name}-stored"
    assert owner.post("/api/v1/namespaces", {"metadata": {"name": stored}}).status == 201
    placed = door.place(owner, f"{door.name}-placed", on="second")
    file = tenant_file(door, door.member("olga"), tmp_path / "config", door.server.url, settings)
    caller = bearer(file, owner.ca)
    assert eventually(lambda: caller.get(f"/api/v1/namespaces/{placed}/serviceaccounts/default").status == 200)
    return Home(stored, placed, file)


@pytest.fixture
def official(home: Home) -> kubernetes.client.ApiClient:
    return kubernetes.config.new_client_from_config(str(home.file))


def deployment(name: str = "web") -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": node.IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", COUNTING]}
    pod = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def test_the_official_client_runs_a_deployment(home: Home, official: kubernetes.client.ApiClient) -> None:
    core, apps = kubernetes.client.CoreV1Api(official), kubernetes.client.AppsV1Api(official)
    assert set(home.both) <= {item.metadata.name for item in core.list_namespace().items}
    at = home.placed
    version = apps.list_namespaced_deployment(at).metadata.resource_version
    assert apps.create_namespaced_deployment(at, deployment()).metadata.uid
    watch = kubernetes.watch.Watch()
    for event in watch.stream(apps.list_namespaced_deployment, at, resource_version=version):
        if event["object"].status.available_replicas == 1:
            watch.stop()
    (pod,) = core.list_namespaced_pod(at, label_selector="app=web").items
    name = pod.metadata.name
    assert core.read_namespaced_pod_log(name, at, limit_bytes=6) == "begun\n"
    lines = kubernetes.watch.Watch().stream(core.read_namespaced_pod_log, name, at)
    assert list(islice(lines, 3)) == ["begun", "line 1", "line 2"]
    assert spoken(core, name, at, "echo out; echo err >&2; read word; echo heard $word; exit 3") == (
        "out\nheard a word\n",
        "err\n",
        3,
    )
    assert page(core, name, at).endswith(b"\r\n\r\nfound\n")
    scale = apps.patch_namespaced_deployment_scale("web", at, {"spec": {"replicas": 0}})
    # Kubernetes writes no zero here.
    assert (scale.spec.replicas, apps.read_namespaced_deployment("web", at).spec.replicas) == (None, 0)
    assert eventually(lambda: core.list_namespaced_pod(at, label_selector="app=web").items == [])
    apps.delete_namespaced_deployment("web", at, propagation_policy="Foreground")
    assert eventually(lambda: apps.list_namespaced_deployment(at).items == [])


def spoken(core: kubernetes.client.CoreV1Api, pod: str, namespace: str, command: str) -> tuple[str, str, int]:
    """What a command in the container says, and how it ends, when it is told a word."""
    shell = kubernetes.stream.stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        namespace,
        command=["sh", "-c", command],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    shell.write_stdin("a word\n")
    shell.run_forever(timeout=240)
    return shell.read_stdout(), shell.read_stderr(), shell.returncode


def page(core: kubernetes.client.CoreV1Api, pod: str, namespace: str) -> bytes:
    """One of the pod's, through a forwarded port."""
    serve = "echo found > /tmp/page; busybox httpd -p 8080 -h /tmp; read word"
    spoken(core, pod, namespace, serve)
    forwarded = kubernetes.stream.portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports="8080")
    line = forwarded.socket(8080)
    line.setblocking(True)
    line.sendall(b"GET /page HTTP/1.0\r\n\r\n")
    said = b"".join(iter(lambda: line.recv(65536), b""))
    assert forwarded.error(8080) is None
    return said


def test_the_official_client_lives_through_a_whole_life_in_both(
    home: Home, official: kubernetes.client.ApiClient
) -> None:
    core = kubernetes.client.CoreV1Api(official)
    for at in home.both:
        version = core.list_namespaced_config_map(at).metadata.resource_version
        body = kubernetes.client.V1ConfigMap(metadata={"name": "c", "labels": {"a": "b"}}, data={"a": "1"})
        assert core.create_namespaced_config_map(at, body).metadata.uid
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.create_namespaced_config_map(at, body)
        assert caught.value.status == 409
        assert core.patch_namespaced_config_map("c", at, {"data": {"a": "2"}}).data == {"a": "2"}
        core.patch_namespaced_config_map("c", at, [{"op": "add", "path": "/data/b", "value": "3"}])
        read = core.read_namespaced_config_map("c", at)
        read.data["b"] = "4"
        core.replace_namespaced_config_map("c", at, read)
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.replace_namespaced_config_map("c", at, read)
        assert caught.value.status == 409
        listed = core.list_namespaced_config_map(at, label_selector="a=b", limit=1)
        assert [item.data["b"] for item in listed.items] == ["4"]
        core.delete_collection_namespaced_config_map(at, label_selector="a=b")
        with pytest.raises(kubernetes.client.ApiException) as caught:
            core.read_namespaced_config_map("c", at)
        assert caught.value.status == 404
        watch, seen = kubernetes.watch.Watch(), []
        for event in watch.stream(core.list_namespaced_config_map, at, label_selector="a=b", resource_version=version):
            seen.append(event["type"])
            if event["type"] == "DELETED":
                watch.stop()
        assert seen == LIFE


def test_the_dynamic_client_applies_and_watches_in_both(home: Home, official: kubernetes.client.ApiClient) -> None:
    found = kubernetes.dynamic.DynamicClient(official).resources.get(api_version="apps/v1", kind="Deployment")
    for at in home.both:
        version = found.get(namespace=at).metadata.resourceVersion
        body = deployment("d")
        body["spec"]["replicas"] = 0
        assert found.server_side_apply(body, namespace=at, field_manager="one").spec.replicas == 0
        body["spec"]["replicas"] = 2
        with pytest.raises(kubernetes.dynamic.exceptions.ConflictError):
            found.server_side_apply(body, namespace=at, field_manager="two")
        body["spec"]["replicas"] = 0
        found.server_side_apply(body, namespace=at, field_manager="two", force_conflicts=True)
        managers = {each.manager for each in found.get(name="d", namespace=at).metadata.managedFields}
        assert {"one", "two"} <= managers
        merge = "application/merge-patch+json"
        labelled = {"metadata": {"labels": {"a": "b"}}}
        assert found.patch(body=labelled, name="d", namespace=at, content_type=merge).metadata.labels["a"] == "b"
        found.delete(name="d", namespace=at)
        seen = []
        watcher = kubernetes.watch.Watch()
        for event in found.watch(namespace=at, resource_version=version, watcher=watcher):
            seen.append(event["type"])
            if event["type"] == "DELETED":
                watcher.stop()
        assert (seen[0], seen[-1], set(seen[1:-1])) == ("ADDED", "DELETED", {"MODIFIED"})


def test_lightkube_runs_a_deployment(home: Home) -> None:
    at = home.placed
    light = lightkube.Client(config=KubeConfig.from_file(home.file), namespace=at, field_manager="light")
    applied = light.apply(Deployment.from_dict(deployment()))
    assert applied.metadata is not None
    light.wait(Deployment, "web", for_conditions=["Available"])
    (pod,) = [each.metadata.name for each in light.list(Pod, labels={"app": "web"}) if each.metadata]
    assert pod is not None
    assert list(islice(light.log(pod, follow=True), 3)) == ["begun\n", "line 1\n", "line 2\n"]
    told = light.exec(pod, command=["sh", "-c", "echo out; echo err >&2; exit 3"], stdout=True, stderr=True)
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n", "err\n", 3)
    counted = light.exec(pod, command=["wc", "-c"], stdin=b"x" * 300_000, stdout=True)
    assert (counted.stdout, counted.exit_code) == ("300000\n", 0)
    light.patch(Deployment.Scale, "web", {"spec": {"replicas": 0}}, patch_type=PatchType.MERGE)
    assert eventually(lambda: not list(light.list(Pod, labels={"app": "web"})))
    light.delete(Deployment, "web", cascade=CascadeType.FOREGROUND)
    assert eventually(lambda: not list(light.list(Deployment)))


def test_lightkube_lives_through_a_whole_life_in_both(home: Home) -> None:
    for at in home.both:
        light = lightkube.Client(config=KubeConfig.from_file(home.file), namespace=at, field_manager="light")
        before = light.list(ConfigMap, labels={"a": "b"})
        assert list(before) == []
        seen: list[str] = []
        looking = threading.Thread(target=look, args=(light, before.resourceVersion, seen), daemon=True)
        looking.start()
        light.create(ConfigMap(metadata=ObjectMeta(name="c", labels={"a": "b"}), data={"a": "1"}))
        light.patch(ConfigMap, "c", {"data": {"a": "2"}}, patch_type=PatchType.MERGE)
        light.patch(ConfigMap, "c", [{"op": "add", "path": "/data/b", "value": "3"}], patch_type=PatchType.JSON)
        read = light.get(ConfigMap, "c")
        read.data = {"a": "4"}
        light.replace(read)
        assert [item.data for item in light.list(ConfigMap, labels={"a": "b"}, chunk_size=1)] == [{"a": "4"}]
        light.delete(ConfigMap, "c", cascade=CascadeType.BACKGROUND)
        looking.join(300)
        assert seen == LIFE
        with pytest.raises(ApiError) as caught:
            light.get(ConfigMap, "c")
        assert caught.value.status.code == 404


def look(light: lightkube.Client, version: str, seen: list[str]) -> None:
    """Note what happens until something is deleted."""
    for kind, _ in light.watch(ConfigMap, labels={"a": "b"}, resource_version=version):
        seen.append(kind)
        if kind == "DELETED":
            return
