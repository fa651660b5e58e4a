"""Namespace deletion and garbage collection, with workers that come and go (TS15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import orjson
import pytest

from kube.objects.strategies import finished
from store import garbagecollection
from store.engine import Engine
from store.types import Create, Delete, Event, EventType, Key, PreconditionFailed, Stored, Update

KINDS = {"Pod": ("pods", True), "ReplicaSet": ("replicasets", True), "Widget": ("widgets", False)}


def resource_of(space: str, version: str, kind: str) -> tuple[str, bool] | None:
    return KINDS.get(kind)


@asynccontextmanager
async def working(store: Engine, conninfo: str) -> AsyncIterator[None]:
    task = asyncio.create_task(garbagecollection.GarbageCollector(store, conninfo, resource_of, lambda *_: False).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbagecollection, "RETRY_SECONDS", 0.05)


def key_of(resource: str, name: str, namespace: str = "ns", space: str = "root:acme") -> Key:
    return Key(space, "", resource, namespace, name)


async def create(store: Engine, key: Key, *owners: dict[str, Any], **metadata: Any) -> Stored:
    references = {"ownerReferences": list(owners)} if owners else {}
    about = {"name": key.name, "uid": f"{key.space}/{key.name}", **references, **metadata}
    (stored,) = await store.commit(Create(key, {"metadata": about}))
    return stored


def widget(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name, "uid": f"root:acme/{name}"}}


def owned_by(name: str, kind: str = "ReplicaSet", space: str = "root:acme", *, block: bool = False) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"{space}/{name}", "blockOwnerDeletion": block}


async def mark_deleted(store: Engine, stored: Stored, *finalizers: str) -> None:
    body = orjson.loads(stored.data)
    body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": list(finalizers)}
    await store.commit(Update(stored.key, stored.revision, body))


async def current(store: Engine, key: Key) -> Stored:
    stored = await store.get(key)
    assert stored is not None
    return stored


async def change(store: Engine, key: Key, **metadata: Any) -> None:
    """As a client does it: an object whose last finalizer goes is gone."""
    async with asyncio.timeout(300):
        while True:
            stored = await current(store, key)
            body = orjson.loads(stored.data)
            body["metadata"] |= metadata
            with suppress(PreconditionFailed):
                await store.commit((Delete if finished(body) else Update)(key, stored.revision, body))
                return


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.01)


async def gone(store: Engine, *keys: Key) -> None:
    async with asyncio.timeout(300):
        for key in keys:
            while await store.get(key) is not None:
                await asyncio.sleep(0.01)


async def begun(store: Engine) -> None:
    """Once a worker leads: from here on it hears of everything."""
    await create(store, key_of("pods", "first"), owned_by("never"))
    await gone(store, key_of("pods", "first"))


async def test_namespace_goes_with_everything_in_it(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        namespace = key_of("namespaces", "ns", "")
        (stored,) = await store.commit(
            Create(namespace, {"metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}})
        )
        pods = [key_of("pods", f"p{number}") for number in range(5)]
        for pod in pods:
            await create(store, pod)
        held = await create(store, key_of("pods", "held"), finalizers=["example.com/hold"])
        elsewhere = [key_of("pods", "p0", "other"), key_of("pods", "p0", space="root:other")]
        for key in elsewhere:
            await create(store, key)
        body = orjson.loads(stored.data)
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        await store.commit(Update(namespace, stored.revision, body))
        async with working(store, conninfo):
            await gone(store, *pods)
            await asyncio.sleep(0.1)
            assert await store.get(namespace) is not None
            waiting = await store.get(held.key)
            assert waiting is not None
            assert "deletionTimestamp" in orjson.loads(waiting.data)["metadata"]
        # The worker went in the middle; another takes over and finishes when the finalizer is gone.
        async with working(store, conninfo):
            await store.commit(Delete(held.key, waiting.revision, orjson.loads(waiting.data)))
            await gone(store, held.key, namespace)
        for key in elsewhere:
            assert await store.get(key) is not None


async def test_pods_go_first_and_the_namespace_says_what_it_waits_for(conninfo: str) -> None:
    """Kubernetes' e2e "namespace deletion should delete pod first": a pod may need its secrets until it has ended."""
    told: list[dict[str, tuple[str, str]]] = []

    def hear(events: Sequence[Event]) -> None:
        for event in events:
            if event.key == namespace:
                conditions = orjson.loads(event.data).get("status", {}).get("conditions", ())
                told.append({each["type"]: (each["status"], each["message"]) for each in conditions})

    async with Engine(conninfo) as store:
        namespace = key_of("namespaces", "ns", "")
        body = {"metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}}
        (stored,) = await store.commit(Create(namespace, body))
        secret = await create(store, key_of("secrets", "secret"))
        kept = await create(store, key_of("widgets:some-uid", "kept"), finalizers=["example.com/y"])
        free = await create(store, key_of("pods", "free"))
        held = await create(store, key_of("pods", "held"), finalizers=["example.com/x"])
        await mark_deleted(store, stored)
        store.subscribe(hear)
        async with working(store, conninfo):
            await gone(store, free.key)
            await until(lambda: any(told))
            for other in (secret, kept):
                assert b'"deletionTimestamp"' not in (await current(store, other.key)).data
            await change(store, held.key, finalizers=[])
            await gone(store, held.key, secret.key)
            await until(lambda: "widgets" in told[-1]["NamespaceContentRemaining"][1])
            await change(store, kept.key, finalizers=[])
            await gone(store, kept.key, namespace)
    content = [each["NamespaceContentRemaining"] for each in told]
    finalizers = [each["NamespaceFinalizersRemaining"] for each in told]
    assert content == [
        ("True", "Some resources are remaining: pods. has 1 resource instances"),
        ("True", "Some resources are remaining: widgets. has 1 resource instances"),
        ("False", "All content successfully removed"),
    ]
    words = "Some content in the namespace has finalizers remaining: "
    assert finalizers == [
        ("True", f"{words}example.com/x in 1 resource instances"),
        ("True", f"{words}example.com/y in 1 resource instances"),
        ("False", "All content-preserving finalizers finished"),
    ]
    assert all(len(each) == 5 for each in told)


async def test_what_comes_into_a_namespace_while_it_is_emptied_goes_too(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(conninfo) as store:
        (namespace,) = await store.commit(Create(key_of("namespaces", "ns", ""), {"metadata": {"name": "ns"}}))
        late = key_of("secrets", "late")

        async def resources(space: str, namespace: str | None = None) -> Sequence[tuple[str, str]]:
            found = await Engine.resources(store, space, namespace)
            monkeypatch.undo()
            await create(store, late)
            return found

        monkeypatch.setattr(store, "resources", resources)
        await mark_deleted(store, namespace)
        async with working(store, conninfo):
            await gone(store, namespace.key)
        assert await store.get(late) is None


async def test_dependents_follow_their_last_owner_in_the_same_space(conninfo: str) -> None:
    async with Engine(conninfo) as store, working(store, conninfo):
        one, two = (
            await create(store, key_of("replicasets", "one")),
            await create(store, key_of("replicasets", "two")),
        )
        both = await create(store, key_of("pods", "both"), owned_by("one"), owned_by("two"))
        only = await create(store, key_of("pods", "only"), owned_by("one"))
        strange = await create(store, key_of("pods", "strange"), owned_by("one", "Unserved"))
        foreign_owner = await create(store, key_of("replicasets", "one", space="root:other"))
        foreign = await create(store, key_of("pods", "only", space="root:other"), owned_by("one", space="root:other"))
        await store.commit(Delete(one.key, one.revision, orjson.loads(one.data)))
        await gone(store, only.key)
        async with asyncio.timeout(300):
            while (now := await store.get(both.key)) is None or len(
                garbagecollection.owners_of(orjson.loads(now.data))
            ) != 1:
                await asyncio.sleep(0.01)
        await store.commit(Delete(two.key, two.revision, orjson.loads(two.data)))
        await gone(store, both.key)
        for key in (strange.key, foreign_owner.key, foreign.key):
            assert await store.get(key) is not None


async def test_dependents_follow_owners_whose_kind_goes_with_them(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As objects of a definition that is deleted: it goes right behind the last of them, before anybody has looked."""
    async with Engine(conninfo) as store, working(store, conninfo):
        await begun(store)
        made = [Create(key_of("widgets", f"w{number}", ""), widget(f"w{number}")) for number in range(3)]
        widgets = await store.commit(*made)
        owners = [owned_by(stored.key.name, "Widget") for stored in widgets]
        follows = [await create(store, key_of("pods", f"p{number}"), owners[number]) for number in range(3)]
        last = await create(store, key_of("pods", "last"), *owners)
        other = await create(store, key_of("pods", "other"), {**owners[0], "kind": "Unserved"})
        held = await create(store, key_of("pods", "held"), owners[0], {**owners[0], "uid": "x", "kind": "Unserved"})
        store.subscribe(lambda _: monkeypatch.delitem(KINDS, "Widget", raising=False))
        await store.commit(*(Delete(one.key, one.revision, orjson.loads(one.data)) for one in widgets))
        await gone(store, last.key, *(stored.key for stored in follows))
        for stored in (other, held):
            assert await store.get(stored.key) is not None


async def test_dependents_of_a_kind_that_comes_later_are_looked_at_then(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: nobody can say of an owner of an unknown kind that it is gone. The system space's come everywhere."""
    acme, other = "root:acme", "root:other"
    group = {"apiVersion": "example.com/v1"}

    def definition(space: str, name: str) -> Create:
        key = Key(space, "apiextensions.k8s.io", "customresourcedefinitions", "", name)
        return Create(key, {"metadata": {"name": name, "uid": f"{space}/{name}"}})

    async def looked_at(store: Engine, space: str) -> None:
        """A tenant's are looked at one after the other."""
        await create(store, key_of("pods", "last", space=space), owned_by("never"))
        await gone(store, key_of("pods", "last", space=space))

    async with Engine(conninfo) as store, working(store, conninfo):
        await begun(store)
        (owner,) = await store.commit(
            Create(Key(acme, "example.com", "gadgets", "", "there"), {"metadata": {"name": "there", "uid": "there"}})
        )
        late, elsewhere = [
            await create(store, key_of("pods", "late", space=space), {**owned_by("none", "Gadget"), **group})
            for space in (acme, other)
        ]
        kept = await create(store, key_of("pods", "kept"), {**owned_by("there", "Gadget"), **group, "uid": "there"})
        for space in (acme, other):
            await looked_at(store, space)
        for stored in (late, elsewhere, kept):
            assert await store.get(stored.key) is not None
        monkeypatch.setitem(KINDS, "Gadget", ("gadgets", False))
        await store.commit(definition(acme, "others.example.org"))
        await looked_at(store, acme)
        assert await store.get(late.key) is not None
        await store.commit(definition(acme, "gadgets.example.com"))
        await gone(store, late.key)
        await looked_at(store, other)
        assert await store.get(elsewhere.key) is not None
        await store.commit(definition("root", "gadgets.example.com"))
        await gone(store, elsewhere.key)
        await looked_at(store, acme)
        assert await store.get(kept.key) is not None
        assert await store.get(owner.key) is not None


async def test_nothing_is_remembered_of_owners_that_nobody_names(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        collector = garbagecollection.GarbageCollector(store, conninfo, resource_of, lambda *_: False)
        work = asyncio.create_task(collector.run())
        await begun(store)
        owner = await create(store, key_of("replicasets", "owner"))
        one = await create(store, key_of("pods", "one"), owned_by("owner"))
        two = await create(store, key_of("pods", "two"), owned_by("owner"), owned_by("unserved", "Unserved"))
        await create(store, key_of("pods", "last"), owned_by("never"))
        await gone(store, key_of("pods", "last"))
        assert collector._unserved
        await change(store, two.key, ownerReferences=[])
        await store.commit(Delete(owner.key, owner.revision, orjson.loads(owner.data)))
        await gone(store, one.key)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert not collector._dependents
        assert not collector._gone
        assert not collector._unserved


async def test_owner_in_the_foreground_waits_for_those_that_block(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        owner = await create(store, key_of("replicasets", "owner"))
        held = await create(store, key_of("pods", "held"), owned_by("owner", block=True), finalizers=["example.com/x"])
        free = await create(store, key_of("pods", "free"), owned_by("owner"))
        await mark_deleted(store, owner, "foregroundDeletion")
        async with working(store, conninfo):
            await gone(store, free.key)
            await asyncio.sleep(0.1)
            assert await store.get(owner.key) is not None
            now = await store.get(held.key)
            assert now is not None
            await store.commit(Delete(now.key, now.revision, orjson.loads(now.data)))
            await gone(store, owner.key)


def around(size: int) -> list[tuple[Key, dict[str, Any]]]:
    """Objects each of which owns the next one, the last one the first; each with its owner."""
    names = [f"o{number}" for number in range(size)]
    return [
        (key_of("replicasets", name), owned_by(owner, block=True))
        for name, owner in zip(names, names[-1:] + names[:-1], strict=True)
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_a_circle_of_owners_goes(conninfo: str, size: int) -> None:
    async with Engine(conninfo) as store:
        circle = [await create(store, key, owner) for key, owner in around(size)]
        async with working(store, conninfo):
            await mark_deleted(store, circle[0], "foregroundDeletion")
            await gone(store, *(stored.key for stored in circle))


@pytest.mark.parametrize("size", [2, 3, 5])
async def test_a_circle_that_waits_already_goes(conninfo: str, size: int) -> None:
    async with Engine(conninfo) as store:
        circle = [await create(store, key, owner) for key, owner in around(size)]
        for stored in circle:
            await mark_deleted(store, stored, "foregroundDeletion")
        async with working(store, conninfo):
            await gone(store, *(stored.key for stored in circle))


async def test_a_circle_that_closes_while_it_waits_goes(conninfo: str) -> None:
    async with Engine(conninfo) as store, working(store, conninfo):
        first = await create(store, key_of("replicasets", "first"))
        second = await create(store, key_of("replicasets", "second"), owned_by("first", block=True))
        held = await create(store, key_of("pods", "held"), owned_by("second", block=True), finalizers=["example.com/x"])
        await mark_deleted(store, first, "foregroundDeletion")
        async with asyncio.timeout(300):
            while b'"deletionTimestamp"' not in (await current(store, held.key)).data:
                await asyncio.sleep(0.01)
        await change(store, first.key, ownerReferences=[owned_by("second", block=True)])
        await change(store, held.key, finalizers=[])
        await gone(store, held.key, second.key, first.key)


async def test_a_chain_of_owners_goes_from_its_end(conninfo: str) -> None:
    """The last one first, however long it is: each waits for the next one."""
    ended: list[str] = []
    async with Engine(conninfo) as store:
        names = [f"o{number}" for number in range(5)]
        chain = [await create(store, key_of("replicasets", names[0]))]
        for owner, name in pairwise(names):
            chain.append(await create(store, key_of("replicasets", name), owned_by(owner, block=True)))
        store.subscribe(lambda events: ended.extend(e.key.name for e in events if e.type is EventType.DELETED))
        await mark_deleted(store, chain[0], "foregroundDeletion")
        async with working(store, conninfo):
            await gone(store, *(stored.key for stored in chain))
    assert ended == names[::-1]


async def test_whoever_has_very_many_above_waits_for_nobody(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for a circle has an end."""
    monkeypatch.setattr(garbagecollection, "CIRCLE_MAX", 3)
    async with Engine(conninfo) as store:
        names = [f"o{number}" for number in range(6)]
        chain = [await create(store, key_of("replicasets", names[0]))]
        for owner, name in pairwise(names):
            held = ["example.com/x"] if name == names[-1] else []
            chain.append(await create(store, key_of("replicasets", name), owned_by(owner, block=True), finalizers=held))
        await mark_deleted(store, chain[0], "foregroundDeletion")
        async with working(store, conninfo):
            await gone(store, *(stored.key for stored in chain[:-1]))
            assert await store.get(chain[-1].key) is not None


async def test_what_is_in_a_namespace_that_ends_waits_for_no_dependents(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        (namespace,) = await store.commit(Create(key_of("namespaces", "ns", ""), {"metadata": {"name": "ns"}}))
        owner = await create(store, key_of("replicasets", "owner"))
        held = await create(
            store, key_of("replicasets", "held"), owned_by("owner", block=True), finalizers=["example.com/x"]
        )
        await mark_deleted(store, owner, "foregroundDeletion")
        await mark_deleted(store, namespace)
        async with working(store, conninfo):
            await gone(store, owner.key)
            assert await store.get(namespace.key) is not None
            await change(store, held.key, finalizers=[])
            await gone(store, held.key, namespace.key)


async def test_orphans_are_let_go_before_their_owner(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        owner = await create(store, key_of("widgets", "owner", ""))
        child = await create(store, key_of("pods", "child"), owned_by("owner", "Widget"))
        await mark_deleted(store, owner, "orphan")
        async with working(store, conninfo):
            await gone(store, owner.key)
            await asyncio.sleep(0.1)
            now = await store.get(child.key)
            assert now is not None
            assert "ownerReferences" not in orjson.loads(now.data)["metadata"]


async def test_second_worker_waits_for_the_first(conninfo: str) -> None:
    async with Engine(conninfo) as store, Engine(conninfo) as other, working(other, conninfo):
        async with working(store, conninfo):
            await asyncio.sleep(0.2)
        # Whichever led first: one of them is left, and leads.
        await create(store, key_of("pods", "late"), owned_by("never"))
        await gone(other, key_of("pods", "late"))
