"""One engine: writes, preconditions, listings, consistent reads."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from store.engine import Engine
from store.types import (
    AllSpaces,
    Check,
    Create,
    Delete,
    HistoryReplaced,
    Key,
    PreconditionFailed,
    Range,
    RevisionTooNew,
    Update,
)
from tests.store.objects import PODS, body, pod


async def test_created_object_is_read_back_with_its_revision(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        (created,) = await store.commit(Create(pod("a"), body("a")))
        assert created.revision == 1
        assert orjson.loads(created.data)["metadata"]["resourceVersion"] == "1"
        assert await store.get(pod("a")) == created
        assert await store.get(pod("b")) is None


async def test_write_that_does_not_hold_is_refused_whole(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        (a,) = await store.commit(Create(pod("a"), body("a")))
        with pytest.raises(PreconditionFailed) as refusal:
            await store.commit(Create(pod("b"), body("b")), Update(pod("a"), 99, body("a")))
        assert refusal.value.current == a
        assert await store.get(pod("b")) is None
        with pytest.raises(PreconditionFailed):
            await store.commit(Create(pod("a"), body("a")))
        with pytest.raises(PreconditionFailed) as refusal:
            await store.commit(Update(pod("missing"), 0, body("missing")))
        assert refusal.value.current is None
        assert store.revision == 1
        results = await store.commit(
            Check(pod("b"), 0), Update(pod("a"), 1, body("a", x=1)), Create(pod("b"), body("b"))
        )
        assert [stored.revision for stored in results] == [2, 3]
        (gone,) = await store.commit(Delete(pod("a"), 2, body("a", x=1)))
        assert gone.revision == 4
        assert [stored.key.name for stored in (await store.list(PODS)).items] == ["b"]


async def test_list_goes_by_namespace_and_name_in_chunks(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        for namespace, name in [("b", "x"), ("a", "z"), ("a-b", "m"), ("a", "Z"), ("é", "1")]:
            await store.commit(Create(pod(name, namespace), body(name)))
        whole = await store.list(PODS)
        places = [(stored.key.namespace, stored.key.name) for stored in whole.items]
        assert places == [("a", "Z"), ("a", "z"), ("a-b", "m"), ("b", "x"), ("é", "1")]
        first = await store.list(PODS, limit=2)
        assert first.remaining == 3
        await store.commit(Delete(pod("m", "a-b"), 3, body("m")), Create(pod("n", "a-b"), body("n")))
        last = first.items[-1].key
        second = await store.list(PODS, limit=10, exact=first.revision, after=(last.space, last.namespace, last.name))
        assert [stored.key.name for stored in second.items] == ["m", "x", "1"]
        assert second.revision == first.revision
        assert [s.key.name for s in (await store.list(PODS._replace(namespace="a"))).items] == ["Z", "z"]
    async with Engine(conninfo) as fresh:
        assert [stored.key.name for stored in (await fresh.list(PODS)).items] == ["Z", "z", "n", "x", "1"]


async def test_everywhere_names_the_spaces_in_order(conninfo: str) -> None:
    """TS14."""
    async with Engine(conninfo) as store:
        for space in ("root:b", "root:a", "root"):
            await store.commit(Create(pod("x", "default", space), body("x")))
        listing = await store.list(AllSpaces("", "pods"))
        assert [stored.key.space for stored in listing.items] == ["root", "root:a", "root:b"]
        assert await store.resources("root:a") == [("", "pods")]
        assert await store.resources("root:a", "other") == []


async def test_revision_from_the_future_is_refused_in_time(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.engine.FUTURE_SECONDS", 0.2)
    async with Engine(conninfo) as store:
        with pytest.raises(RevisionTooNew):
            await store.list(PODS, at_least=7)


async def test_read_sees_what_another_process_confirmed(conninfo: str) -> None:
    async with Engine(conninfo) as one, Engine(conninfo) as other:
        await other.list(PODS)
        for number in range(30):
            (stored,) = await one.commit(Create(pod(f"p{number}"), body(f"p{number}")))
            assert await other.get(stored.key) == stored


@pytest.mark.parametrize("key", [pod("a", space=""), pod(""), pod("a\0b"), pod("n" * 3000)])
async def test_key_that_no_object_may_have_is_refused(conninfo: str, key: Key) -> None:
    """TS3: no write without a space."""
    async with Engine(conninfo) as store:
        with pytest.raises(ValueError, match="key"):
            await store.commit(Create(key, body("a")))


async def test_a_reader_that_comes_as_a_load_ends_in_vain_begins_another(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for what has ended, over and over, and the loop would never get to forget that load."""
    async with Engine(conninfo) as store:
        load, readers = store._load, []

        async def replaced(selection: Range | AllSpaces) -> None:
            monkeypatch.setattr(store, "_load", load)
            readers.append(asyncio.create_task(store.list(PODS, cached=True)))
            raise HistoryReplaced

        monkeypatch.setattr(store, "_load", replaced)
        assert not (await store.list(PODS, cached=True)).items
        (late,) = readers
        assert not (await late).items
