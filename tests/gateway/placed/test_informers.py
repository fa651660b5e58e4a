"""Clients that follow all namespaces of a tenant, stored ones and those on two clusters, as one cluster's (GW4, TS15)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf
import kubernetes
import lightkube
import pytest
from lightkube import KubeConfig
from lightkube.resources.core_v1 import ConfigMap

from tests.clusters import TestCluster
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, another, stop
from tests.gateway.placed.breaking import Relay
from tests.gateway.placed.conftest import House
from tests.gateway.placed.followers import OURS, Writer
from tests.gateway.placed.informer import Informer

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 240.0
"""Where a test gives up on clusters, whatever the machine."""


def test_clients_for_python_see_all_namespaces_as_one_cluster(new_house: Callable[[], House]) -> None:
    house = new_house()
    official = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(house.file)))
    light = lightkube.Client(config=KubeConfig.from_file(house.file), field_manager="light")
    with operator(house) as handled:
        version = official.list_config_map_for_all_namespaces(label_selector="test=ours").metadata.resource_version
        for name in house.names:
            body = kubernetes.client.V1ConfigMap(metadata={"name": "one", "labels": OURS}, data={"word": "first"})
            official.create_namespaced_config_map(name, body)
        watch, seen = kubernetes.watch.Watch(), set()
        for event in watch.stream(
            official.list_config_map_for_all_namespaces, label_selector="test=ours", resource_version=version
        ):
            seen.add((event["type"], event["object"].metadata.namespace))
            if len({namespace for _, namespace in seen}) == len(house.names):
                watch.stop()
        assert {namespace for kind, namespace in seen if kind == "ADDED"} == set(house.names)
        found = list(light.list(ConfigMap, namespace="*", labels=OURS))
        assert sorted(each.metadata.namespace for each in found if each.metadata) == sorted(house.names)
        light.patch(ConfigMap, "one", {"data": {"word": "second"}}, namespace=house.running)
        assert eventually(lambda: sorted(handled) == sorted([*house.names, f"{house.running} second"]), PATIENCE), (
            handled
        )
        for name in house.names:
            light.delete(ConfigMap, "one", namespace=name)
    assert eventually(lambda: not list(light.list(ConfigMap, namespace="*", labels=OURS)))


@contextlib.contextmanager
def operator(house: House) -> Iterator[list[str]]:
    """One with kopf for the whole space: it notes whose creation it handles, and what was changed."""
    registry, handled = kopf.OperatorRegistry(), []

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        caller = house.owner
        return kopf.ConnectionInfo(
            server=f"https://{caller.host}",
            ca_path=str(caller.ca),
            certificate_path=str(caller.certificate),
            private_key_path=str(caller.key),
        )

    @kopf.on.create("", "v1", "configmaps", labels=OURS, registry=registry)
    def created(namespace: str, **_: Any) -> None:
        handled.append(namespace)

    @kopf.on.update("", "v1", "configmaps", labels=OURS, field="data", registry=registry)
    def updated(namespace: str, body: Any, **_: Any) -> None:
        handled.append(f"{namespace} {body['data']['word']}")

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    stop, ready = threading.Event(), threading.Event()
    run = kopf.operator(
        registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop, ready_flag=ready
    )
    thread = threading.Thread(target=lambda: asyncio.run(run), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield handled
    finally:
        stop.set()
        thread.join(300)


@pytest.fixture
def spare(door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Another server of the same product, with the same certificates."""
    running, key = door_server
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", key)
    shutil.copytree(running.folder / "pki", tmp_path / "data" / "pki")
    with another(running, tmp_path / "data") as server:
        yield server


@pytest.mark.parametrize("streams", [False, True], ids=["lists", "streams"])
def test_an_informer_misses_and_repeats_nothing_whatever_breaks(
    new_house: Callable[[], House], second: TestCluster, spare: Server, streams: bool
) -> None:
    """The connection is lost, the server that it asks ends and another takes its place, a cluster's server is restarted."""
    house = new_house()
    writer = Writer(house.owner, house.names, PATIENCE)
    writer.write()
    with contextlib.ExitStack() as stack:
        relay = Relay(spare.port)
        stack.callback(relay.close)
        owner = house.owner
        address = f"https://127.0.0.1:{relay.listens}"
        caller = Caller(address, owner.ca, certificate=owner.certificate, key=owner.key)
        informer = Informer(caller, "/api/v1/configmaps", "test=ours", streams=streams)
        informer.start()
        stack.callback(informer.stop)

        def is_right() -> bool:
            return informer.words() == writer.words

        def calm() -> None:
            """While nothing breaks every single word arrives, once."""
            assert eventually(is_right, PATIENCE), (informer.words(), writer.words)
            writer.write(2)
            assert eventually(is_right, PATIENCE), (informer.words(), writer.words)
            told = [word for _, _, _, word in informer.deltas]
            assert [word for word in writer.last if told.count(word) == 0] == []

        calm()

        def end_the_server() -> None:
            relay.port = house.door.server.port
            stop(spare)

        for harm in (relay.lose, second.real.restart, end_the_server):
            breaking = threading.Thread(target=harm)
            breaking.start()
            writer.write()
            breaking.join(PATIENCE)
            calm()
        assert informer.counts["watches"] > 2
    assert informer.repeated == []
    versions = [delta[:3] for delta in informer.deltas]
    assert len(versions) == len(set(versions))
