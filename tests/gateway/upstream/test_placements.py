"""Where a namespace lives, as the processes of an API server know it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream import clusternamespaces
from gateway.upstream import placements as module
from gateway.upstream.clusternamespaces import ClusterNamespaces
from gateway.upstream.placements import Placements
from kube.objects.publications import NAMESPACES
from kube.requests.logicalclusters import tenant_of
from store.engine import Engine
from store.interface import Reader
from store.types import AllSpaces, Create, Delete, Event, EventType, Key, Listing, Range, Stored, Update
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL
from tests.databases import migrated
from tests.gateway.loopturns import LoopTurns

SPACE = "root:places"
ROLES = ("rbac.authorization.k8s.io", "roles")
PLACED = {CLUSTER_LABEL: "east", WORKSPACE_LABEL: "uid"}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """One that no server works at."""
    with migrated("placements") as url:
        yield url


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"phase": "Active"},
    }


async def test_a_namespace_is_taken_for_a_stored_one_until_anybody_changes_it(database: str) -> None:
    """GW18: and is asked for again then; one that is placed, or not there, never is."""
    async with Engine(database) as store, Engine(database) as other:
        placements = Placements(store)
        key = Key(SPACE, *NAMESPACES, "", "one")

        async def seen() -> tuple[bool, bool]:
            # A reading that waits for what others have written.
            there = await store.get(key) is not None
            before = placements.is_kept(SPACE, "one")
            placement = await placements.of(SPACE, "one")
            assert placements.is_kept(SPACE, "one") is (there and placement is None)
            return before, placement is not None

        assert await seen() == (False, False)
        stored: Stored = (await other.commit(Create(key, namespace("one"))))[0]
        assert await seen() == (False, False)
        assert await seen() == (True, False)
        stored = (await other.commit(Update(key, stored.revision, namespace("one", **PLACED))))[0]
        assert await seen() == (False, True)
        assert await seen() == (False, True)
        stored = (await other.commit(Update(key, stored.revision, namespace("one"))))[0]
        assert await seen() == (False, False)
        assert placements.is_kept(SPACE, "one")
        await other.commit(Delete(key, stored.revision, namespace("one")))
        assert await seen() == (False, False)


async def test_what_is_kept_of_placed_namespaces_is_filtered_whatever_is_held_in_memory(database: str) -> None:
    """GW18: one that was placed before, and one that is placed meanwhile, in whichever space."""
    async with Engine(database) as store, Engine(database) as other:
        placements = Placements(store)
        for space in ("root:here", "root:there"):
            before, later, plain = (Key(space, *NAMESPACES, "", name) for name in ("before", "later", "plain"))
            await other.commit(Create(before, namespace("before", **PLACED)), Create(plain, namespace("plain")))
            filters = [await placements.shown(ROLES, None, spaces=among) for among in ([space], None)]
            await other.commit(Create(later, namespace("later", **PLACED)))
            assert await store.get(later) is not None
            for held in (True, False):
                if not held:
                    store._cache.clear()
                for one in filters:
                    assert one is not None
                    shown = [
                        key.name for key in (before, later, plain) if one.places(Key(space, *ROLES, key.name, "r"))
                    ]
                    assert shown == ["plain"]


class Listings:
    """What a store is asked for, page by page; ``between`` is called before each page but a first."""

    def __init__(self, store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Range | AllSpaces] = []
        self.between: Callable[[], Awaitable[None]] | None = None
        self._list = store.list
        monkeypatch.setattr(store, "list", self)

    async def __call__(self, selection: Range | AllSpaces, **form: Any) -> Listing:
        if form.get("after") is not None and self.between is not None:
            await self.between()
        self.asked.append(selection)
        return await self._list(selection, **form)


class Looks(LoopTurns):
    """Counts the namespaces that are looked at in one turn, for whomever."""

    def _count(self, frame: FrameType, event: str, called: object) -> None:
        super()._count(frame, event, called)
        self._steps += event == "call" and frame.f_code is module.placement_in.__code__

    def _counts(self, event: str, called: object) -> bool:
        return False


async def test_what_is_placed_is_learnt_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DOS-03: and in turns, however many namespaces there are; anew where the log does not continue."""
    monkeypatch.setattr(module, "_PAGE", 10)
    some, looks = [f"root:once-{number}" for number in range(30)], Looks()
    async with Engine(database) as store:
        placements, listings = Placements(store), Listings(store, monkeypatch)
        await store.commit(*(Create(Key(space, *NAMESPACES, "", "n"), namespace("n", **PLACED)) for space in some))
        many = [Create(Key(some[0], *NAMESPACES, "", f"n-{number}"), namespace("n")) for number in range(50)]
        await store.commit(*many)
        assert await placements.shown(("", "secrets"), None, spaces=None) is None
        assert not listings.asked
        for spaces in (some[:1], some, None):
            for _ in range(2):
                # What a space holds may be in memory, or not.
                for space in some:
                    await store.get(Key(space, *NAMESPACES, "", "n"), cached=True)
                with looks.counting():
                    await placements.shown(ROLES, None, spaces=spaces)
                assert looks.most <= 10
        await placements.shown(ROLES, None, spaces=["root:another"])
        assert [each.space for each in listings.asked if isinstance(each, Range)][:6] == some[:1] * 6
        assert sorted(listings.asked[6:35]) == sorted(Range(space, *NAMESPACES) for space in some[1:])
        assert {*listings.asked[35:]} == {AllSpaces(*NAMESPACES)}
        listings.asked.clear()
        store._forget(store.revision)
        assert not placements.is_placed(some[1], "n")
        await placements.shown(ROLES, None, spaces=some[1:2])
        assert placements.is_placed(some[1], "n")
        assert listings.asked == [Range(some[1], *NAMESPACES)]


