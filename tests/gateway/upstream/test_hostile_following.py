"""What the product follows on clusters by itself, where one of them means harm: it holds up nobody else (GW12, GW15, D8)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import orjson
import pytest

from access.admission.tenancy.placedquota import PlacedQuotas
from access.credentials.tokenrequests import ClusterToken
from gateway.process.keyedlocks import KeyedLocks
from gateway.upstream.client import Cluster, Upstream
from gateway.upstream.openedobjects import OpenedObjects
from gateway.upstream.placed import hosts, rights
from gateway.upstream.placed.hosts import IngressReader
from gateway.upstream.placed.quota import PlacedUsageController
from gateway.upstream.placed.rights import PlacedRights
from gateway.upstream.placements import Placement, Placements
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.leastrole import ROLES, WorkspaceRoles
from kube.authorization.rbac import GROUP, Rule
from kube.kinds.openings import openings_from
from kube.quota.tenantquotas import PLACED_USAGES, UsageRule, used_of
from kube.requests.status import ServiceUnavailable
from store.engine import Engine, Options
from store.types import Create, Delete, Key, Range, Update
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tenants.quotas import tenant_quota_key
from tests.databases import migrated
from tests.gateway.upstream.asking import PATIENT
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster

SPACE = "root:acme"
EVIL = "acme-1"
NAMESPACES = {"acme-0": "good", EVIL: "evil", "acme-2": "good"}
"""Wherever names are in order, one comes before that on the cluster that means harm, and one behind it."""

Reply = Callable[[str], Any]
"""Of the path: what is answered, JSON or bytes; ``None`` for never anything."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("following") as url:
        yield url


def list_of(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": list(items)}


def answering(reply: Reply, heard: list[str]) -> Callable[[Visit], Awaitable[None]]:
    async def behave(visit: Visit) -> None:
        while True:
            line, _, _ = await visit.request()
            heard.append(line.split()[1].decode())
            said = reply(heard[-1])
            if said is None:
                await asyncio.Event().wait()
            elif callable(said):
                await said(visit)
                return
            else:
                await visit.say(ok(said if isinstance(said, bytes) else json.dumps(said).encode()))

    return behave


class Following:
    """The store, and two clusters as the product knows them; ``heard`` are the paths that each was asked for."""

    def __init__(self, store: Engine, database: str, upstreams: dict[str, Upstream], heard: dict[str, list[str]]):
        self.store, self.database, self.heard = store, database, heard
        self.names = frozenset(upstreams)
        self._upstreams = upstreams
        rules = dict.fromkeys(ROLES, (Rule(("*",), groups=("*",), resources=("*",)),))
        self._roles = WorkspaceRoles.of(rules, {f"tenantry-{role}": role for role in ROLES})
        self.opened = openings_from("storageclasses.storage.k8s.io")

    @property
    def all(self) -> frozenset[Cluster]:
        return frozenset(replace(self._upstreams[name].cluster, name=name) for name in self.names)

    def upstream(self, name: str) -> Upstream:
        return self._upstreams[name]

    def as_gateway(self, name: str) -> tuple[Upstream, str]:
        return self._upstreams[name], "gateway"

    async def roles(self, _name: str) -> WorkspaceRoles:
        return self._roles

    def openings(self, _name: str) -> Any:
        return self.opened

    @property
    def tokens(self) -> WorkspaceTokens:
        return WorkspaceTokens(lambda *_: ClusterToken("t", None, datetime.now(UTC) + timedelta(hours=1)))

    async def place(self) -> None:
        """Namespaces on both clusters, and a quota."""
        for name, cluster in NAMESPACES.items():
            labels = {CLUSTER_LABEL: cluster, WORKSPACE_LABEL: str(uuid4())}
            body = {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}}
            await self.store.commit(Create(Key(SPACE, "", "namespaces", "", name), body))
        hard = {"pods": "9", "requests.cpu": "9"}
        quota = {"metadata": {"name": "quota"}, "spec": {"hard": hard}, "status": {"used": dict.fromkeys(hard, "0")}}
        await self.store.commit(Create(tenant_quota_key("acme"), quota))

    async def used(self) -> dict[str, str]:
        stored = await self.store.get(tenant_quota_key("acme"))
        assert stored is not None
        return {name: str(amount) for name, amount in used_of(orjson.loads(stored.data)).items()}

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.timeout(300):
            while not await condition():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def following(database: str, evil: Reply, good: Reply) -> AsyncIterator[Following]:
    replies, heard = {"evil": evil, "good": good}, {"evil": [], "good": []}
    async with AsyncExitStack() as stack:
        upstreams = {}
        for name, reply in replies.items():
            cluster = await stack.enter_async_context(raw_cluster(answering(reply, heard[name])))
            upstreams[name] = Upstream(cluster.cluster, PATIENT)
            stack.push_async_callback(upstreams[name].close)
        store = await stack.enter_async_context(Engine(database, Options(poll_seconds=0.05)))
        followed = Following(store, database, upstreams, heard)
        await followed.place()
        try:
            yield followed
        finally:
            for each in (Range(SPACE, "", "namespaces"), Range(SPACE, *PLACED_USAGES), tenant_quota_key("acme")):
                await _remove(store, each)


async def _remove(store: Engine, what: Range | Key) -> None:
    found = [await store.get(what)] if isinstance(what, Key) else (await store.list(what)).items
    for stored in found:
        await store.commit(Delete(stored.key, stored.revision, orjson.loads(stored.data)))


@asynccontextmanager
async def at_work(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def pod(cpu: Any, namespace: str = "acme-2") -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"name": "p", "namespace": namespace, "uid": "u"}, "spec": {"containers": containers}}


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


async def _told(seen: Any, namespace: str, number: int) -> bool:
    return len(seen.objects.get(namespace, ())) == number


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


MACHINES = "kubevirt.io"
GROUP_SAID: dict[str, Any] = {
    "never": None,
    "no JSON": b"{",
    "no version": {"kind": "APIGroup"},
    "no text": {"preferredVersion": {"version": 5}},
    "a way out": {"preferredVersion": {"version": "v1/../../../../api/v1/secrets?x="}},
}


@pytest.mark.parametrize("harm", GROUP_SAID)
async def test_kinds_that_clusters_alone_have_count_by_rules_whatever_another_says_of_its_own(
    database: str, harm: str
) -> None:
    """AD3: a virtual machine takes its cores where it is, in the version that its cluster has."""

    def evil(path: str) -> Any:
        return GROUP_SAID[harm] if path.endswith(f"/apis/{MACHINES}") else list_of()

    def good(path: str) -> Any:
        if path.endswith(f"/apis/{MACHINES}"):
            return {"kind": "APIGroup", "preferredVersion": {"version": "v1beta2"}}
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
        if path.endswith(f"/apis/{MACHINES}"):
            versions = [{"version": "v2"}, {"version": "v1"}]
            return {"kind": "APIGroup", "preferredVersion": versions[0], "versions": versions}
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
            if 0 < seconds <= rights.REST_SECONDS and there.heard["evil"] and seconds > 2:
                lists.append(len([path for path in there.heard["evil"] if "watch" not in path]))
                rested.set()
                await asyncio.Event().wait()
            await sleep(seconds, *given)

        monkeypatch.setattr(rights.asyncio, "sleep", noted)
        async with at_work(PlacedRights(there.store, there, database).run()):
            async with asyncio.timeout(300):
                await rested.wait()
    assert lists == [2], "both kinds once, and then a rest"


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
