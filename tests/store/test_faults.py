"""The store when processes freeze, die, or wake up in another history, and when the database hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from store.engine import Engine, Options
from store.log.follower import HEALTHY_SECONDS
from store.log.preconditions import parameters_of, rows_of
from store.postgresql.arrays import dumped, oid_of
from store.postgresql.dedicatedconnection import BINARY, TEXT
from store.postgresql.statements import COMMIT
from store.types import Create, Event, PreconditionFailed, RevisionTooOld, Unavailable, Update
from store.watches import Watch
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.store.checker import Torment
from tests.store.conftest import impatient, run
from tests.store.elsewhere import Elsewhere
from tests.store.objects import PODS, body, pod

DEAF = Options(poll_seconds=60)
"""Nothing but what is tested tells this engine of the others."""


def keep(conninfo: str) -> None:
    """Remember the history as it is."""
    run(
        conninfo,
        "CREATE TABLE old_object AS SELECT * FROM store_object; CREATE TABLE old_event AS TABLE store_event; "
        "CREATE TABLE old_revision AS TABLE store_revision",
    )


def bring_back(conninfo: str) -> None:
    """Put it in the place of what has happened since, as a restore does, without a word to anybody."""
    columns = 'space, "group", resource, namespace, name, uid, revision, data'
    run(
        conninfo,
        f"BEGIN; LOCK store_revision; DELETE FROM store_object; DELETE FROM store_event; "
        f"INSERT INTO store_object ({columns}) SELECT {columns} FROM old_object; "
        "INSERT INTO store_event SELECT * FROM old_event; DELETE FROM store_revision; "
        "INSERT INTO store_revision SELECT * FROM old_revision; COMMIT",
    )


@pytest.mark.parametrize("grown", [0, 3, 5])
@pytest.mark.parametrize("first", ["create", "update", "read", "cached", "list", "watch", "too new"])
async def test_who_slept_through_a_restore_does_not_go_on_in_a_history_that_is_no_more(
    conninfo: str, grown: int, first: str
) -> None:
    """The counter stands below, at, or beyond what the sleeper knows: the identity of its last event tells.

    Others have acknowledged writes meanwhile: names that the sleeper believes to be free or knows otherwise.
    """
    async with Engine(conninfo, DEAF) as sleeper:
        lost = 0

        def count() -> None:
            nonlocal lost
            lost += 1

        (shared,) = await sleeper.commit(Create(pod("shared"), body("shared", by="both")))
        await sleeper.list(PODS)
        keep(conninfo)
        (mine,) = await sleeper.commit(Update(shared.key, 1, body("shared", by="sleeper")))
        for name in ("ghost", "other"):
            await sleeper.commit(Create(pod(name), body(name)))
        assert sleeper.revision == 4
        sleeper.subscribe(lambda _: None, lost=count)
        open_watch = sleeper.watch(PODS, since=4)
        reading = asyncio.create_task(anext(open_watch))
        await asyncio.sleep(0)
        # It sleeps.
        bring_back(conninfo)
        with Elsewhere(conninfo) as other:
            if grown:
                known = Update(shared.key, 1, body("shared", by="other"))
                (theirs,) = other.answer(lambda engine: engine.commit(known))
                assert theirs.revision == mine.revision
            for number in range(grown - 1):
                more = Create(pod(f"new-{number}"), body("new"))
                other.answer(lambda engine, more=more: engine.commit(more))
            known_to_other = other.engine.revision
            assert known_to_other == grown + 1
            # It wakes.
            sleeper._follower._contact = sleeper._follower.silent_from = float("-inf")
            if first == "create":
                with suppress(PreconditionFailed):
                    await sleeper.commit(Create(pod("new-0"), body("new", by="sleeper")))
            elif first == "update":
                with pytest.raises(PreconditionFailed):
                    await sleeper.commit(Update(mine.key, mine.revision, body("shared", by="lost")))
            elif first in ("read", "cached"):
                assert await sleeper.get(pod("ghost"), cached=first == "cached") is None
            elif first == "list":
                assert "ghost" not in [stored.key.name for stored in (await sleeper.list(PODS, cached=True)).items]
            elif first == "watch":
                with pytest.raises(RevisionTooOld):
                    await asyncio.wait_for(anext(sleeper.watch(PODS, since=3)), 300)
            else:
                assert "ghost" not in [stored.key.name for stored in (await sleeper.list(PODS, at_least=4)).items]
            assert lost == 1
            with pytest.raises(RevisionTooOld):
                await asyncio.wait_for(reading, 300)
            # What the other acknowledged is there, and both agree on everything.
            current = {stored.key.name: stored for stored in other.answer(lambda engine: engine.list(PODS)).items}
            assert current == {stored.key.name: stored for stored in (await sleeper.list(PODS)).items}
            assert (b'"other"' in current["shared"].data) is bool(grown)
            # The break is an epoch of its own, beyond everything that anybody has ever been told.
            assert sleeper.revision == other.engine.revision > max(4, known_to_other)
            with pytest.raises(RevisionTooOld):
                other.answer(lambda engine: _next(engine.watch(PODS, since=max(4, known_to_other))))


async def _next(watch: Watch) -> Event:
    return await anext(watch)


def half_sent(conninfo: str) -> psycopg.Connection:
    """A writer that is stopped after the database has got its statement, and before anything that follows."""
    connection = psycopg.connect(conninfo, autocommit=True)
    pgconn = connection.pgconn
    parameters = parameters_of([rows_of([Create(pod("frozen"), body("frozen"))])], (None, 0, 0), 7)
    parts = COMMIT.split("%s")
    text = parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(
        text.encode(),
        dumped(parameters),
        param_types=[oid_of(value) for value in parameters],
        param_formats=[BINARY] * len(parameters),
        result_format=TEXT,
    )
    pgconn.send_flush_request()
    while pgconn.flush():
        pass
    return connection


async def test_a_writer_that_freezes_between_two_messages_stops_nobody(conninfo: str) -> None:
    """No instant is worse: the statement is done, and the message that ends the exchange does not come."""
    async with Engine(conninfo, Options(write_seconds=60)) as store:
        frozen = await asyncio.to_thread(half_sent, conninfo)
        try:
            for _ in range(500):
                if await asyncio.to_thread(run, conninfo, "SELECT FROM store_object WHERE name = 'frozen'") is not None:
                    break
                await asyncio.sleep(0.01)
            # What it has written is seen a moment before what it held is free.
            locks = f"""SELECT count(*) FROM pg_locks
                WHERE relation = 'store_revision'::regclass AND pid = {frozen.info.backend_pid}"""
            while await asyncio.to_thread(run, conninfo, locks) != (0,):
                await asyncio.sleep(0.01)
            (stored,) = await store.commit(Create(pod("a"), body("a")))
            assert stored.revision == 2
            assert (await store.get(pod("frozen"))) is not None
        finally:
            frozen.close()


@pytest.mark.parametrize("late", [False, True])
async def test_a_batch_that_arrives_twice_is_written_once(conninfo: str, late: bool) -> None:
    """Sent again after a lost answer; the first may also arrive when the name is free again."""
    parameters = parameters_of([rows_of([Create(pod("a"), body("a"))])], (run_epoch(conninfo), 0, 0), 99)
    async with Engine(conninfo) as store:
        wire = store._committer._writer
        first = await wire.ask(COMMIT, parameters, form=BINARY)
        assert first.get_value(0, 0) == b"kept"
        if late:
            stored = await store.get(pod("a"))
            assert stored is not None
            from store.types import Delete

            await store.commit(Delete(stored.key, stored.revision, body("a")))
        again = await wire.ask(COMMIT, parameters, form=BINARY)
        assert again.get_value(0, 0) == b"again"
        assert (await store.get(pod("a")) is None) is late
        assert store.revision == 1 + late


def run_epoch(conninfo: str) -> str:
    return str(run(conninfo, "SELECT epoch::text FROM store_revision")[0])


@pytest.fixture
def proxy(conninfo: str) -> Iterator[DatabaseProxy]:
    proxy = DatabaseProxy(conninfo)
    proxy.start()
    yield proxy
    proxy.stop()


async def test_a_database_that_hangs_is_an_answer_in_time_and_goes_on_where_it_stopped(proxy: DatabaseProxy) -> None:
    """Nothing is refused and nothing comes: no question waits without a bound, and the process knows that it is deaf."""
    async with Engine(proxy.conninfo, Options(write_seconds=300)) as store, asyncio.timeout(600):
        (a,) = await store.commit(Create(pod("a"), body("a")))
        await store.list(PODS)
        proxy.cut = True
        # Whatever was proved, was proved before.
        await asyncio.sleep(HEALTHY_SECONDS)
        assert not store.healthy
        # Each of these would wait for ever.
        questions = [
            store.get(a.key),
            store.list(PODS._replace(space="root:cold")),
            store.list(PODS._replace(space="root:cold"), cached=True),
            store.resources("root:acme"),
            store.keys_containing(b"x"),
            store.commit(Update(a.key, a.revision, body("a", x=1))),
        ]
        with impatient(store):
            answers = await asyncio.gather(*questions[:4], questions[5], return_exceptions=True)
        questions[4].close()
        assert all(isinstance(answer, Unavailable) for answer in answers)
        assert await store.get(a.key, cached=True) == a
        proxy.cut = False
        async with asyncio.timeout(300):
            while not store.healthy:
                await asyncio.sleep(0.05)
        # The write has happened or it has not, or it comes as late as this: it is kept once at most.
        found = await store.get(a.key)
        assert found is not None
        (b,) = await store.commit(Create(pod("b"), body("b")))
        again = await store.get(a.key)
        assert again is not None
        assert (again.revision, b.revision) in ((1, 2), (2, 3), (3, 2))
        assert found in (a, again)


@pytest.mark.parametrize(("seed", "restores"), [(0, True), (1, True), (2, False)])
async def test_no_acknowledged_write_and_no_event_is_lost_and_no_read_is_stale_in_kills_freezes_and_restores(
    maintenance: str, database: str, seed: int, *, restores: bool
) -> None:
    """The long form is ``make faults``."""
    torment = Torment(maintenance, database, seed)
    try:
        await torment.run(6, restores=restores)
        assert torment.check() > 20
        assert bool(torment.restores) is restores
        assert torment.leased > 20
    finally:
        torment.drop()