async def test_a_space_more_than_are_remembered_has_all_of_them_learnt(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOS-03: what is remembered does not grow with who asks."""
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    async with Engine(database) as store:
        placements, listings = Placements(store), Listings(store, monkeypatch)
        for number in range(9):
            await placements.shown(ROLES, None, spaces=[f"root:more-{number}"])
        assert [type(each) for each in listings.asked] == [Range] * 3 + [AllSpaces]


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("everywhere", [False, True])
async def test_what_is_heard_while_what_is_placed_is_learnt_is_newer(
    database: str, monkeypatch: pytest.MonkeyPatch, everywhere: bool, replaced: bool
) -> None:
    """GW18: of namespaces that have been looked at, and of others; what another history interrupts begins anew."""
    monkeypatch.setattr(module, "_PAGE", 2)
    # Of all spaces the first.
    space = f"root:{everywhere:d}{replaced:d}"
    keys = [Key(space, *NAMESPACES, "", f"n-{number}") for number in range(6)]
    async with Engine(database) as store:
        placements, listings = Placements(store), Listings(store, monkeypatch)
        bodies = [(namespace(key.name), namespace(key.name, **PLACED)) for key in keys]
        before = await store.commit(*(Create(key, bodies[number][number % 2]) for number, key in enumerate(keys)))

        async def turned() -> None:
            listings.between = None
            if replaced:
                store._forget(store.revision)
            for number in range(4):
                await store.commit(Update(keys[number], before[number].revision, bodies[number][1 - number % 2]))
            await store.commit(Delete(keys[5], before[5].revision, bodies[5][0]))

        listings.between = turned
        one = await placements.shown(ROLES, None, spaces=None if everywhere else [space])
        assert one is not None
        assert listings.between is None
        for held in (True, False):
            if held:
                await store.get(keys[0])
            else:
                store._cache.clear()
            shown = [key.name for key in keys if one.places(Key(space, *ROLES, key.name, "r"))]
            assert shown == ["n-1", "n-3", "n-4", "n-5"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_whose_namespaces_a_cluster_holds_is_learnt_in_turns(
    database: str, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """GW17: and of what is heard before anybody asks nothing is kept but what is placed (DOS-03)."""
    monkeypatch.setattr(clusternamespaces, "_PAGE", 10)
    # Of all spaces the first.
    space, cluster, looks = f"root:!{replaced:d}", f"west-{replaced:d}", Looks()
    keys = [Key(space, *NAMESPACES, "", f"w-{number:02}") for number in range(50)]
    bodies = [(namespace(key.name), namespace(key.name, **{**PLACED, CLUSTER_LABEL: cluster})) for key in keys]
    async with Engine(database) as store:
        placements, listings = ClusterNamespaces(store), Listings(store, monkeypatch)
        event = Event(EventType.ADDED, keys[0], 1, b"{}")
        references = sys.getrefcount(event)
        placements.on_events([event])
        assert sys.getrefcount(event) == references
        store.subscribe(placements.on_events, lost=placements.forget, resources=[NAMESPACES])
        before = await store.commit(*(Create(key, bodies[number][number % 2]) for number, key in enumerate(keys)))

        async def turned() -> None:
            listings.between = None
            if replaced:
                store._forget(store.revision)
            for number in (0, 1, 48):
                await store.commit(Update(keys[number], before[number].revision, bodies[number][1 - number % 2]))
            await store.commit(Delete(keys[49], before[49].revision, bodies[49][1]))

        listings.between = turned
        with looks.counting():
            found = sorted(await placements.on(cluster))
        assert listings.between is None
        assert looks.most <= 15
        assert found == sorted(["w-00", "w-48", *(key.name for key in keys[3:48:2])])
        asked = len(listings.asked)
        assert sorted(await placements.on(cluster)) == found
        assert len(listings.asked) == asked


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["root:a", "root:b", "root:b:c"]),
            st.sampled_from(["n-1", "n-2"]),
            st.sampled_from(["west", "east", None]),
            st.sampled_from(["Active", "Terminating"]),
        ),
        max_size=20,
    )
)
def test_what_a_tenant_has_on_a_cluster_is_what_the_cluster_has_of_it(
    said: list[tuple[str, str, str | None, str]],
) -> None:
    """GW17: whatever comes, moves and goes, also where two spaces show a namespace of one name."""

    async def nothing(*_: Any, **__: Any) -> Listing:
        return Listing(items=(), revision=1)

    async def heard() -> None:
        placements = ClusterNamespaces(cast("Reader", SimpleNamespace(list=nothing)))
        assert await placements.of("a", "west") == {}
        for space, name, cluster, phase in said:
            key = Key(space, *NAMESPACES, "", name)
            body = namespace(name, **{**PLACED, CLUSTER_LABEL: cluster or ""})
            kind = EventType.MODIFIED if cluster else EventType.DELETED
            placements.on_events([Event(kind, key, 1, orjson.dumps({**body, "status": {"phase": phase}}))])
            for each in ("west", "east"):
                there = await placements.on(each)
                for tenant in ("a", "b"):
                    own = {name: found for name, found in there.items() if tenant_of(found.space) == tenant}
                    assert await placements.of(tenant, each) == own
        placements.forget()
        assert await placements.of("a", "west") == {}

    asyncio.run(heard())
