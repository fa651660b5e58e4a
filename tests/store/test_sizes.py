"""What each space holds in bytes: counted with every write, exact after whatever became of it, and what it is bounded by (AD8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import count
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import synchronous
from store.engine import Engine, Options
from store.log import compaction
from store.log.replacement import history_replace
from store.postgresql.statements import SPACE_BYTES
from store.types import Check, Create, Delete, Key, Operation, PreconditionFailed, Room, Stored, Update
from tests.store.conftest import run
from tests.store.objects import body

BY_TRIGGERS = import_module("store.migrations.0006_space_sizes")
BY_LOG = import_module("store.migrations.0010_sizes_from_the_log")
NO_TRIGGERS = import_module("store.migrations.0011_no_triggers")

_runs = count()

NAMES = ("one", "two", "three")
TAILS = ("", ":team", ":team:deep")
HOW = ("create", "update", "delete", "all", "lost", "undone", "space", "killed", "count on")
STEPS = st.tuples(
    st.sampled_from(HOW), st.sampled_from(TAILS), st.sampled_from(NAMES), st.integers(0, 3000), st.integers(0, 1)
)

KEPT = "SELECT coalesce(jsonb_object_agg(space, bytes), '{}') FROM store_space"
COUNTED = (
    "SELECT coalesce(jsonb_object_agg(space, bytes), '{}')"
    f" FROM (SELECT space, sum(bytes) AS bytes FROM ({SPACE_BYTES}) AS b GROUP BY space HAVING sum(bytes) <> 0) AS each"
)
TRUE = (
    "SELECT coalesce(jsonb_object_agg(space, bytes), '{}')"
    " FROM (SELECT space, sum(octet_length(data)) AS bytes FROM store_object GROUP BY space) AS each"
)
BEHIND = "SELECT revision - counted FROM store_revision"
TOTAL = f"SELECT sum(bytes) FROM ({SPACE_BYTES}) AS b"
COUNT_ON = "SELECT store_space_count_on()"


def sized(name: str, size: int) -> dict[str, Any]:
    return body(name, filling="x" * size)


def there(conninfo: str, space: str) -> list[Stored]:
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute(
            'SELECT "group", resource, namespace, name, revision, data FROM store_object WHERE space = %s ORDER BY name',
            [space],
        ).fetchall()
    return [Stored(Key(space, *row[:4]), row[4], bytes(row[5])) for row in rows]


def changes(how: str, found: Sequence[Stored], key: Key, size: int) -> list[Operation]:
    """One write that holds, of what is there."""
    mine = next((stored for stored in found if stored.key == key), None)
    if how == "all":
        return [Delete(stored.key, stored.revision, {}) for stored in found]
    if mine is None:
        return [Create(key, sized(key.name, size))] if how != "delete" else []
    if how == "delete":
        return [Delete(key, mine.revision, {})]
    return [Update(key, mine.revision, sized(key.name, size))]


async def act(conninfo: str, database: str, store: Engine, run_: int, step: tuple[str, str, str, int, int]) -> None:
    how, tail, name, size, _ = step
    space = f"root:t{run_}{tail}"
    key = Key(space, "", "configmaps", "default", name)
    found = await asyncio.to_thread(there, conninfo, space)
    wanted = changes(how, found, key, size)
    if how == "lost":
        # Two in one batch, one of which meets what is not so: the first round of the commit is undone.
        good = store.commit(*wanted)
        bad = store.commit(Create(key._replace(name="never"), sized("never", size)), Check(key._replace(name="no"), 7))
        results = await asyncio.gather(good, bad, return_exceptions=True)
        assert isinstance(results[1], PreconditionFailed)
    elif how == "count on":
        await asyncio.to_thread(run, conninfo, COUNT_ON)
    elif how in ("undone", "killed", "space"):
        await asyncio.to_thread(past_the_engine, conninfo, database, how, wanted, space)
    else:
        await store.commit(*wanted)


class Undone(Exception):
    """Whoever writes thinks better of it."""


def past_the_engine(conninfo: str, database: str, how: str, wanted: list[Operation], space: str) -> None:
    if how == "space":
        with transaction.atomic(using=database):
            found = there(conninfo, space)
            synchronous.commit([Delete(each.key, each.revision, {}) for each in found], using=database)
    elif how == "undone":
        with suppress(Undone), transaction.atomic(using=database):
            synchronous.commit(wanted, using=database)
            with connections[database].cursor() as cursor:
                cursor.execute(COUNT_ON)
            raise Undone
    else:
        # The connection goes while the write is made, and counted, and not committed.
        with suppress(OperationalError), transaction.atomic(using=database):
            synchronous.commit(wanted, using=database)
            with connections[database].cursor() as cursor:
                cursor.execute(f"{COUNT_ON}, pg_backend_pid()")
                run(conninfo, f"SELECT pg_terminate_backend({cursor.fetchone()[1]})")
                cursor.execute("SELECT 1")
    connections[database].close()


@given(history=st.lists(STEPS, max_size=20))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_sums_are_those_of_what_is_there_whatever_became_of_the_writes(
    conninfo: str, database: str, history: list[tuple[str, str, str, int, int]]
) -> None:
    async def play() -> None:
        number = next(_runs)
        async with Engine(conninfo) as one, Engine(conninfo, Options(poll_seconds=0.05)) as other:
            stores = (one, other)
            await stores[number % 2].bytes_of(f"t{number}")  # the other one begins in the middle
            for step in history:
                await act(conninfo, database, stores[step[4]], number, step)
            (true,) = await asyncio.to_thread(run, conninfo, TRUE)
            assert await asyncio.to_thread(run, conninfo, COUNTED) == (true,)
            await asyncio.to_thread(run, conninfo, COUNT_ON)
            assert await asyncio.to_thread(run, conninfo, KEPT) == (true,)
            mine = sum(size for space, size in true.items() if space.split(":")[1] == f"t{number}")
            for store in stores:
                await store.get(Key("root", "", "tenants", "", "any"))  # everything that was written is known
                assert await store.bytes_of(f"t{number}") == mine

    asyncio.run(asyncio.wait_for(play(), 300))


def test_writers_of_many_spaces_at_once_leave_exact_sums(conninfo: str) -> None:
    async def play() -> None:
        async with Engine(conninfo) as one, Engine(conninfo) as other:

            async def busy(store: Engine, space: str, name: str) -> None:
                key = Key(space, "", "configmaps", "default", name)
                (stored,) = await store.commit(Create(key, sized(name, 10)))
                for size in (2000, 5, 9000):
                    (stored,) = await store.commit(Update(key, stored.revision, sized(name, size)))
                if name == "two":
                    await store.commit(Delete(key, stored.revision, {}))

            await asyncio.gather(
                *(
                    busy(store, f"root:t{number}{tail}", f"{name}" if store is one else f"{name}-other")
                    for number in range(4)
                    for tail in TAILS
                    for name in NAMES
                    for store in (one, other)
                )
            )
        assert run(conninfo, COUNTED) == run(conninfo, TRUE)

    asyncio.run(asyncio.wait_for(play(), 300))


class Full(Exception):
    def __init__(self, asked: int, used: int) -> None:
        super().__init__(f"{asked} beside {used}")
        self.asked, self.used = asked, used


def test_one_process_never_passes_the_limit_however_many_write_at_once(conninfo: str) -> None:
    limit = 20_000
    room = Room("acme", limit, Full)

    async def play() -> None:
        async with Engine(conninfo) as store:

            async def write(number: int) -> Any:
                key = Key(f"root:acme{TAILS[number % 3]}", "", "configmaps", "default", f"c{number}")
                return await store.commit(Create(key, sized(f"c{number}", 1000)), room=room)

            outcomes = await asyncio.gather(*(write(number) for number in range(60)), return_exceptions=True)
            refused = [each for each in outcomes if isinstance(each, Exception)]
            assert {type(each) for each in refused} == {Full}
            used = await store.bytes_of("acme")
            (total,) = run(conninfo, TOTAL)
            assert used == total <= limit
            # What was refused would not have fitted: no write under way was counted twice.
            assert min(each.asked for each in refused if isinstance(each, Full)) + used > limit
            # What shrinks or goes always may, full or not; what is of others is not in the way.
            kept = next(each[0] for each in outcomes if not isinstance(each, Exception))
            tight = Room("acme", 10, Full)
            with pytest.raises(Full):
                await store.commit(Update(kept.key, kept.revision, sized(kept.key.name, 2000)), room=tight)
            (smaller,) = await store.commit(Update(kept.key, kept.revision, sized(kept.key.name, 10)), room=tight)
            await store.commit(Delete(smaller.key, smaller.revision, {}), room=tight)
            other = Key("root:other", "", "configmaps", "default", "c")
            await store.commit(Create(other, sized("c", 1000)), room=Room("other", limit, Full))

    asyncio.run(asyncio.wait_for(play(), 300))


def test_what_another_process_wrote_is_known_with_the_next_commit(conninfo: str) -> None:
    """Two processes that hear of nothing but by their own commits: together one object over at most."""
    room = Room("acme", 10_000, Full)

    async def play() -> None:
        deaf = Options(poll_seconds=60)
        async with Engine(conninfo, deaf) as one, Engine(conninfo, deaf) as other:
            refused = 0
            for number in range(40):
                store = (one, other)[number % 2]
                key = Key("root:acme", "", "configmaps", "default", f"c{number}")
                try:
                    await store.commit(Create(key, sized(f"c{number}", 1000)), room=room)
                except Full:
                    refused += 1
            (total,) = run(conninfo, TOTAL)
            assert refused > 25
            assert total <= 10_000 + 1_300

    asyncio.run(asyncio.wait_for(play(), 300))


@pytest.mark.parametrize("writer", ["one object each", "many at once", "Django's side"])
def test_no_more_than_a_thousand_changes_are_ever_left_to_the_reader(conninfo: str, database: str, writer: str) -> None:
    """Each way of writing counts on: else each reader would go through all that the log holds."""

    def key(number: int) -> Key:
        return Key(f"root:t{number % 7}", "", "configmaps", "default", f"c{number}")

    async def play() -> None:
        async with Engine(conninfo) as store:
            for begins in range(0, 2100, 100):
                made = [Create(key(number), sized(f"c{number}", number % 50)) for number in range(begins, begins + 100)]
                if writer == "one object each":
                    await asyncio.gather(*map(store.commit, made))
                elif writer == "many at once":
                    await store.commit(*made)
                else:
                    await asyncio.to_thread(by_django, database, made)
                (behind,) = run(conninfo, BEHIND)
                assert behind < 1000
                assert run(conninfo, COUNTED) == run(conninfo, TRUE)
        assert run(conninfo, KEPT) != ({},)

    asyncio.run(asyncio.wait_for(play(), 300))


def by_django(database: str, operations: list[Create]) -> None:
    with transaction.atomic(using=database):
        synchronous.commit(operations, using=database)
    connections[database].close()


async def write_some(conninfo: str) -> None:
    async with Engine(conninfo) as store:
        for number in range(40):
            key = Key(f"root:t{number % 3}", "", "configmaps", "default", f"c{number}")
            (stored,) = await store.commit(Create(key, sized(key.name, 100)))
            if number % 2:
                await store.commit(Update(key, stored.revision, sized(key.name, 3000)))
            elif number % 3:
                await store.commit(Delete(key, stored.revision, {}))


def test_what_the_log_forgets_is_counted_first(conninfo: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "EXTENT", (10, 3))
    run(conninfo, "DROP TABLE store_event_0, store_event_1, store_event_2, store_event_3")
    run(conninfo, "SELECT store_log_extend(10, 20)")
    asyncio.run(asyncio.wait_for(write_some(conninfo), 300))
    found = compaction.log_compact(
        now=datetime.now(UTC) + timedelta(days=1),
        retention=compaction.Retention(age=timedelta(0), revisions=0),
        using=database,
    )
    assert found.dropped
    connections[database].close()
    assert run(conninfo, BEHIND) == (0,)
    assert run(conninfo, KEPT) == run(conninfo, TRUE)


def test_a_new_history_counts_what_is_there(conninfo: str, database: str) -> None:
    """As in a restore: the objects were replaced past the log, and it tells nothing of them."""
    asyncio.run(asyncio.wait_for(write_some(conninfo), 300))
    run(conninfo, "DELETE FROM store_object WHERE space = 'root:t1'")
    run(conninfo, "UPDATE store_object SET data = data || data WHERE space = 'root:t2'")
    with transaction.atomic(using=database):
        history_replace(reached=0, using=database)
    connections[database].close()
    (true,) = run(conninfo, TRUE)
    assert true.keys() == {"root:t0", "root:t2"}
    assert run(conninfo, KEPT) == run(conninfo, COUNTED) == (true,)


def test_what_is_there_already_is_counted_by_the_migrations(conninfo: str) -> None:
    """As the release before left it: objects, and nobody who counts; or the triggers that did so, and back to these."""
    run(conninfo, NO_TRIGGERS.BACKWARD)
    run(conninfo, BY_LOG.BACKWARD)
    run(conninfo, BY_TRIGGERS.BACKWARD)
    run(
        conninfo,
        'INSERT INTO store_object ("group", resource, space, namespace, name, uid, revision, data)'
        " SELECT '', 'pods', 'root:acme' || n % 2, '', 'p' || n, '', n, repeat('x', n)::bytea FROM generate_series(1, 9) AS n",
    )
    assert run(conninfo, KEPT) == ({},)
    run(conninfo, BY_TRIGGERS.FORWARD)
    counted = ({"root:acme0": 20, "root:acme1": 25},)
    assert run(conninfo, KEPT) == counted
    run(conninfo, BY_LOG.FORWARD + BY_LOG.COUNT)
    assert run(conninfo, COUNTED) == counted
    # The triggers stay for a while, and do nothing.
    asyncio.run(asyncio.wait_for(write_some(conninfo), 300))
    (true,) = run(conninfo, TRUE)
    assert run(conninfo, COUNTED) == (true,)
    assert run(conninfo, KEPT) == counted
    run(conninfo, BY_LOG.BACKWARD)
    assert run(conninfo, KEPT) == (true,)
    run(conninfo, "DELETE FROM store_object WHERE space = 'root:t0'")
    (true,) = run(conninfo, TRUE)
    assert run(conninfo, KEPT) == (true,)
    run(conninfo, BY_LOG.FORWARD + BY_LOG.COUNT)
    assert run(conninfo, COUNTED) == (true,)
    run(conninfo, NO_TRIGGERS.FORWARD)
    run(conninfo, NO_TRIGGERS.BACKWARD)
    run(conninfo, NO_TRIGGERS.FORWARD)
    assert run(conninfo, COUNTED) == (true,)
