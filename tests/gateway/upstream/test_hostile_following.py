"""What the product follows on clusters by itself, where one of them means harm: it holds up nobody else (GW12, GW15, D8)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from access.admission.tenancy.placedquota import PlacedQuotas, usage_key
from access.credentials.tokenrequests import ClusterToken
from gateway.process.keyedlocks import KeyedLocks
from gateway.upstream import clusters
from gateway.upstream.client import Cluster
from gateway.upstream.openedobjects import OpenedObjects
from gateway.upstream.placed import hosts, quota, rights
from gateway.upstream.placed.hosts import IngressReader
from gateway.upstream.placed.quota import PlacedUsageController
from gateway.upstream.placed.rights import PlacedRights
from gateway.upstream.placements import Placement, Placements
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.placedrights import PREFIX
from kube.authorization.rbac import GROUP
from kube.customresources.definitions import CRDS
from kube.kinds.openings import API_SERVICES, openings_from
from kube.quota.quantities import parse_quantity
from kube.quota.reservations import Reservation
from kube.quota.tenantquotas import PLACED_RESERVATIONS, PLACED_USAGES, UsageRule
from kube.requests.status import ServiceUnavailable
from store.types import Key, Range, Update
from tenants.quotas import tenant_quota_key
from tests.databases import migrated
from tests.gateway.upstream.following import (
    EVIL,
    NAMESPACES,
    SPACE,
    at_work,
    following,
    list_of,
    pod,
)
from tests.gateway.upstream.rawcluster import Visit


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("following") as url:
        yield url


COUNTS = {
    "never": lambda _path: None,
    "no JSON": lambda _path: b"{",
    "no spec": lambda _path: list_of({**pod("1"), "spec": 5}),
    "no status": lambda _path: list_of({**pod("1"), "status": [5]}),
    "no containers": lambda _path: list_of({**pod("1"), "spec": {"containers": 5}}),
    "no resources": lambda _path: list_of({**pod("1"), "spec": {"containers": [{"resources": "x"}]}}),
    "no amount": lambda _path: list_of(pod({"x": "y"})),
    "less than nothing": lambda _path: list_of(pod("-1000"), {**pod("-1000"), "metadata": {"name": "q", "uid": "v"}}),
}


@pytest.mark.parametrize("harm", COUNTS)
async def test_what_a_cluster_says_of_its_objects_keeps_nobody_elses_from_being_counted(
    database: str, harm: str
) -> None:
    """AD1: nor does it make room for more on others."""
    async with following(database, COUNTS[harm], lambda _path: list_of(pod("2"))) as there:
        namespaces = SimpleNamespace(quotas=lambda *_: ())
        quotas = PlacedQuotas(there.store, (), namespaces, lambda *_: {}, KeyedLocks().of_tenant_quota)
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)

        # Two of others, and what can be told of the one that means harm.
        pods = "4" if harm == "less than nothing" else "2"

        async def counted() -> bool:
            return await there.used() == {"pods": pods, "requests.cpu": "4"} and bool(there.heard["evil"])

        async with at_work(controller.run()):
            await there.until(counted)


async def test_who_has_room_is_counted_less_often_and_who_has_none_as_often_as_ever(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AD2: what is given back is waited for where it is short, and nowhere else."""
    monkeypatch.setattr(quota, "_ROOMY_APART_SECONDS", 3600.0)
    monkeypatch.setattr(quota, "_APART_SECONDS", 0.0)
    cores = "8"

    def said(path: str) -> Any:
        return list_of(pod(cores)) if "/namespaces/acme-2/pods" in path else list_of()

    async with following(database, said, said) as there:
        quotas = PlacedQuotas(
            there.store, (), SimpleNamespace(quotas=lambda *_: ()), lambda *_: {}, KeyedLocks().of_tenant_quota
        )
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)
        undo = there.store.subscribe(controller.on_events)
        place = usage_key(SPACE, "acme-2")

        async def counted() -> bool:
            return (await there.used())["requests.cpu"] == cores

        async def put_off() -> bool:
            await quotas.touch(place)
            return controller._due.get((SPACE, "acme-2"), 0) > time.time() + 1800

        async with at_work(controller.run()):
            await there.until(counted)
            cores = "1"
            await quotas.touch(place)
            await there.until(counted)
            cores = "2"
            await there.until(put_off)
            assert (await there.used())["requests.cpu"] == "1"
        undo()


