"""The database goes away, comes back, or comes back older."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

import pytest

from portal.quickstart.embedded.postgresql import PostgreSQL
from store.engine import Engine, Options
from store.log.replacement import REVISIONS_AHEAD
from store.types import Create, RevisionTooOld, Unavailable
from tests.store.conftest import impatient, run
from tests.store.objects import PODS, body, pod

QUICK = Options(poll_seconds=0.1, write_seconds=300)


async def test_engine_outlives_a_killed_database(fragile: PostgreSQL) -> None:
    """Kill -9 of the server, no database for a while, then the same data again."""
    async with Engine(fragile.owner_url, QUICK) as store:
        await store.commit(Create(pod("a"), body("a")))
        watch = store.watch(PODS, since=0)
        await anext(watch)
        await store.list(PODS)
        assert store.healthy
        postmaster = run(fragile.owner_url, "SELECT pg_read_file('postmaster.pid')")[0].split()[0]
        os.kill(int(postmaster), signal.SIGKILL)
        # Its children may still answer for a moment.
        async with asyncio.timeout(300):
            with suppress(Unavailable):
                while await store.get(pod("a")):
                    await asyncio.sleep(0.01)
        with pytest.raises(Unavailable), impatient(store):
            await store.commit(Create(pod("b"), body("b")))
        with pytest.raises(Unavailable):
            await store.get(pod("a"))
        assert await store.get(pod("a"), cached=True) is not None
        assert not store.healthy
        await asyncio.to_thread(fragile.stop)
        await asyncio.to_thread(start_again, fragile)
        (stored,) = await eventually(store)
        assert await store.get(stored.key) == stored
        events = (await asyncio.wait_for(anext(watch), 300))[0]
        assert events[-1].key == stored.key
        async with asyncio.timeout(300):
            while not store.healthy:
                await asyncio.sleep(0.05)


async def test_older_database_ends_watches_and_drops_what_was_known(conninfo: str) -> None:
    """A restore while processes run: the counter goes back, the objects are other ones."""
    lost = 0

    def count() -> None:
        nonlocal lost
        lost += 1

    async with Engine(conninfo, QUICK) as store:
        await store.commit(Create(pod("a"), body("a")))
        for number in range(5):
            await store.commit(Create(pod(f"later{number}"), body("later")))
        store.subscribe(lambda _: None, lost=count)
        watch = store.watch(PODS, since=6)
        reading = asyncio.create_task(anext(watch))
        await store.list(PODS)
        run(
            conninfo,
            "WITH a AS (DELETE FROM store_event WHERE revision > 1), "
            "b AS (DELETE FROM store_object WHERE revision > 1) UPDATE store_revision SET revision = 1",
        )
        with pytest.raises(RevisionTooOld):
            await asyncio.wait_for(reading, 300)
        assert [stored.key.name for stored in (await store.list(PODS)).items] == ["a"]
        assert lost == 1
        # No revision that a client has seen comes again with another meaning.
        assert store.revision == 6 + REVISIONS_AHEAD
        (stored,) = await store.commit(Create(pod("new"), body("new")))
        assert stored.revision == 7 + REVISIONS_AHEAD
        # Six is what this process knew; others may have known more.
        for revision in (6, 7, 1_000):
            with pytest.raises(RevisionTooOld):
                await anext(store.watch(PODS, since=revision))


@pytest.mark.parametrize("noticed_by", ["write", "read"])
async def test_replaced_history_is_noticed_by_the_first_who_asks(conninfo: str, noticed_by: str) -> None:
    """A restored database that has meanwhile grown beyond what this process saw still has another epoch."""
    async with Engine(conninfo, Options(poll_seconds=30)) as store:
        await store.commit(Create(pod("a"), body("a")))
        await store.list(PODS)
        run(conninfo, "DELETE FROM store_object")
        run(conninfo, "UPDATE store_revision SET revision = 70, compacted = 70, epoch = gen_random_uuid()")
        if noticed_by == "write":
            (stored,) = await store.commit(Create(pod("b"), body("b")))
            assert stored.revision == 71
            assert [stored.key.name for stored in (await store.list(PODS)).items] == ["b"]
        else:
            assert (await store.list(PODS)).items == ()
            assert store.revision == 70


async def test_store_that_is_closed_refuses(conninfo: str) -> None:
    store = Engine(conninfo)
    await store.start()
    await store.stop()
    with pytest.raises(Unavailable):
        await store.commit(Create(pod("a"), body("a")))
    with pytest.raises(Unavailable):
        await store.get(pod("a"))


def start_again(server: PostgreSQL) -> None:
    """The killed server's shared memory is released when its last child has noticed."""
    for _ in range(300):
        try:
            return server.start()
        except RuntimeError:
            time.sleep(0.2)
    raise AssertionError("the server does not start again")


async def eventually(store: Engine) -> tuple[object, ...]:
    for number in range(300):
        try:
            return tuple(await store.commit(Create(pod(f"c{number}"), body("c"))))
        except Unavailable:
            await asyncio.sleep(0.2)
    raise AssertionError("the store did not come back")


async def test_there_may_be_as_many_histories_as_there_will(conninfo: str) -> None:
    """Each begins far beyond the last: the log goes on there as well."""
    run(conninfo, f"UPDATE store_revision SET revision = {100_000 * REVISIONS_AHEAD}, timeline = ''")
    async with Engine(conninfo, QUICK) as store:
        (stored,) = await store.commit(Create(pod("a"), body("a")))
        assert stored.revision == 100_001 * REVISIONS_AHEAD + 1
