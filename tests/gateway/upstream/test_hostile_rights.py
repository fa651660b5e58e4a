"""What is kept of the rights on clusters, where one of them means harm: it fills nothing (GW4, GW12, AD8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from gateway.upstream import clusters
from gateway.upstream.placed import rights
from gateway.upstream.placed.rights import PlacedRights
from gateway.upstream.placements import Placement
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import GROUP, Rule
from store.types import Key, Range
from tenants.clusters.client import Answer, Outcome
from tenants.models import Cluster
from tests.databases import migrated
from tests.gateway.upstream.following import (
    EVIL,
    NAMESPACES,
    SPACE,
    at_work,
    following,
    list_of,
)
from tests.gateway.upstream.rawcluster import Visit


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("following") as url:
        yield url


async def _told(seen: Any, namespace: str, number: int) -> bool:
    return len(seen.objects.get(namespace, ())) == number


async def test_a_cluster_that_says_the_same_for_ever_fills_nothing(database: str) -> None:
    """Its namespaces are due once each, and others' and unknown ones not at all."""
    events = [
        {"type": "MODIFIED", "object": {"metadata": {"name": f"r{number % 3}", "namespace": namespace}, "rules": []}}
        for number in range(3000)
        for namespace in (EVIL, "elsewhere")
    ]
    said = asyncio.Event()

    async def flood(visit: Visit) -> None:
        body = b"".join(orjson.dumps(each) + b"\n" for each in events)
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body))
        said.set()
        await asyncio.Event().wait()

    def evil(path: str) -> Any:
        return (flood if "/roles?" in path else None) if "watch=" in path else list_of()

    async with following(database, evil, lambda path: None if "watch=" in path else list_of()) as there:
        work = PlacedRights(there.store, there, database)  # type: ignore[arg-type]
        held = asyncio.Event()
        most = 0

        async def settle(_placement: Placement, seen: Any) -> None:
            nonlocal most
            await said.wait()
            await there.until(lambda: _told(seen, EVIL, 3))
            most = max(most, len(seen.due))
            held.set()

        work._settle = settle  # type: ignore[method-assign]
        async with at_work(work.run()):
            async with asyncio.timeout(300):
                await held.wait()
            assert most <= 1


async def test_what_is_kept_of_a_clusters_rbac_is_bounded_in_bytes(database: str) -> None:
    """AD8: no number of names, but their length, fills a database. What does not fit gives no right."""
    long = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x" * 1000] * 3000}
    subjects = [{"kind": "User", "name": "tenantry:ann", "apiGroup": GROUP}]

    def evil(path: str) -> Any:
        if "watch=true" in path:
            return None
        metadata = {"namespace": EVIL}
        if "rolebindings" in path:
            reference = {"kind": "Role", "apiGroup": GROUP}
            return list_of(
                *(
                    {"metadata": {**metadata, "name": n}, "roleRef": {**reference, "name": n}, "subjects": subjects}
                    for n in ("a", "b", "c", "d", "small")
                )
            )
        small = {**long, "resourceNames": ["x"]}
        return list_of(
            *({"metadata": {**metadata, "name": name}, "rules": [long]} for name in ("a", "b", "c", "d")),
            {"metadata": {**metadata, "name": "small"}, "rules": [small]},
        )

    async with following(database, evil, lambda path: None if "watch=true" in path else list_of()) as there:
        kept: dict[str, int] = {}

        async def settled() -> bool:
            found = await there.store.list(Range(SPACE, GROUP, "roles", EVIL))
            kept.clear()
            kept.update({stored.key.name: len(stored.data) for stored in found.items})
            return "small" in kept

        async with at_work(PlacedRights(there.store, there, database).run()):
            await there.until(settled)
    assert sum(kept.values()) < 2 * 1024 * 1024


@pytest.mark.parametrize(("number", "kept"), [(100, True), (400, False)])
def test_roles_that_say_more_than_is_kept_of_them_say_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int, kept: bool
) -> None:
    """AD8: what the accounts hold is kept for each namespace there. All three together; of such a cluster nothing is known."""
    rule = {"verbs": ["get"], "apiGroups": ["example.org"], "resources": ["widgets"], "resourceNames": ["x" * 1000]}
    said = Answer(Outcome.DONE, 200, {"metadata": {"name": "r"}, "rules": [rule] * number})
    monkeypatch.setattr(clusters, "client_to", lambda _row: SimpleNamespace(get=lambda _path: said))
    assert (clusters._roles(Cluster(name="evil", tenant_role="tenantry-tenant-admin")) is not None) is kept


async def test_what_an_operator_opens_to_workspaces_later_is_kept_as_well(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW19: of namespaces that are there already, without any change of theirs."""
    monkeypatch.setattr(rights, "LOOK_SECONDS", 0.01)

    def quiet(path: str) -> Any:
        return None if "watch=true" in path else list_of()

    async with following(database, quiet, quiet) as there:

        async def kept() -> Any:
            stored = await there.store.get(Key(SPACE, GROUP, "roles", next(iter(NAMESPACES)), "tenantry:viewer"))
            return orjson.loads(stored.data)["rules"] if stored is not None else None

        async with at_work(PlacedRights(there.store, there, database).run()):
            for rules in ([], [Rule(("get",), ("example.org",), ("widgets",))]):
                there._roles = WorkspaceRoles.of({"viewer": rules}, {})
                async with asyncio.timeout(300):
                    while await kept() != [rule.as_dict() for rule in rules]:
                        await asyncio.sleep(0.02)
