"""What a creation reads, counted in objects: what was read for the one before, and is the same, is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.options import Options
from gateway.server.inprocess import Gateway
from kube.authentication.identity import Principal
from tests.gateway.callers import config_map
from tests.gateway.conftest import Server
from tests.gateway.test_podsecurity import pod

CREATIONS = 5

Create = Callable[[str, dict[str, Any]], list[str]]


@pytest.fixture
def create(server: Server, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Create]:
    """Creates an object; of which kinds objects were read for it."""
    owner = Principal(name="olga", groups=("tenantry:owner",), tenant=acme, authenticator="portal")
    read: list[Any] = []
    loads = orjson.loads

    def noted(text: bytes | str) -> Any:
        read.append(loads(text))
        return read[-1]

    with Gateway(Options(database_url=server.database, data_folder=tmp_path)) as gateway:
        monkeypatch.setattr(orjson, "loads", noted)

        def created(plural: str, body: dict[str, Any]) -> list[str]:
            read.clear()
            assert gateway.call(owner, "POST", f"/api/v1/namespaces/default/{plural}", body=body).status == 201
            return [each["kind"] for each in read if isinstance(each, dict) and "kind" in each]

        yield created


def test_a_plain_object_is_all_that_is_read_for_it(create: Create) -> None:
    costs = [create("configmaps", config_map(f"cost-{number}")) for number in range(CREATIONS)]
    assert costs[1:] == [["ConfigMap"]] * (CREATIONS - 1)


def test_for_a_pod_the_quota_that_it_changes_is_read_once_more(create: Create) -> None:
    """Neither its namespace, nor its service account, nor the quota's bounds."""
    costs = [create("pods", pod(f"cost-{number}")) for number in range(CREATIONS)]
    assert costs[1:] == [["Pod", "TenantQuota"]] * (CREATIONS - 1)
