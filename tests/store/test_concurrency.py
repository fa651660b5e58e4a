"""Several processes on one database: no event is lost, doubled or out of order, whatever dies in between."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

import orjson
import psycopg

from store.engine import Engine, Options
from store.types import AllSpaces, Create, Event, EventType, Key, PreconditionFailed, Unavailable
from store.watches import Watch
from tests.store.conftest import run
from tests.store.objects import body, pod

EVERY_POD = AllSpaces("", "pods")


async def start_writer(conninfo: str, name: str, writers: int, writes: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.writer", conninfo, name, str(writers), str(writes)),
        stdout=asyncio.subprocess.PIPE,
    )


async def follow(watch: Watch, seen: list[Event]) -> None:
    async for events, revision in watch:
        seen += events
        assert not events or events[-1].revision <= revision


def replayed(events: Sequence[Event]) -> dict[Key, int]:
    """The state that a client builds from events; asserts that they make sense one after the other."""
    state: dict[Key, int] = {}
    for event in events:
        assert (event.key in state) == (event.type is not EventType.ADDED), event
        assert orjson.loads(event.data)["metadata"]["resourceVersion"] == str(event.revision)
        if event.type is EventType.ADDED:
            assert event.previous is None
        else:
            assert event.previous is not None
            assert orjson.loads(event.previous)["metadata"]["resourceVersion"] == str(state[event.key])
        if event.type is EventType.DELETED:
            del state[event.key]
        else:
            state[event.key] = event.revision
    return state


async def confirmed_by(process: asyncio.subprocess.Process) -> dict[int, str]:
    output, _ = await process.communicate()
    # Whoever is killed in the middle of a line has not said it.
    lines = [line[:-1] for line in output.decode().splitlines(keepends=True) if line.endswith("\n")]
    words = [line.split() for line in lines if line.endswith(("shared", *"0123456789"))]
    return {int(number): name for number, name in words if number.isdecimal()}


async def settle(store: Engine, *seen: list[Event]) -> int:
    """Wait until every watcher has what the database has."""
    await store.list(EVERY_POD)
    async with asyncio.timeout(300):
        while not all(events and events[-1].revision == store.revision for events in seen):
            await asyncio.sleep(0.01)
    return store.revision


async def test_watchers_see_every_write_of_every_process_in_order(conninfo: str) -> None:
    """16 writers in four processes, watchers in two engines, one of which joins late."""
    async with Engine(conninfo) as one, Engine(conninfo) as other:
        seen: list[list[Event]] = [[], [], []]
        watches = [one.watch(EVERY_POD, since=0), other.watch(EVERY_POD, since=0)]
        tasks = [asyncio.create_task(follow(watch, events)) for watch, events in zip(watches, seen, strict=False)]
        processes = [await start_writer(conninfo, f"w{number}", 4, 40) for number in range(4)]
        await asyncio.sleep(1.0)
        late = other.watch(EVERY_POD, since=0)
        tasks.append(asyncio.create_task(follow(late, seen[2])))
        confirmed: dict[int, str] = {}
        for process in processes:
            answers = await confirmed_by(process)
            assert not answers.keys() & confirmed.keys()
            confirmed |= answers
            assert process.returncode == 0
        newest = await settle(one, *seen)
        await settle(other, *seen)
        for watch in (*watches, late):
            await watch.aclose()
        await asyncio.gather(*tasks)
        for events in seen:
            assert [event.revision for event in events] == list(range(1, newest + 1))
        assert {event.revision: event.key.name for event in seen[0]} == confirmed
        kept = {stored.key: stored.revision for stored in (await one.list(EVERY_POD)).items}
        assert replayed(seen[0]) == kept
        async with Engine(conninfo) as fresh:
            assert {stored.key: stored.revision for stored in (await fresh.list(EVERY_POD)).items} == kept


async def test_killed_writer_leaves_whole_writes_only(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        seen: list[Event] = []
        watch = store.watch(EVERY_POD, since=0)
        task = asyncio.create_task(follow(watch, seen))
        doomed, other = await start_writer(conninfo, "doomed", 8, 10_000), await start_writer(conninfo, "other", 2, 60)
        while len(seen) < 200:
            await asyncio.sleep(0.01)
        doomed.kill()
        confirmed = await confirmed_by(doomed) | await confirmed_by(other)
        newest = await settle(store, seen)
        await watch.aclose()
        await task
        # What the database was still at for the killed one may have come a moment later.
        assert len(seen) >= newest
        assert [event.revision for event in seen] == list(range(1, len(seen) + 1))
        names = {event.revision: event.key.name for event in seen}
        assert confirmed.items() <= names.items()
        replayed(seen)


async def test_cut_connections_lose_and_double_nothing(conninfo: str, maintenance: str, database: str) -> None:
    """Every connection to the database is ended again and again, COMMITs under way included."""
    async with Engine(conninfo, Options(poll_seconds=0.1)) as store, Engine(conninfo) as other:
        seen: list[Event] = []
        watch = other.watch(EVERY_POD, since=0)
        task = asyncio.create_task(follow(watch, seen))
        confirmed: dict[int, str] = {}
        stop = False

        async def write(writer: int) -> None:
            number = 0
            while not stop:
                number += 1
                key = pod(f"{writer}-{number}")
                with suppress(Unavailable):
                    (stored,) = await store.commit(Create(key, body(key.name)))
                    assert stored.revision not in confirmed
                    confirmed[stored.revision] = key.name

        writers = [asyncio.create_task(write(number)) for number in range(8)]
        cuts = 0
        while cuts < 12 or len(confirmed) <= 50:
            cuts += 1
            await asyncio.sleep(0.13)
            await asyncio.to_thread(
                run,
                maintenance,
                f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'",
            )
        await asyncio.sleep(0.2)
        stop = True
        await asyncio.gather(*writers)
        newest = await settle(other, seen)
        await watch.aclose()
        await task
        assert [event.revision for event in seen] == list(range(1, newest + 1))
        # A write without an answer was not tried again under a new name, so nobody is there twice or unknown.
        assert {event.revision: event.key.name for event in seen} == confirmed


async def test_two_engines_racing_for_one_name_let_one_win(conninfo: str) -> None:
    async with Engine(conninfo) as one, Engine(conninfo) as other:
        for number in range(20):
            key = pod(f"p{number}")
            results = await asyncio.gather(
                *(store.commit(Create(key, body(key.name))) for store in (one, other) for _ in range(4)),
                return_exceptions=True,
            )
            refused = [result for result in results if isinstance(result, PreconditionFailed)]
            assert len(refused) == 7
            assert all(error.current is not None and error.current.key == key for error in refused)


async def test_writer_waits_for_a_transaction_that_holds_the_counter(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        with psycopg.connect(conninfo) as blocker:
            blocker.execute("SELECT * FROM store_revision FOR UPDATE")
            waiting = asyncio.create_task(store.commit(Create(pod("a"), body("a"))))
            await asyncio.sleep(0.2)
            assert not waiting.done()
        (stored,) = await waiting
        assert stored.revision == 1
