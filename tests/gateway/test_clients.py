"""The official Python client, unmodified, against a tenant's space (TS15)."""

from __future__ import annotations

import kubernetes
import pytest

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server


@pytest.fixture
def core(server: Server, alice: Caller) -> kubernetes.client.CoreV1Api:
    configuration = kubernetes.client.Configuration()
    configuration.host = server.url
    configuration.ssl_ca_cert = str(alice.ca)
    configuration.cert_file, configuration.key_file = str(alice.certificate), str(alice.key)
    return kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))


def test_objects_are_written_listed_watched_and_deleted(core: kubernetes.client.CoreV1Api, namespace: str) -> None:
    body = kubernetes.client.V1ConfigMap(metadata={"name": "c"}, data={"a": "1"})
    assert core.create_namespaced_config_map(namespace, body).metadata.uid
    core.patch_namespaced_config_map("c", namespace, {"data": {"a": "2"}})
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.replace_namespaced_config_map("c", namespace, core.read_namespaced_config_map("c", namespace))
    core.delete_namespaced_config_map("c", namespace)
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.read_namespaced_config_map("c", namespace)
    assert caught.value.status == 404
    watch = kubernetes.watch.Watch()
    stream = watch.stream(core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=2)
    assert [event["type"] for event in stream] == ["DELETED"]


def test_token_requests_work(core: kubernetes.client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "bot"}})
    spec = kubernetes.client.V1TokenRequestSpec(audiences=[], expiration_seconds=7200)
    request = kubernetes.client.AuthenticationV1TokenRequest(spec=spec)
    token = core.create_namespaced_service_account_token("bot", namespace, request)
    assert token.status.token.count(".") == 2
