"""What a tenant's objects may take together, through two processes of a server that bounds each at one mebibyte (AD8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from kube.requests.logicalclusters import ROOT
from store.engine import Engine
from store.postgresql.statements import SPACE_BYTES
from store.sizes import UNDER_WAY_BYTES
from store.types import Create, Key, Update
from tenants.clusters.objects import DEFAULT_TIER
from tenants.policies import TIER_LIMITS
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server, another, completed, tenant_named

MAPS = "/api/v1/namespaces/default/configmaps"
LIMIT = 1 << 20
KILO = 1000


@pytest.fixture(scope="module")
def small(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TENANT_STORED_MEBIBYTES", "1")
        with another(server, tmp_path_factory.mktemp("small") / "data", "--workers", "2") as running:
            yield running


@pytest.fixture
def tenant(server: Server) -> str:
    """A tenant with all that its namespaces begin with: what comes later would count as well."""
    name = tenant_named(server, f"t-{uuid4().hex[:8]}")
    space = f"/clusters/root:{name}"
    for namespace in server.admin.get(f"{space}/api/v1/namespaces").body["items"]:
        completed(server.admin, namespace["metadata"]["name"], prefix=space)
    return name


@pytest.fixture
def owner(small: Server, tenant: str) -> Caller:
    caller = small.user(tenant, "olga", "tenantry:owner")
    # Both processes know the tenant.
    assert eventually(lambda: all(caller.get(MAPS).status == 200 for _ in range(10)))
    return caller


def filled(name: str, kilobytes: int, **metadata: Any) -> dict[str, Any]:
    return config_map(name, {"filling": "x" * (kilobytes * KILO)}, **metadata)


def taken(server: Server, tenant: str, *, below: bool = False) -> tuple[int, int]:
    """What is counted, and what is there; in the workspaces below its space, too."""
    with psycopg.connect(server.database) as connection:
        # One statement sees one moment: controllers put back what a deletion of all took with it.
        found = connection.execute(
            f"SELECT (SELECT coalesce(sum(bytes), 0) FROM ({SPACE_BYTES}) AS s WHERE space = %(space)s OR space LIKE %(below)s),"
            " (SELECT coalesce(sum(octet_length(data)), 0) FROM store_object WHERE space = %(space)s OR space LIKE %(below)s)",
            {"space": f"root:{tenant}", "below": f"root:{tenant}:%" if below else ""},
        ).fetchone()
        counted, there = found or (0, 0)
        return int(counted), int(there)


def full(owner: Caller) -> Answer:
    """Fill the tenant; the answer that refuses."""
    for number in range(12):
        answer = owner.post(MAPS, filled(f"c{number}", 100))
        if answer.status != 201:
            return answer
    raise AssertionError("nothing bounds it")


def test_what_grows_beyond_the_bound_is_refused_in_the_words_of_a_quota(
    small: Server, tenant: str, owner: Caller
) -> None:
    refused = full(owner)
    assert refused.status == 403 and refused.reason == "Forbidden"
    counted, there = taken(small, tenant)
    message = refused.body["message"]
    name = refused.body["details"]["name"]
    (cause,) = refused.body["details"]["causes"]
    asked, used = re.findall(r"[0-9]+", cause["message"])[:2]
    assert 100 * KILO < int(asked) < 102 * KILO
    # One process may not have heard yet of what the other one has kept: of that they take one object more, and no further one.
    assert counted == there <= LIMIT + int(asked)
    # What the product's own controllers write and remove meanwhile is no more than some bytes.
    assert LIMIT - int(asked) < int(used) < counted + KILO
    assert cause == {
        "reason": "QuotaExceeded",
        "field": "tenantry.io/stored-bytes",
        "message": f"asked {asked}, {used} of {LIMIT} used in the tenant",
    }
    assert message.startswith(
        f'configmaps "{name}" is forbidden: exceeded quota: stored-bytes-of-the-tenant, '
        f"requested: tenantry.io/stored-bytes={asked}, used: tenantry.io/stored-bytes={used}, "
        f"limited: tenantry.io/stored-bytes={LIMIT}; "
    )
    assert "delete objects" in message and "stored_mebibytes" in message
    # Whichever way it grows.
    assert owner.patch(f"{MAPS}/c0", {"data": {"more": "x" * 100 * KILO}}).status == 403
    assert owner.put(f"{MAPS}/c0", filled("c0", 300)).status == 403
    assert owner.patch(f"{MAPS}/new", filled("new", 300), "apply", fieldManager="me").status == 403
    assert owner.post(MAPS, filled("dry", 300), dryRun="All").status == 403
    assert owner.patch(f"{MAPS}/c0", {"data": {"more": "x" * 100 * KILO}}, dryRun="All").status == 403
    # Nothing of it is kept.
    assert abs(taken(small, tenant)[0] - counted) < KILO


def test_what_shrinks_or_goes_always_may_and_makes_room(small: Server, tenant: str, owner: Caller) -> None:
    held = [f"example.com/{number}" for number in range(5)]
    assert owner.post(MAPS, filled("held", 300, finalizers=held)).status == 201
    applied = {**config_map("applied", {}, finalizers=held[:2]), "apiVersion": "v1", "kind": "ConfigMap"}
    assert owner.patch(f"{MAPS}/applied", applied, "apply", fieldManager="applier").status == 201
    assert full(owner).status == 403
    # A deletion that waits for somebody writes a time of deletion, and whoever lets go leaves less, whichever way.
    assert owner.delete(f"{MAPS}/held").status == 200
    for number, (kind, patch) in enumerate(
        (
            ("merge", {"metadata": {"finalizers": held[1:]}}),
            ("strategic-merge", {"metadata": {"$deleteFromPrimitiveList/finalizers": held[1:2]}}),
            ("json", [{"op": "remove", "path": "/metadata/finalizers/0"}]),
        )
    ):
        answer = owner.patch(f"{MAPS}/held", patch, kind, fieldManager=f"controller-{number}")
        assert (answer.status, answer.body["metadata"].get("finalizers")) == (200, held[number + 1 :])
    body = owner.get(f"{MAPS}/held").body
    body["metadata"]["finalizers"] = held[4:]
    assert owner.put(f"{MAPS}/held", body, fieldManager="another").status == 200
    applied["metadata"]["finalizers"] = held[1:2]
    assert owner.delete(f"{MAPS}/applied").status == 200
    assert owner.patch(f"{MAPS}/applied", applied, "apply", fieldManager="applier").status == 200
    assert owner.patch(f"{MAPS}/c0", {"data": {"filling": "x" * 100}}).status == 200
    for name in ("held", "applied"):
        assert owner.patch(f"{MAPS}/{name}", {"metadata": {"finalizers": None}}).status == 200
        assert owner.get(f"{MAPS}/{name}").status == 404
    assert eventually(lambda: owner.post(MAPS, filled("again", 200)).status == 201)
    assert owner.delete(MAPS).status == 200
    counted, there = taken(small, tenant)
    assert counted == there < 100 * KILO


def test_nothing_grows_behind_a_finalizer_that_goes(small: Server, tenant: str, owner: Caller) -> None:
    names = [f"a.b/{number}" for number in range(1, 4)]
    assert owner.post(MAPS, config_map("held", {}, finalizers=names)).status == 201
    assert full(owner).status == 403
    counted = taken(small, tenant)[0]
    entry = {
        "manager": "m",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {f"f:{'x' * 200 * KILO}": {}}},
    }
    for more in (
        {"managedFields": [entry]},
        {"managedFields": [{**entry, "manager": "x" * 200 * KILO, "fieldsV1": {"f:data": {}}}]},
        {"annotations": {"a": "x" * 200 * KILO}},
    ):
        refused = owner.patch(f"{MAPS}/held", {"metadata": {"finalizers": names[1:], **more}})
        assert (refused.status, "stored-bytes" in refused.body["message"]) == (403, True)
    assert abs(taken(small, tenant)[0] - counted) < KILO
    assert owner.get(f"{MAPS}/held").body["metadata"]["finalizers"] == names
    # Who owned what goes as well, as ever.
    assert owner.patch(f"{MAPS}/held", {"metadata": {"finalizers": names[1:], "managedFields": [{}]}}).status == 200


def test_operators_are_not_refused_and_the_product_is_not_but_both_count(
    small: Server, tenant: str, owner: Caller
) -> None:
    assert full(owner).status == 403
    at = f"/clusters/root:{tenant}"
    before = taken(small, tenant)[0]
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "helped"}}
    assert owner.post("/api/v1/namespaces", {**body, "metadata": {"name": "x" * 60, "annotations": {"a": "x" * 100 * KILO}}}).status == 403  # fmt: skip
    assert small.admin.post(f"{at}/api/v1/namespaces", body).status == 201
    # The controllers make whole what was begun, full or not.
    inside = "/api/v1/namespaces/helped"
    assert eventually(lambda: owner.get(f"{inside}/configmaps/kube-root-ca.crt").status == 200)
    assert eventually(lambda: owner.get(f"{inside}/serviceaccounts/default").status == 200)
    assert small.admin.post(f"{at}{MAPS}", filled("given", 300)).status == 201
    counted, there = taken(small, tenant)
    assert counted == there > before + 300 * KILO
    # The system space has no bound.
    for number in range(2):
        name = f"big-{tenant}-{number}"
        assert small.admin.post(MAPS, filled(name, 900)).status == 201
        assert small.admin.delete(f"{MAPS}/{name}").status == 200


def tier_of(server: Server, tenant: str) -> Key:
    """The tier of a tenant's namespaces, of its own."""
    key = Key(ROOT, *TIER_LIMITS, "", f"tier-{tenant}")
    annotated = {"metadata": {"annotations": {DEFAULT_TIER: key.name}}}
    assert server.admin.patch(f"/api/v1/tenants/{tenant}", annotated).status == 200
    return key


