"""Objects of some spaces and of no others: lists at one revision, watches, and what is read for them (KC6, DOS-03)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from store.cache import OVERHEAD_BYTES
from store.engine import Engine, Options
from store.postgresql import dedicatedconnection
from store.types import Create, Delete, Range, RevisionTooOld, Spaces, Stored, Update
from tests.store.objects import body, pod
from tests.store.test_watches import read

OURS = tuple(f"root:ours-{number}" for number in range(5))
SELECTION = Spaces("", "pods", OURS)


async def filled(store: Engine) -> list[Stored]:
    """Two objects in each of our spaces but one, which has none, and some of others between them."""
    kept: list[Stored] = []
    for name in ("b", "a"):
        for space in (*OURS[1:], "root:ours-2:below", "root:theirs"):
            kept += await store.commit(Create(pod(name, space=space), body(name)))
    return sorted(stored for stored in kept if stored.key.space in OURS)


async def chunks(store: Engine, limit: int, **options: Any) -> list[Stored]:
    found: list[Stored] = []
    after, exact = None, None
    while True:
        listing = await store.list(SELECTION, limit=limit, after=after, exact=exact, **options)
        found += listing.items
        assert len(listing.items) <= limit
        if not listing.remaining:
            return found
        last = listing.items[-1].key
        after, exact, options = (last.space, last.namespace, last.name), listing.revision, {}
        # Between two chunks others go on.
        for space in (OURS[0], OURS[4]):
            await store.commit(Create(pod(f"later-{store.revision}", space=space), body("later")))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
async def test_chunks_are_of_one_revision_however_they_fall(conninfo: str, limit: int) -> None:
    async with Engine(conninfo) as store:
        kept = await filled(store)
        listing = await store.list(SELECTION)
        assert (list(listing.items), listing.remaining, listing.revision) == (kept, 0, store.revision)
        assert await chunks(store, limit) == kept
    async with Engine(conninfo) as fresh:
        assert {stored.key.name for stored in (await fresh.list(SELECTION)).items} >= {"a", "b"}


async def test_a_list_shows_one_moment_whatever_is_written_while_it_is_made(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each space is changed as soon as the one before it has been read."""
    async with Engine(conninfo) as store:
        kept = await filled(store)
        resource = store._resource

        async def changing(selection: Range) -> Any:
            cache = await resource(selection)
            for space in OURS[1:]:
                found = await store.get(pod("b", space=space), cached=True) if space != selection.space else None
                if found is not None:
                    await store.commit(Update(found.key, found.revision, body("b", changed=store.revision)))
            return cache

        before = store.revision
        with monkeypatch.context() as patch:
            patch.setattr(store, "_resource", changing)
            listing = await store.list(SELECTION)
        assert (listing.revision, list(listing.items)) == (before, kept)
        assert store.revision > before


class Questions:
    """The spaces that the database is asked about."""

    def __init__(self) -> None:
        self.about: list[str] = []

    def note(self, parameters: Sequence[Any]) -> None:
        texts = [each for each in parameters if isinstance(each, str)]
        self.about += [text for text in texts if text.startswith("root:")]


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    questions, ask = Questions(), dedicatedconnection.ConnectionPool.ask

    async def noted(self: Any, statement: str, parameters: Sequence[Any] = (), **form: Any) -> Any:
        questions.note(parameters)
        return await ask(self, statement, parameters, **form)

    monkeypatch.setattr(dedicatedconnection.ConnectionPool, "ask", noted)
    return questions


async def test_nothing_is_read_of_other_spaces(conninfo: str, questions: Questions) -> None:
    async with Engine(conninfo) as store:
        await filled(store)
    questions.about.clear()
    async with Engine(conninfo, Options(look_back_events=0)) as store:
        await store.list(SELECTION)
        assert sorted(questions.about) == sorted(OURS)
        # What is in memory is not asked for again.
        await store.list(SELECTION)
        assert len(questions.about) == len(OURS)


@pytest.mark.parametrize("window", [1, 16_384])
async def test_a_watch_tells_of_these_spaces_alone(conninfo: str, window: int) -> None:
    """From the log and from memory, then as it happens, in order, each once."""
    async with Engine(conninfo, Options(window_events=window)) as store:
        kept = await filled(store)
        watch = store.watch(SELECTION, since=0)
        seen = [(event.key, event.revision) for event in await read(watch, len(kept))]
        assert seen == sorted(((each.key, each.revision) for each in kept), key=lambda each: each[1])
        live = asyncio.ensure_future(read(watch, 3))
        while not len(store._hub):
            await asyncio.sleep(0.01)
        assert len(store._hub) == 1
        await store.commit(Create(pod("new", space="root:theirs"), body("new")))
        (new,) = await store.commit(Create(pod("new", space=OURS[0]), body("new")))
        await store.commit(Create(pod("newer", space=OURS[3]), body("newer")))
        await store.commit(Delete(new.key, new.revision, body("new")))
        told = [(event.type.value, event.key.space, event.key.name) for event in await live]
        assert told == [("ADDED", OURS[0], "new"), ("ADDED", OURS[3], "newer"), ("DELETED", OURS[0], "new")]
        store._hub.restart(store.revision)
        with pytest.raises(RevisionTooOld):
            await anext(watch)
        assert not len(store._hub)


async def test_what_leaves_no_room_for_others_takes_none_of_theirs(conninfo: str) -> None:
    """DOS-03: all that a space keeps is held as one; of what is larger than all room one is held beside the rest."""
    small, large, larger = (Range(f"root:{name}", "", "pods") for name in ("small", "large", "larger"))
    room = 100 * OVERHEAD_BYTES
    async with Engine(conninfo, Options(cache_bytes=room)) as store:
        for each, size in ((small, 1), (large, room), (larger, room)):
            await store.commit(Create(pod("a", space=each.space), body("a", text="x" * size)))
        for each in (small, large):
            await store.list(each)
        assert list(store._cache._caches) == [small, large]
        await store.list(larger)
        assert list(store._cache._caches) == [small, larger]
        for number in range(3):
            await store.commit(Create(pod(f"n{number}", space=larger.space), body("n")))
        assert len((await store.list(larger)).items) == 4
        assert small in store._cache._caches
        assert store._cache.bytes < room
        # What grows beyond all room goes, and not the others.
        other = Range("root:other", "", "pods")
        assert not (await store.list(other)).items
        await store.commit(Create(pod("grown", space=other.space), body("grown", text="x" * room)))
        assert list(store._cache._caches) == [small, larger]
        assert len((await store.list(other)).items) == 1
        assert small in store._cache._caches
