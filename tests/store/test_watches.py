"""Watches: replay, bookmarks, bounded buffers, compaction."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from store.engine import Engine, Options
from store.log import compaction
from store.types import (
    AllSpaces,
    Create,
    Delete,
    Event,
    EventType,
    Range,
    RevisionTooNew,
    RevisionTooOld,
    SlowWatcher,
    Update,
)
from store.watches import Watch
from tests.store.conftest import run
from tests.store.objects import PODS, body, pod


async def read(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(300):
        while len(events) < count:
            batch, _ = await anext(watch)
            events += batch
    return events


async def entered(store: Engine, count: int) -> None:
    """Wait until so many watches have what was, and wait for what comes."""
    async with asyncio.timeout(300):
        while len(store._hub) < count:
            await asyncio.sleep(0.01)


@contextmanager
def counting_calls(module: str) -> Iterator[list[str]]:
    """The functions of a module that this thread calls meanwhile, each as often as it is called."""
    called: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals["__name__"] == module:
            called.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        yield called
    finally:
        sys.setprofile(None)


async def write_history(store: Engine) -> None:
    await store.commit(Create(pod("a"), body("a")))
    await store.commit(Create(pod("a", space="root:other"), body("a")))
    await store.commit(Update(pod("a"), 1, body("a", x=1)))
    await store.commit(Create(pod("b", "kube-system"), body("b")))
    await store.commit(Delete(pod("a"), 3, body("a", x=1)))


@pytest.mark.parametrize("window", [0, 3, 100])
async def test_watch_begins_where_it_is_asked_to(conninfo: str, window: int) -> None:
    """From memory, from the log, and from both in turn."""
    async with Engine(conninfo, Options(window_events=window)) as store:
        await write_history(store)
        events = await read(store.watch(PODS, since=0), 4)
        assert [(event.revision, event.type) for event in events] == [
            (1, EventType.ADDED),
            (3, EventType.MODIFIED),
            (4, EventType.ADDED),
            (5, EventType.DELETED),
        ]
        assert events[1].previous == events[0].data
        assert events[3].previous == events[1].data
        namespaced = store.watch(PODS._replace(namespace="kube-system"), since=1)
        assert [event.revision for event in await read(namespaced, 1)] == [4]
        everywhere = await read(store.watch(AllSpaces("", "pods"), since=1), 4)
        assert [event.revision for event in everywhere] == [2, 3, 4, 5]


async def test_watch_goes_on_with_what_happens(conninfo: str) -> None:
    async with Engine(conninfo) as store, Engine(conninfo) as other:
        await write_history(store)
        watch = other.watch(PODS, since=4)
        assert [event.revision for event in await read(watch, 1)] == [5]
        for number in range(20):
            await store.commit(
                Create(pod(f"p{number}"), body("p")), Create(pod("x", space=f"root:{number}"), body("x"))
            )
        events = await read(watch, 20)
        assert [event.revision for event in events] == list(range(6, 46, 2))
        await watch.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(watch)


async def test_who_watches_is_told_before_who_writes_is_answered(conninfo: str) -> None:
    """TS15, as with kube-apiserver: a controller that looks again right after its write finds it in what it watches."""
    order: list[str] = []
    async with Engine(conninfo) as store:
        watch = store.watch(PODS, since=store.revision)

        def told(event: Event) -> bool:
            order.append(f"told {event.key.name}")
            return len(order) < 20

        async def write(name: str) -> None:
            await store.commit(Create(pod(name), body(name)))
            order.append(f"wrote {name}")

        watch.sink = told
        reader = asyncio.create_task(read(watch, 1))
        await entered(store, 1)
        for group in ("a", "bcd", "efghi"):
            await asyncio.gather(*map(write, group))
        async with asyncio.timeout(300):
            await write("z")
            await write("y")
            await reader
    for name in "abcdefghi":
        assert order.index(f"told {name}") < order.index(f"wrote {name}")


async def test_waiting_reader_ends_when_the_watch_is_closed(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        watch = store.watch(PODS, since=0)
        reading = asyncio.create_task(anext(watch, None))
        await asyncio.sleep(0.05)
        await watch.aclose()
        assert await reading is None


async def test_idle_watch_learns_how_far_it_is(conninfo: str) -> None:
    async with Engine(conninfo, Options(progress_seconds=0.05)) as store:
        watch = store.watch(PODS, since=0)
        reading = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.02)
        await store.commit(Create(pod("a", space="root:other"), body("a")))
        assert await asyncio.wait_for(reading, 300) == ([], 1)


async def test_watcher_that_does_not_keep_up_is_ended(conninfo: str) -> None:
    async with Engine(conninfo, Options(watch_events=5)) as store:
        slow, quick = store.watch(PODS, since=0), store.watch(PODS, since=0)
        readers = [asyncio.create_task(anext(watch)) for watch in (slow, quick)]
        await asyncio.sleep(0.05)
        for number in range(10):
            await store.commit(Create(pod(f"p{number}"), body("p")))
            if number == 0:
                await asyncio.gather(*readers)
            else:
                assert len((await anext(quick))[0]) == 1
        with pytest.raises(SlowWatcher):
            await anext(slow)


async def test_buffer_is_bounded_in_bytes_too(conninfo: str) -> None:
    async with Engine(conninfo, Options(watch_bytes=50_000)) as store:
        watch = store.watch(PODS, since=0)
        reading = asyncio.create_task(anext(watch))
        await entered(store, 1)
        for number in range(4):
            await store.commit(Create(pod(f"p{number}"), body("p", padding="x" * 30_000)))
        await reading
        with pytest.raises(SlowWatcher):
            await anext(watch)


async def test_watch_from_the_future_is_refused(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.engine.FUTURE_SECONDS", 0.2)
    async with Engine(conninfo) as store:
        with pytest.raises(RevisionTooNew):
            await anext(store.watch(PODS, since=5))


async def test_watch_from_the_near_future_waits(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.engine.FUTURE_SECONDS", 300)
    async with Engine(conninfo) as store:
        watch = store.watch(PODS, since=2)
        reading = asyncio.create_task(anext(watch))
        for name in ("a", "b", "c"):
            await asyncio.sleep(0.02)
            await store.commit(Create(pod(name), body(name)))
        events, revision = await reading
        assert [event.revision for event in events] == [3] if events else revision == 2


async def test_compacted_past_is_refused_and_the_rest_stays(
    conninfo: str, database: str, django_db_blocker: Any
) -> None:
    """The log of 120,000 revisions is shortened by whole partitions; what is kept is read on."""
    run(conninfo, "UPDATE store_revision SET revision = 120000, batch = 1")
    run(
        conninfo,
        'INSERT INTO store_event (revision, batch, type, space, "group", resource, namespace, name, data) '
        "SELECT n, 1, 'ADDED', 'root:acme', '', 'pods', 'default', n::text, '{}' FROM generate_series(1, 120000) AS n",
    )
    now = timezone.now()

    def compact(**kept: Any) -> compaction.Compaction:
        with django_db_blocker.unblock():
            try:
                return compaction.log_compact(now=now, retention=compaction.Retention(**kept), using=database)
            finally:
                connections[database].close()

    assert (await asyncio.to_thread(compact)).dropped == 0
    async with Engine(conninfo) as store:
        old = store.watch(PODS, since=100)
        assert (await anext(old))[0][0].revision == 101
        done = await asyncio.to_thread(compact, age=timedelta(0))
        assert done == compaction.Compaction(99_999, 2)
        with pytest.raises(RevisionTooOld):
            await anext(old)
        with pytest.raises(RevisionTooOld):
            await anext(store.watch(PODS, since=99_998))
        with pytest.raises(RevisionTooOld):
            await store.list(PODS, exact=99_998)
        assert (await anext(store.watch(PODS, since=99_999)))[0][0].revision == 100_000
        assert (await store.commit(Create(pod("new"), body("new"))))[0].revision == 120_001
    assert (await asyncio.to_thread(compact, revisions=10)).dropped == 0


async def test_writer_makes_the_partition_that_nobody_made_in_time(conninfo: str, database: str) -> None:
    run(conninfo, "UPDATE store_revision SET revision = 199998, compacted = 199998")
    async with Engine(conninfo) as store:
        revisions = [(await store.commit(Create(pod(f"p{n}"), body("p"))))[0].revision for n in range(4)]
        assert revisions == [199_999, 200_000, 200_001, 200_002]


async def test_listeners_hear_all_spaces_in_order(conninfo: str) -> None:
    async with Engine(conninfo) as store, Engine(conninfo) as other:
        heard: list[int] = []

        def listen(events: Any) -> None:
            heard.extend(event.revision for event in events)
            if len(heard) == 1:
                raise RuntimeError("a listener's bug is its own")

        undo = store.subscribe(listen)
        for number in range(5):
            writer = (store, other)[number % 2]
            await writer.commit(Create(pod("x", space=f"root:{number}"), body("x")))
        await store.list(PODS)
        assert heard == [1, 2, 3, 4, 5]
        undo()
        await store.commit(Create(pod("y"), body("y")))
        assert len(heard) == 5


async def test_many_idle_watches_cost_an_event_little(conninfo: str) -> None:
    """Counted in calls: a hundred events take fewer of them than there are watches."""
    async with Engine(conninfo, Options(progress_seconds=3600)) as store:
        watches = [store.watch(Range(f"root:t{number}", "", "pods"), since=0) for number in range(10_000)]
        readers = [asyncio.create_task(anext(watch)) for watch in watches]
        await entered(store, len(watches))
        with counting_calls("store.watches") as calls:
            await store.commit(*(Create(pod(f"p{n}", space="root:t7"), body("p")) for n in range(100)))
            events = list((await readers[7])[0])
            while len(events) < 100:
                events += (await anext(watches[7]))[0]
        assert [event.key.name for event in events] == [f"p{n}" for n in range(100)]
        assert sum(reader.done() for reader in readers) == 1
        assert len(events) < len(calls) < len(watches)
        for watch in watches:
            await watch.aclose()
        await asyncio.gather(*readers, return_exceptions=True)


async def test_an_event_reaches_a_thousand_watches_in_order_and_exactly_once(conninfo: str) -> None:
    """A fan-out that takes several turns of the loop: nothing lost, doubled or out of order, sink or not (TS15)."""
    async with Engine(conninfo) as store:
        taken: list[list[int]] = [[] for _ in range(1_000)]
        watches = [store.watch(Range("root:acme", "", "pods"), since=store.revision) for _ in taken]

        def sink(number: int) -> Callable[[Event], bool]:
            def take(event: Event) -> bool:
                if (event.revision + number) % 3 == 0:
                    return False
                taken[number].append(event.revision)
                return True

            return take

        async def read(number: int) -> None:
            async for events, revision in watches[number]:
                taken[number] += [event.revision for event in events]
                assert revision >= (taken[number][-1] if taken[number] else 0)

        readers = [asyncio.create_task(read(number)) for number in range(len(watches))]
        await entered(store, len(watches))
        for number, watch in enumerate(watches):
            if number % 2:
                watch.sink = sink(number)
        written = []
        for batch in range(5):
            stored = await store.commit(*(Create(pod(f"p{batch}-{n}", space="root:acme"), body("p")) for n in range(7)))
            written += [one.revision for one in stored]
        async with asyncio.timeout(300):
            while any(len(revisions) < len(written) for revisions in taken):
                await asyncio.sleep(0.01)
        assert all(revisions == written for revisions in taken)
        for watch in watches:
            await watch.aclose()
        await asyncio.gather(*readers)
