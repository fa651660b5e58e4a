"""A request that goes on to a real cluster, as the collector has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tenants.models import Role
from tests.clusters import TestCluster
from tests.collector import Collector, collecting
from tests.databases import url_of
from tests.gateway.conftest import Server, start, stop
from tests.gateway.placed.conftest import Door
from tests.kubeapiserver import PRESENT, REASON

pytestmark = pytest.mark.skipif(not PRESENT, reason=REASON)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def door_server(
    collector: Collector,
    django_db_setup: None,
    django_db_blocker: Any,
    sealing_key: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, str]]:
    """One that is traced."""
    from django.db import connection

    with django_db_blocker.unblock():
        database = url_of(connection.settings_dict["NAME"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**collector.environment, "TENANTRY_SEALING_KEYS": sealing_key}.items():
            patch.setenv(name, value)
        running = start(tmp_path_factory.mktemp("traced") / "data", database)
    yield running, sealing_key
    stop(running)


def test_a_request_through_the_door_is_followed_to_its_cluster(
    door: Door, collector: Collector, cluster_kube_apiserver: TestCluster
) -> None:
    olga = door.person("olga", Role.OWNER)
    name = door.place(olga)
    answer = olga.post(
        f"/api/v1/namespaces/{name}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "colours"}, "data": {"word": "xyzzy"}},
    )
    assert answer.status == 201, answer.body
    asked = collector.wait_for(lambda span: span.attributes.get("audit-id") == answer.headers["audit-id"])
    assert asked.name == "POST /api/v1/namespaces/{:namespace}/configmaps"
    (handled,) = [span for span in collector.children(asked) if span.name == "Create"]
    # The token that goes with it may have been asked for on the way.
    called = collector.wait_for(lambda span: span.trace == asked.trace and "tenantry.cluster" in span.attributes)
    assert (called.name, called.parent) == ("POST", handled.id)
    assert called.attributes["tenantry.cluster"] == "kube-apiserver"
    assert called.attributes["http.response.status_code"] == 201
    assert handled.begun <= called.begun < called.ended <= handled.ended
    assert b"xyzzy" not in collector.raw
