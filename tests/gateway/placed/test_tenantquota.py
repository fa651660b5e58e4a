"""The quota of a tenant over stored and placed namespaces together (AD1 to AD3, P8)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tenants.models import Role
from tenants.quotas import tenant_quota
from tenants.services import tenant_quota_change
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, another
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

MAPS = "count/configmaps"
ROUNDS = int(os.environ.get("TENANT_QUOTA_ROUNDS", "3"))


def path_of(namespace: str, plural: str = "configmaps") -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}"


def bound(door: Door, **hard: str) -> None:
    tenant_quota_change(actor=OPERATOR, name=door.name, hard={MAPS: "1000", **hard})
    assert eventually(lambda: set(hard) <= set(tenant_quota(door.name).used))


def used(door: Door, name: str = MAPS) -> int:
    return int(tenant_quota(door.name).used.get(name, "-1"))


def there(owner: Caller, *namespaces: str) -> int:
    return sum(len(owner.get(path_of(namespace)).body["items"]) for namespace in namespaces)


def pod(name: str, cpu: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Mi"}, "limits": {"cpu": cpu, "memory": "1Mi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def placed(door: Door) -> tuple[Caller, str]:
    """An owner, and a namespace on the cluster that has been counted."""
    owner = door.person("olga", Role.OWNER)
    namespace = door.place(owner)
    bound(door)
    # The cluster puts one of its own into every namespace.
    assert eventually(lambda: used(door) == there(owner, namespace, "default"))
    return owner, namespace


def test_both_kinds_of_namespaces_count_and_a_refusal_names_the_amounts(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    before = there(owner, namespace, "default")
    bound(door, **{MAPS: str(before + 3)})
    assert owner.post(path_of(namespace), config_map("a")).status == 201
    assert owner.post(path_of("default"), config_map("a")).status == 201
    assert used(door) == before + 2
    assert owner.post(path_of(namespace), config_map("b"), dryRun="All").status == 201
    assert owner.post(path_of(namespace), config_map("a")).status == 409
    assert used(door) == before + 2
    assert owner.post(path_of(namespace), config_map("b")).status == 201
    for at in (namespace, "default"):
        refused = owner.post(path_of(at), config_map("c"))
        assert refused.status == 403
        said = f"exceeded quota: tenant {door.name}, requested: {MAPS}=1, used: {MAPS}={before + 3}, limited: {MAPS}={before + 3}"
        assert said in refused.body["message"]
    assert owner.delete(f"{path_of(namespace)}/a").status == 200
    assert eventually(lambda: used(door) == before + 2)
    assert owner.post(path_of("default"), config_map("c")).status == 201


def test_pods_count_with_the_defaults_that_the_cluster_gives_them(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    bound(door, **{"requests.cpu": "1"})
    assert owner.post(path_of(namespace, "pods"), pod("a", "600m")).status == 201
    assert tenant_quota(door.name).used["requests.cpu"] == "600m"
    refused = owner.post(path_of(namespace, "pods"), pod("b", "500m"))
    assert "requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1" in refused.body["message"]
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "c"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    assert owner.post(path_of(namespace, "pods"), plain).status == 201
    assert tenant_quota(door.name).used["requests.cpu"] == "700m"


def test_below_what_is_used_growth_alone_is_refused(door: Door, placed: tuple[Caller, str]) -> None:
    owner, namespace = placed
    assert owner.post(path_of(namespace), config_map("a")).status == 201
    bound(door, **{MAPS: "1"})
    assert owner.post(path_of(namespace), config_map("b")).status == 403
    assert owner.patch(f"{path_of(namespace)}/a", {"data": {"still": "changes"}}).status == 200
    assert owner.delete(f"{path_of(namespace)}/a").status == 200


@pytest.fixture
def two(
    door: Door, door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Server, Server]]:
    """The API server, and another one with two processes."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(door.server, tmp_path / "data", "--workers", "2") as second:
        yield door.server, second


def test_forty_at_once_in_several_processes_are_never_one_too_many(
    door: Door, placed: tuple[Caller, str], two: tuple[Server, Server]
) -> None:
    """TENANT_QUOTA_ROUNDS rounds, three unless it says otherwise."""
    owner, namespace = placed
    second = two[1].user(door.name, f"olga@{door.name}.test", "tenantry:owner")
    assert eventually(lambda: second.get(path_of(namespace)).status == 200)
    names = (f"m{number}" for number in count())

    def make(each: tuple[int, str]) -> int:
        number, name = each
        who, at = (owner, second)[number % 2], (namespace, "default")[number // 2 % 2]
        return who.post(path_of(at), config_map(name, labels={"of": "race"})).status

    def held() -> int:
        return there(owner, namespace, "default")

    with ThreadPoolExecutor(20) as pool:
        for _ in range(ROUNDS):
            room = held() + 7
            bound(door, **{MAPS: str(room)})
            assert eventually(lambda: used(door) == held())
            statuses = list(pool.map(make, zip(range(40), names, strict=False)))
            assert set(statuses) <= {201, 403}
            assert held() == room - 7 + statuses.count(201) <= room

            def filled(room: int = room) -> bool:
                """Nothing is lost for ever: what was refused too early for a moment fits when it is tried again."""
                owner.post(path_of(namespace), config_map(next(names), labels={"of": "race"}))
                return held() == room

            assert eventually(filled)
            assert eventually(lambda room=room: used(door) == room)
            for at in (namespace, "default"):
                assert owner.delete(path_of(at), labelSelector="of").status == 200
