"""What objects say of themselves, in their statuses, makes no room in a tenant's quota (AD1)."""

from __future__ import annotations

from typing import Any

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server
from tests.gateway.test_quotas import pod
from tests.gateway.test_tenantquotas import bound, used


def infeasible(cpu: str) -> dict[str, Any]:
    """What the status of a pod says whose node cannot give it what it wants, and what it has."""
    has = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [{**has, "resources": {"requests": {"cpu": cpu}}}],
    }


def test_no_object_takes_less_than_nothing(server: Server, tenant: str, owner: Caller) -> None:
    """What one says of itself would make room for the others, on clusters too."""
    bound(server, tenant, {"requests.cpu": "4", "pods": "9"})
    path = "/api/v1/namespaces/default/pods"
    for name, cpu in (("a", "1"), ("b", "3")):
        assert owner.post(path, pod(name, cpu)).status == 201
    owner.patch(f"{path}/a/status", {"status": infeasible("-1000")})
    assert owner.post(path, pod("c", "2")).status == 403
    assert used(owner)["requests.cpu"] in ("3", "4")


def test_no_status_makes_room_that_another_takes_back(server: Server, tenant: str, owner: Caller) -> None:
    """AD1: no quota refuses what a status tells, so what a pod wants counts whether or not its node can give it."""
    bound(server, tenant, {"requests.cpu": "4"})
    path = "/api/v1/namespaces/default/pods"
    assert owner.post(path, pod("a", "4")).status == 201
    told = owner.patch(f"{path}/a/status", {"status": infeasible("1m")})
    assert told.status == 200, told.body
    assert used(owner)["requests.cpu"] == "4"
    assert owner.post(path, pod("b", "1m")).status == 403
    assert owner.patch(f"{path}/a/status", {"status": {"conditions": None}}).status == 200
    assert owner.delete(f"{path}/a").status == 200
    assert owner.post(path, pod("b", "4")).status == 201
    assert used(owner)["requests.cpu"] == "4"
