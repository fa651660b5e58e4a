"""Client libraries for Python, unmodified, each through a whole life of an object in a tenant's space (TS15)."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes_asyncio
import lightkube
import pytest
from lightkube import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ContainerPort
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import CascadeType, PatchType

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server

LIFE = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


@pytest.fixture
def kubeconfig(server: Server, alice: Caller, tmp_path: Path) -> Path:
    """Alice's, as every client library reads it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(alice.ca)}}],
        "users": [{"name": "u", "user": {"client-certificate": str(alice.certificate), "client-key": str(alice.key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def official(kubeconfig: Path) -> kubernetes.client.ApiClient:
    return kubernetes.config.new_client_from_config(str(kubeconfig))


def test_the_official_client_lives_through_a_whole_life(official: kubernetes.client.ApiClient, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(official)
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    body = kubernetes.client.V1ConfigMap(metadata={"name": "c", "labels": {"a": "b"}}, data={"a": "1"})
    assert core.create_namespaced_config_map(namespace, body).metadata.uid
    assert core.patch_namespaced_config_map("c", namespace, {"data": {"a": "2"}}).data == {"a": "2"}
    core.patch_namespaced_config_map("c", namespace, [{"op": "add", "path": "/data/b", "value": "3"}])
    core.replace_namespaced_config_map("c", namespace, core.read_namespaced_config_map("c", namespace))
    assert [item.data["b"] for item in core.list_namespaced_config_map(namespace, label_selector="a=b").items] == ["3"]
    core.delete_namespaced_config_map("c", namespace)
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.read_namespaced_config_map("c", namespace)
    assert caught.value.status == 404
    watch, seen = kubernetes.watch.Watch(), []
    stream = watch.stream(core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=60)
    for event in stream:
        seen.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert seen == LIFE


def test_the_official_clients_dynamic_half_finds_and_applies_kinds(
    official: kubernetes.client.ApiClient, namespace: str
) -> None:
    found = kubernetes.dynamic.DynamicClient(official).resources.get(api_version="apps/v1", kind="Deployment")
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    assert found.server_side_apply(body, namespace=namespace, field_manager="m").spec.replicas == 1
    scaled = found.scale.patch(
        body={"spec": {"replicas": 3}}, name="d", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert scaled.spec.replicas == 3
    assert found.get(name="d", namespace=namespace).spec.replicas == 3
    found.delete(name="d", namespace=namespace)
    assert found.get(namespace=namespace).items == []


def test_the_official_client_gets_tokens(official: kubernetes.client.ApiClient, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(official)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "bot"}})
    spec = kubernetes.client.V1TokenRequestSpec(audiences=[], expiration_seconds=7200)
    request = kubernetes.client.AuthenticationV1TokenRequest(spec=spec)
    token = core.create_namespaced_service_account_token("bot", namespace, request)
    assert token.status.token.count(".") == 2


@pytest.fixture
async def asynchronous(kubeconfig: Path) -> AsyncIterator[kubernetes_asyncio.client.ApiClient]:
    configuration = kubernetes_asyncio.client.Configuration()
    await kubernetes_asyncio.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with kubernetes_asyncio.client.ApiClient(configuration) as client:
        yield client


async def test_the_asynchronous_client_lives_through_a_whole_life(
    asynchronous: kubernetes_asyncio.client.ApiClient, namespace: str
) -> None:
    core = kubernetes_asyncio.client.CoreV1Api(asynchronous)
    version = (await core.list_namespaced_config_map(namespace)).metadata.resource_version
    body = kubernetes_asyncio.client.V1ConfigMap(metadata={"name": "c"}, data={"a": "1"})
    assert (await core.create_namespaced_config_map(namespace, body)).metadata.uid
    await core.patch_namespaced_config_map("c", namespace, {"data": {"a": "2"}})
    read = await core.read_namespaced_config_map("c", namespace)
    assert read.data == {"a": "2"}
    read.data["b"] = "3"
    await core.replace_namespaced_config_map("c", namespace, read)
    listed = await core.list_namespaced_config_map(namespace, field_selector="metadata.name=c")
    assert [item.data["b"] for item in listed.items] == ["3"]
    await core.delete_namespaced_config_map("c", namespace)
    with pytest.raises(kubernetes_asyncio.client.ApiException) as caught:
        await core.read_namespaced_config_map("c", namespace)
    assert caught.value.status == 404
    seen = []
    async with kubernetes_asyncio.watch.Watch() as watch:
        stream = watch.stream(core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=60)
        async for event in stream:
            seen.append(event["type"])
            if event["type"] == "DELETED":
                watch.stop()
    assert seen == LIFE


@pytest.fixture
def light(kubeconfig: Path, namespace: str) -> lightkube.Client:
    return lightkube.Client(config=KubeConfig.from_file(kubeconfig), namespace=namespace, field_manager="light")


def test_lightkube_lives_through_a_whole_life(light: lightkube.Client) -> None:
    before = light.list(ConfigMap)
    assert [found.metadata.name for found in before if found.metadata] == ["kube-root-ca.crt"]
    version = before.resourceVersion
    seen: list[str] = []

    def look() -> None:
        for kind, _ in light.watch(ConfigMap, resource_version=version, server_timeout=60):
            seen.append(kind)
            if kind == "DELETED":
                return

    looking = threading.Thread(target=look)
    looking.start()
    made = light.create(ConfigMap(metadata=ObjectMeta(name="c", labels={"a": "b"}), data={"a": "1"}))
    assert made.metadata is not None
    assert made.metadata.uid
    light.patch(ConfigMap, "c", {"data": {"a": "2"}}, patch_type=PatchType.MERGE)
    light.patch(ConfigMap, "c", [{"op": "add", "path": "/data/b", "value": "3"}], patch_type=PatchType.JSON)
    light.replace(light.get(ConfigMap, "c"))
    assert [item.data for item in light.list(ConfigMap, labels={"a": "b"}, chunk_size=1)] == [{"a": "2", "b": "3"}]
    light.delete(ConfigMap, "c", cascade=CascadeType.BACKGROUND)
    looking.join(300)
    assert seen == LIFE
    with pytest.raises(ApiError) as caught:
        light.get(ConfigMap, "c")
    assert caught.value.status.code == 404


def test_lightkube_applies_and_merges_strategically(light: lightkube.Client) -> None:
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "e", "image": "j"}]},
            },
        },
    }
    assert light.apply(Deployment.from_dict(body)).spec is not None
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "e", "ports": [{"containerPort": 80}]}]}}}}
    changed = light.patch(Deployment, "d", patch, patch_type=PatchType.STRATEGIC)
    assert changed.spec is not None
    assert changed.spec.template.spec is not None
    containers = {container.name: container for container in changed.spec.template.spec.containers}
    assert containers["e"].ports == [ContainerPort(containerPort=80, protocol="TCP")]
    assert containers["e"].image == "j"
    light.patch(Deployment.Scale, "d", {"spec": {"replicas": 4}}, patch_type=PatchType.MERGE)
    scale = light.get(Deployment.Scale, "d")
    assert scale.spec is not None
    assert scale.spec.replicas == 4