async def says(server: Server, tier: Key, rules: dict[str, int]) -> None:
    async with Engine(server.database) as store:
        there = await store.get(tier)
        body = {"metadata": {"name": tier.name}, "rules": rules}
        await store.commit(Create(tier, body) if there is None else Update(tier, there.revision, body))


def test_the_bound_of_a_tier_reaches_every_process_and_leaves_with_it(
    small: Server, tenant: str, owner: Caller
) -> None:
    assert full(owner).status == 403
    key = tier_of(small, tenant)

    def say(rules: dict[str, int]) -> None:
        asyncio.run(says(small, key, rules))

    def written(name: str) -> list[int]:
        return [owner.post(MAPS, filled(f"{name}{number}", 50)).status for number in range(6)]

    say({"stored_mebibytes": 3})
    assert eventually(lambda: owner.post(MAPS, filled("first", 100)).status == 201)
    assert eventually(lambda: written(uuid4().hex[:6]) == [201] * 6)
    say({"read_qps": 1_000_000})
    assert eventually(lambda: written(uuid4().hex[:6]) == [403] * 6)
    say({"stored_mebibytes": 0})
    assert eventually(lambda: written(uuid4().hex[:6]) == [201] * 6)


def test_many_at_once_through_two_processes_pass_it_by_no_more_than_is_said(
    small: Server, tenant: str, owner: Caller
) -> None:
    def write(number: int) -> int:
        return owner.post(MAPS, filled(f"c{number}", 900)).status

    with ThreadPoolExecutor(12) as threads:
        statuses = list(threads.map(write, range(36)))
    assert set(statuses) == {201, 403}
    counted, there = taken(small, tenant)
    assert counted == there <= LIMIT + UNDER_WAY_BYTES
    # Afterwards nothing more is admitted, by either.
    assert [write(number) for number in range(50, 60)] == [403] * 10
