"""Both audit logs tell of the same request under the same ID: the cluster's, and ours, which knows the person (GW4, GW13)."""

from __future__ import annotations

import json

import pytest

from audit.models import ApiRequest
from tenants.models import Role
from tests.gateway.callers import Answer, config_map
from tests.gateway.placed.conftest import Door

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_request_is_found_in_both_logs_by_one_id(door: Door) -> None:
    """Reads, writes and refusals of the cluster, by two people, with an ID of the client's that counts for nothing."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}/configmaps"
    forged = {"Audit-ID": "00000000-0000-4000-8000-000000000000"}
    asked: list[tuple[str, str, Answer]] = [
        ("olga", "create", owner.post(path, config_map("a"))),
        ("olga", "create", owner.post(path, config_map("a"))),
        ("olga", "patch", owner.patch(f"{path}/a", {"data": {"b": "2"}})),
        ("olga", "delete", owner.delete(f"{path}/a")),
        ("olga", "get", owner.get(f"{path}/a")),
        *(("vera", "list", viewer.get(path, forged)) for _ in range(10)),
    ]
    assert [answer.status for _, _, answer in asked[:5]] == [201, 409, 200, 200, 404]
    told = {answer.headers["audit-id"]: (who, verb) for who, verb, answer in asked}
    assert len(told) == len(asked)
    log = door.cluster.real.folder / "audit.log"

    def theirs() -> dict[str, tuple[str, str]]:
        entries = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        return {
            entry["auditID"]: (entry["user"]["username"], entry["verb"])
            for entry in entries
            if entry["auditID"] in told
        }

    found = door.until(lambda: theirs() if theirs().keys() == told.keys() else None)
    accounts = {"olga": {"sa-tenant-edit", "sa-tenant-view"}, "vera": {"sa-tenant-view"}}
    for identity, (who, verb) in told.items():
        account, said = found[identity]
        assert (said, account.removeprefix(f"system:serviceaccount:{name}:") in accounts[who]) == (verb, True)

    def ours() -> dict[str, tuple[str, str]]:
        rows = ApiRequest.objects.filter(request_id__in=list(told)).values_list("request_id", "actor", "verb")
        return {identity: (actor.partition("@")[0], verb) for identity, actor, verb in rows}

    assert door.until(lambda: ours() if ours().keys() == told.keys() else None) == told