MACHINES = "kubevirt.io"


def groups(*versions: Any) -> dict[str, Any]:
    """What a cluster says that has machines in these versions, and prefers the first."""
    told = [{"version": version} for version in versions]
    return {"kind": "APIGroupList", "groups": [{"name": MACHINES, "versions": told, "preferredVersion": told[0]}]}


GROUPS_SAID: dict[str, Any] = {
    "never": None,
    "no JSON": b"{",
    "no groups": {"kind": "APIGroupList"},
    "no names": {"groups": [{"name": {}}]},
    "no version": {"groups": [{"name": MACHINES}]},
    "no text": groups(5),
    "a way out": groups("v1/../../../../api/v1/secrets?x="),
}


@pytest.mark.parametrize("harm", GROUPS_SAID)
async def test_kinds_that_clusters_alone_have_count_by_rules_whatever_another_says_of_its_own(
    database: str, harm: str
) -> None:
    """AD3: a virtual machine takes its cores where it is, in the version that its cluster has."""

    def evil(path: str) -> Any:
        return GROUPS_SAID[harm] if path == "/apis" else list_of()

    def good(path: str) -> Any:
        if path == "/apis":
            return groups("v1beta2")
        if f"/apis/{MACHINES}/v1beta2/namespaces/" in path:
            return list_of({"metadata": {"name": "m", "uid": "m"}, "spec": {"domain": {"cores": 3}}})
        return list_of(pod("2")) if "/pods" in path else b'{"kind":"Status","metadata":{},"code":404}'

    rule = UsageRule(name="vcpus", group=MACHINES, plural="virtualmachines", path=("spec", "domain", "cores"))
    async with following(database, evil, good) as there:
        stored = await there.store.get(tenant_quota_key("acme"))
        assert stored is not None
        hard = {"vcpus": "9", "pods": "9"}
        bounded = {"metadata": {"name": "quota"}, "spec": {"hard": hard}, "status": {"used": dict.fromkeys(hard, "0")}}
        await there.store.commit(Update(stored.key, stored.revision, bounded))
        namespaces = SimpleNamespace(quotas=lambda *_: ())
        quotas = PlacedQuotas(there.store, (rule,), namespaces, lambda *_: {}, KeyedLocks().of_tenant_quota)
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)

        async def counted() -> bool:
            return await there.used() == {"pods": "2", "vcpus": "6"} and bool(there.heard["evil"])

        async with at_work(controller.run()):
            await there.until(counted)
        assert not any("secrets" in path for path in there.heard["evil"])


async def missing(visit: Visit) -> None:
    """The kind is not served in this version."""
    await visit.say(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def test_a_kind_counts_in_whichever_version_of_its_group_it_is(database: str) -> None:
    """AD3: a group prefers a version for all of its kinds, and need not have each kind in it."""

    def cluster(path: str) -> Any:
        if path == "/apis":
            return groups("v2", "v1")
        if path == f"/apis/{MACHINES}/v2":
            return {"kind": "APIResourceList", "resources": []}
        if f"/apis/{MACHINES}/v1/" in path:
            return list_of({"metadata": {"name": "m", "uid": "m"}, "spec": {}})
        return missing if f"/apis/{MACHINES}/" in path else list_of()

    named = f"count/virtualmachines.{MACHINES}"
    async with following(database, cluster, cluster) as there:
        stored = await there.store.get(tenant_quota_key("acme"))
        assert stored is not None
        bounded = {"metadata": {"name": "quota"}, "spec": {"hard": {named: "9"}}, "status": {"used": {named: "0"}}}
        await there.store.commit(Update(stored.key, stored.revision, bounded))
        quotas = PlacedQuotas(
            there.store, (), SimpleNamespace(quotas=lambda *_: ()), lambda *_: {}, KeyedLocks().of_tenant_quota
        )
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)

        async def counted() -> bool:
            return await there.used() == {named: str(len(NAMESPACES))}

        async with at_work(controller.run()):
            await there.until(counted)


