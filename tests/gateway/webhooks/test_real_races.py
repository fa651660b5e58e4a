"""The race for a tenant's quota where a real cluster asks, and where clients come through the door as well (AD2, GW17)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.gateway.callers import Answer, answered, created, eventually
from tests.gateway.conftest import Server, another
from tests.gateway.webhooks.conftest import Asking, Customer
from tests.gateway.webhooks.test_admit import bound, used
from tests.gateway.webhooks.test_real_cluster import (
    PATIENCE,
    Real,
    asking,  # noqa: F401 - a fixture
    kube_asking,  # noqa: F401 - a fixture
    pods,
)
from tests.kubeapiserver import PRESENT, REASON

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PRESENT, reason=REASON),
]

ROUNDS = int(os.environ.get("TENANT_QUOTA_ROUNDS", "3"))


@pytest.fixture
def second(door_server: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Another API server, of three processes, beside the one that the cluster asks."""
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", door_server[1])
    with another(door_server[0], tmp_path / "second", "--workers", "3") as server:
        yield server


def heard(answer: Answer) -> Answer:
    """As busy as it was, where the cluster asked and did not wait for what it was told: it says that in words alone."""
    late = answer.status == 500 and b"failed calling webhook" in answer.raw and b"deadline exceeded" in answer.raw
    return replace(answer, status=503) if late else answer


def test_forty_at_once_by_the_door_and_by_the_cluster_are_never_one_too_many(
    kube_asking: Real,  # noqa: F811
    asking: Asking,  # noqa: F811
    acme: Customer,
    second: Server,
) -> None:
    """AD2, in four processes: half are asked about by the cluster alone, half come through doors, which the cluster asks about too.

    TENANT_QUOTA_ROUNDS rounds, three unless it says otherwise.
    """
    direct = kube_asking.caller(acme.token())
    doors = second.user(acme.tenant.name, acme.owner.email, "tenantry:owner")
    spec = {"containers": [{"name": "c", "image": "registry.example.org/web:1"}]}

    made = count()

    def make(number: int) -> int:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"race-{next(made)}"}, "spec": spec}
        return created(lambda: heard((direct if number % 2 else doors).post(pods(acme.namespace), body)))

    def there() -> int:
        return len(answered(lambda: direct.get(pods(acme.namespace))).body["items"])

    def filled() -> bool:
        """Nothing is lost for ever: what was refused too early for a moment fits when it is tried again."""
        make(1)
        return there() == 7

    bound(asking, acme, pods="7")
    assert eventually(lambda: direct.get(pods(acme.namespace)).status == 200, PATIENCE)
    assert eventually(lambda: doors.get(pods(acme.namespace)).status == 200, PATIENCE)
    with kube_asking.asked_about_writes("Fail"), ThreadPoolExecutor(20) as pool:
        assert eventually(lambda: make(1) == 403, PATIENCE), "the cluster asks"
        for _ in range(ROUNDS):
            assert answered(lambda: direct.delete(pods(acme.namespace))).status == 200
            assert eventually(lambda: used(asking, acme) == {"pods": "0"}, PATIENCE)
            statuses = list(pool.map(make, range(40)))
            assert set(statuses) <= {201, 403}, statuses
            assert there() == statuses.count(201) <= 7
            assert eventually(filled, PATIENCE)
            assert eventually(lambda: used(asking, acme) == {"pods": "7"}, PATIENCE)
