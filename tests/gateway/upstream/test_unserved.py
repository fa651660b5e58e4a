"""A 404 of a cluster: what it does not serve is left out, what is not there for a moment is not taken for gone (GW4, AD1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from access.admission.tenancy.placedquota import PlacedQuotas
from gateway.process.keyedlocks import KeyedLocks
from gateway.upstream import openedobjects
from gateway.upstream.openedobjects import OpenedObjects
from gateway.upstream.placed.quota import PlacedUsageController
from kube.requests.status import StatusError
from store.types import Range, Update
from tenants.quotas import tenant_quota_key
from tests.databases import migrated
from tests.gateway.upstream.following import NAMESPACES, SPACE, at_work, following, list_of
from tests.gateway.upstream.mergedspace import (
    CLAIMS,
    DISCOVERY,
    GROUPS,
    NO_PAGE,
    TABLE,
    Side,
    Space,
    answer,
    claim,
    namespaces,
    space,
)
from tests.gateway.upstream.rawcluster import Visit


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("unserved") as url:
        yield url


LACKING: dict[str, dict[str, Any]] = {
    "no such group": {"/apis": {"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]}},
    "no such version": {"/apis": {"groups": [{"name": "resource.k8s.io", "versions": [{"version": "v1beta1"}]}]}},
    "no such kind": {**GROUPS, "/apis/resource.k8s.io/v1": {"resources": [{"name": "deviceclasses"}]}},
}
NOT_TOLD: dict[str, dict[str, Any]] = {
    "it has the kind": DISCOVERY,
    "it has nothing": {},
    "it has the group, and says nothing of it": GROUPS,
    "no JSON": {"/apis": b"{"},
    "no groups": {"/apis": {"kind": "Status"}},
    "groups of nothing": {"/apis": {"groups": None}},
    "no kinds": {**GROUPS, "/apis/resource.k8s.io/v1": {"kind": "APIResourceList"}},
    "an error": {"/apis": answer(500)},
}
SAID = pytest.mark.parametrize("said", [NO_PAGE, answer(404)], ids=["no page", "Status"])


def of_claims(there: Space) -> Side:
    there.path = CLAIMS
    return there.sides["evil"]


@SAID
@pytest.mark.parametrize("lacking", LACKING)
async def test_what_a_cluster_does_not_serve_is_left_out(database: str, lacking: str, said: bytes) -> None:
    """Two clusters need not have the same: nothing is missing, for informers either."""
    async with space(database) as there:
        evil = of_claims(there)
        evil.harm["list"], evil.discovery = said, LACKING[lacking]
        for accept in (TABLE, b"application/json"):
            body, warnings = await there.list(accept)
            assert (namespaces(body), warnings) == ({"acme-good"}, [])
        body, _ = await there.list(limit="500")
        assert namespaces(body) == {"acme-good"}


@SAID
@pytest.mark.parametrize("told", NOT_TOLD)
async def test_what_a_cluster_may_have_is_not_taken_for_gone(database: str, told: str, said: bytes) -> None:
    async with space(database) as there:
        evil = of_claims(there)
        evil.harm["list"], evil.discovery = said, NOT_TOLD[told]
        for query in ({}, {"limit": "500"}):
            with pytest.raises(StatusError) as refused:
                await there.list(**query)
            assert (refused.value.code, "evil" in refused.value.message) == (502, True)
        body, (warning,) = await there.list(TABLE)
        assert namespaces(body) == {"acme-good"}
        assert "acme-evil" in warning
        with pytest.raises(StatusError) as refused:
            await there.watch(sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true")
        assert refused.value.code == 502


@SAID
async def test_a_kind_that_goes_while_it_is_listed_makes_no_whole_of_what_was_shown(database: str, said: bytes) -> None:
    """Its definition is removed between two pages, or two chunks: what follows is missing."""
    async with space(database) as there:
        evil = of_claims(there)
        evil.continues = "more"
        evil.harm["continue"], evil.discovery = said, LACKING["no such group"]
        with pytest.raises(StatusError) as refused:
            await there.list()
        assert refused.value.code == 502
        first, _ = await there.list(limit="500")
        assert namespaces(first) == {"acme-evil", "acme-good"}
        with pytest.raises(StatusError) as refused:
            await there.list(limit="500", **{"continue": first["metadata"]["continue"]})
        assert refused.value.code == 502
        # Of another chunk this part is all that is left, at the version that the first one has seen.
        for side in there.sides.values():
            side.continues, side.head = "", {"items": [claim(f"c{number}", side.namespace) for number in range(2)]}
        first, _ = await there.list(limit="2")
        assert namespaces(first) == {"acme-evil"}
        there.sides["good"].harm["list"], there.sides["good"].discovery = said, LACKING["no such group"]
        with pytest.raises(StatusError) as refused:
            await there.list(limit="2", **{"continue": first["metadata"]["continue"]})
        assert refused.value.code == 502


async def no_page(visit: Visit) -> None:
    await visit.say(NO_PAGE)


MACHINES = "kubevirt.io"


async def test_who_says_for_a_moment_that_it_has_no_machines_gives_no_room_back(database: str) -> None:
    """AD1: its discovery has them, or is not there either."""
    versions = [{"version": "v1"}]
    discovery: dict[str, Any] = {
        "/apis": {"groups": [{"name": MACHINES, "versions": versions, "preferredVersion": versions[0]}]},
        f"/apis/{MACHINES}/v1": {"resources": [{"name": "virtualmachines"}]},
    }
    gone: list[str] = []

    def cluster(path: str) -> Any:
        if any(path.startswith(each) for each in gone):
            return no_page
        if path in discovery:
            return discovery[path]
        return list_of({"metadata": {"name": "m", "uid": "m"}, "spec": {}}) if MACHINES in path else list_of()

    named = f"count/virtualmachines.{MACHINES}"
    async with following(database, cluster, cluster) as there:
        stored = await there.store.get(tenant_quota_key("acme"))
        assert stored is not None
        bounded = {"metadata": {"name": "quota"}, "spec": {"hard": {named: "9"}}, "status": {"used": {named: "0"}}}
        await there.store.commit(Update(stored.key, stored.revision, bounded))
        quotas = PlacedQuotas(
            there.store, (), SimpleNamespace(quotas=lambda *_: ()), lambda *_: {}, KeyedLocks().of_tenant_quota
        )

        async def counted() -> bool:
            return await there.used() == {named: str(len(NAMESPACES))}

        async def asked_again() -> bool:
            return all(len(paths) > before[name] for name, paths in there.heard.items())

        async with at_work(PlacedUsageController(there.store, quotas, there, there.tokens, database).run()):
            await there.until(counted)
        for gone[:] in ([f"/apis/{MACHINES}/v1/namespaces/"], ["/apis"]):
            before = {name: len(paths) for name, paths in there.heard.items()}
            async with at_work(PlacedUsageController(there.store, quotas, there, there.tokens, database).run()):
                await there.until(asked_again)
                await asyncio.sleep(0.2)
            assert await counted()


async def test_what_is_opened_stays_while_a_cluster_says_that_it_has_no_such_kind(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW20: a class, and an API of the space with what is kept by it, do not end with one answer."""
    monkeypatch.setattr(openedobjects, "LOOK_SECONDS", 0.05)
    gone = False

    def evil(path: str) -> Any:
        fast = {"metadata": {"name": "fast"}, "provisioner": "example.org/disks"}
        return no_page if gone else list_of(fast)

    async with following(database, evil, lambda _path: list_of()) as there:

        async def shown() -> bool:
            return bool((await there.store.list(Range(SPACE, "storage.k8s.io", "storageclasses"))).items)

        async def asked_again() -> bool:
            return len(there.heard["evil"]) > before + 3

        async with at_work(OpenedObjects(there.store, there, database).run()):
            await there.until(shown)
            gone, before = True, len(there.heard["evil"])
            await there.until(asked_again)
            assert await shown()