async def test_who_says_that_it_has_no_pods_at_all_gives_no_room_back(database: str) -> None:
    """AD1: a built-in kind that is not served, for a moment or by a lie, is not known to be without objects."""
    gone = False

    def cluster(path: str) -> Any:
        if "/pods" in path and not gone:
            return list_of(pod("2"))
        return missing if "/pods" in path else list_of()

    async with following(database, cluster, cluster) as there:
        quotas = PlacedQuotas(
            there.store, (), SimpleNamespace(quotas=lambda *_: ()), lambda *_: {}, KeyedLocks().of_tenant_quota
        )

        def controller() -> PlacedUsageController:
            return PlacedUsageController(there.store, quotas, there, there.tokens, database)

        async def counted() -> bool:
            return (await there.used()).get("pods") == str(len(NAMESPACES))

        async with at_work(controller().run()):
            await there.until(counted)
        gone = True
        asked = {name: len(paths) for name, paths in there.heard.items()}

        async def asked_again() -> bool:
            return all(any("/pods" in path for path in there.heard[name][number:]) for name, number in asked.items())

        async with at_work(controller().run()):
            await there.until(asked_again)
            await asyncio.sleep(0.2)
        assert await counted()


async def test_the_task_of_a_cluster_that_is_gone_ends(database: str) -> None:
    """What it was about to do comes first; those of others go on."""

    def tasks() -> set[str]:
        names = (task.get_name() for task in asyncio.all_tasks())
        return {name.rpartition(" ")[2] for name in names if name.startswith("placed quota on ")}

    async with following(database, lambda _path: list_of(), lambda _path: list_of(pod("2"))) as there:
        namespaces = SimpleNamespace(quotas=lambda *_: ())
        quotas = PlacedQuotas(there.store, (), namespaces, lambda *_: {}, KeyedLocks().of_tenant_quota)
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)

        async def known(*clusters: str) -> bool:
            return tasks() == set(clusters)

        async with at_work(controller.run()):
            await there.until(partial(known, "evil", "good"))
            there.names = frozenset({"good"})
            await there.until(partial(known, "good"))


async def test_more_than_can_be_kept_is_counted_as_the_most_that_can(database: str) -> None:
    """A sum that nobody could read again would keep the tenant from everything, long after the cluster is gone."""
    amounts = list_of(pod("9e299"), {**pod("1n"), "metadata": {"name": "q", "uid": "v"}})
    async with following(database, lambda _path: amounts, lambda _path: list_of(pod("2"))) as there:
        quotas = PlacedQuotas(there.store, (), SimpleNamespace(), lambda *_: {}, KeyedLocks().of_tenant_quota)
        controller = PlacedUsageController(there.store, quotas, there, there.tokens, database)

        async def counted() -> bool:
            return float((await there.used())["pods"]) == 4

        async with at_work(controller.run()):
            await there.until(counted)
        await quotas.forget(Key(SPACE, *PLACED_USAGES, "", EVIL))
        assert (await there.used())["pods"] == "2"


def storage_class(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "provisioner": "example.org/disks"}


async def test_what_other_clusters_open_is_shown_while_one_never_answers(database: str) -> None:
    async with following(database, lambda _path: None, lambda _path: list_of(storage_class("fast"))) as there:
        opened = OpenedObjects(there.store, there, database)

        async def shown() -> bool:
            items = (await there.store.list(Range(SPACE, "storage.k8s.io", "storageclasses"))).items
            return [stored.key.name for stored in items] == ["fast"] and bool(there.heard["evil"])

        async with at_work(opened.run()):
            await there.until(shown)


async def ended(visit: Visit) -> None:
    await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def test_a_cluster_whose_watches_end_at_once_is_not_read_without_a_rest(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading may be as long as a cluster likes: what is read again and again is read now and then."""
    rested = asyncio.Event()
    lists: list[int] = []
    sleep = asyncio.sleep

    def evil(path: str) -> Any:
        return ended if "watch=true" in path else list_of()

    async with following(database, evil, lambda path: None if "watch=true" in path else list_of()) as there:

        async def noted(seconds: float, *given: Any) -> None:
            if seconds > 60:
                lists.append(len([path for path in there.heard["evil"] if "watch" not in path]))
                rested.set()
                await asyncio.Event().wait()
            await sleep(seconds, *given)

        # Longer than any reading takes on any machine, and than whatever else is waited for meanwhile.
        monkeypatch.setattr(rights, "REST_SECONDS", 600.0)
        monkeypatch.setattr(rights.asyncio, "sleep", noted)
        async with at_work(PlacedRights(there.store, there, database).run()):
            async with asyncio.timeout(300):
                await rested.wait()
    assert lists == [2], "both kinds once, and then a rest"


async def test_a_cluster_that_never_says_which_hosts_it_has_keeps_nobody_waiting(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for a name is another tenant: it is told that the name is taken."""
    monkeypatch.setattr(hosts, "ASK_SECONDS", 0.05)
    async with following(database, lambda _path: None, lambda _path: list_of()) as there:
        reader = IngressReader(Placements(there.store), there, there.tokens)
        with pytest.raises(ServiceUnavailable):
            async with asyncio.timeout(300):
                await reader.hosts(SPACE)


async def test_tokens_of_one_cluster_keep_nobody_waiting_for_those_of_another() -> None:
    """However many workspaces there are on a cluster that takes its time to issue each."""
    go = threading.Event()

    def issue(placement: Placement, _cluster: Cluster, _role: str, now: datetime) -> ClusterToken:
        if placement.cluster == "evil":
            go.wait(240)
        return ClusterToken("t", None, now + timedelta(hours=1))

    tokens = WorkspaceTokens(issue)

    def placed(cluster: str) -> Placement:
        return Placement(str(uuid4()), cluster, SPACE, "acme-web", "Active")

    there = Cluster(uid="c", name="any", url="https://cluster.test", ca_pem="")
    waiting = [asyncio.create_task(tokens.get(placed("evil"), there, "viewer")) for _ in range(100)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(300):
            assert await tokens.get(placed("good"), there, "viewer") == "t"
            # Whatever else is done beside the loop, the look-up of a host name say.
            assert await asyncio.to_thread(lambda: 5) == 5
    finally:
        go.set()
        await asyncio.gather(*waiting)


async def test_what_other_servers_of_a_cluster_define_is_no_more_than_what_is_shown_of_any_kind(database: str) -> None:
    """AD8, GW20: of all of them together, however many there are, in the space of each tenant there."""

    def api_service(group: str) -> dict[str, Any]:
        spec = {"group": group, "version": "v1", "service": {"name": "s", "namespace": "n"}}
        return {"metadata": {"name": f"v1.{group}"}, "spec": spec}

    def evil(path: str) -> Any:
        if "/apiservices" in path:
            return list_of(*(api_service(f"g{number}.example.org") for number in range(10, 25)))
        kinds = [{"name": f"things{number}", "kind": f"Thing{number}", "namespaced": True} for number in range(30)]
        return {"kind": "APIResourceList", "resources": kinds}

    async with following(database, evil, lambda _path: list_of()) as there:
        there.opened = openings_from("apiservices.apiregistration.k8s.io")
        last = Key(SPACE, GROUP, "clusterrolebindings", "", f"{PREFIX}opened:evil")

        async def done() -> bool:
            return await there.store.get(last) is not None

        async with at_work(OpenedObjects(there.store, there, database).run()):
            await there.until(done)
        assert len((await there.store.list(Range(SPACE, *CRDS))).items) == 200
        assert len((await there.store.list(Range(SPACE, *API_SERVICES))).items) == 15


PLATFORMS = ("kcp.io", "mine.kcp.io", "tenantry.io", "quota.tenantry.io")


@pytest.mark.parametrize("by", ["definitions", "discovery"])
async def test_no_cluster_shows_tenants_what_they_would_take_for_the_platforms_own(database: str, by: str) -> None:
    """AD4, GW20: by definitions of its own, and by what it says that other servers answer for."""
    groups = (*PLATFORMS, f"{by}.notkcp.io")

    def definition(group: str) -> dict[str, Any]:
        names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        return {"metadata": {"name": f"things.{group}"}, "spec": spec}

    def api_service(group: str) -> dict[str, Any]:
        spec = {"group": group, "version": "v1", "service": {"name": "s", "namespace": "n"}}
        return {"metadata": {"name": f"v1.{group}"}, "spec": spec}

    def evil(path: str) -> Any:
        if "/customresourcedefinitions" in path:
            return list_of(*(map(definition, groups) if by == "definitions" else ()))
        if "/apiservices" in path:
            return list_of(*(map(api_service, groups) if by == "discovery" else ()))
        return {"kind": "APIResourceList", "resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}

    async with following(database, evil, lambda _path: list_of()) as there:
        there.opened = openings_from(
            "customresourcedefinitions.apiextensions.k8s.io\napiservices.apiregistration.k8s.io"
        )
        # Written once all that is shown is.
        last = Key(SPACE, GROUP, "clusterroles", "", f"{PREFIX}opened:evil")

        async def done() -> bool:
            role = await there.store.get(last)
            return role is not None and groups[-1].encode() in role.data

        async with at_work(OpenedObjects(there.store, there, database).run()):
            await there.until(done)
        found = {stored.key.name for stored in (await there.store.list(Range(SPACE, *CRDS))).items}
        assert f"things.{groups[-1]}" in found
        assert not found & {f"things.{group}" for group in PLATFORMS}


async def test_what_a_cluster_calls_what_it_asks_about_is_kept_as_far_as_names_go(database: str) -> None:
    """AD8: it may be as long as a review; what it takes is taken once all the same, and given back."""
    long, now = "x" * 500_000, time.time()
    async with following(database, lambda _path: list_of(), lambda _path: list_of()) as there:
        namespaces = SimpleNamespace(quotas=lambda *_: ())
        quotas = PlacedQuotas(there.store, (), namespaces, lambda *_: {}, KeyedLocks().of_tenant_quota)
        place, one = usage_key(SPACE, EVIL), {"pods": parse_quantity("1")}
        write = Reservation(amounts={}, until=now + 75, what=f"/pods/{long}", uid=long, version=long)
        for _ in range(2):
            assert await quotas.reserve(place, f"{long}/{long}", lambda _quota: one, write)
        kept = (await there.store.list(Range(SPACE, *PLACED_RESERVATIONS))).items
        assert [len(stored.data) < 8192 for stored in kept] == [True]
        assert (await there.used())["pods"] == "1"
        quotas.touch_soon(place, long)
        assert [len(uid) < 8192 for uid in quotas._ending[place]] == [True]
        await quotas.forget(place)
        assert (await there.used())["pods"] == "0"


async def test_clusters_that_take_their_time_to_say_what_accounts_hold_keep_nothing_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D8: a region that is away is many clusters, and each is asked again and again."""
    go, given_up = threading.Event(), list[bool]()

    def silent(_row: Any) -> None:
        given_up.append(not go.wait(120))

    monkeypatch.setattr(clusters, "_roles", silent)
    known, here = clusters.Clusters(""), cast("Any", None)
    for number in range(40):
        known._known[f"away-{number}"] = clusters._Known(here, here, here, here, ())
    waiting = [asyncio.create_task(known.roles(name)) for name in known.names]
    await asyncio.sleep(0)
    try:
        assert await asyncio.to_thread(lambda: 5) == 5
        assert not given_up, "whatever else is done in threads has waited for clusters"
    finally:
        go.set()
        await asyncio.gather(*waiting, return_exceptions=True)
