"""The store inside Django's transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.db import DatabaseError, connections, transaction
from psycopg import Cursor

from store import synchronous
from store.engine import Engine, Options
from store.types import AllSpaces, Create, Delete, PreconditionFailed, Update
from tests.store.objects import PODS, body, pod

T = TypeVar("T")
MEBIBYTE = 1024 * 1024


@pytest.fixture
def django(database: str, django_db_blocker: Any) -> Callable[[Callable[[], T]], Any]:
    """Run a function in a thread that may use Django's connection."""

    async def call(function: Callable[[], T]) -> T:
        def threaded() -> T:
            with django_db_blocker.unblock():
                try:
                    return function()
                finally:
                    connections[database].close()

        return await asyncio.to_thread(threaded)

    return call


async def test_object_and_rows_are_kept_together(conninfo: str, database: str, django: Any) -> None:
    async with Engine(conninfo) as store:
        watch = store.watch(PODS, since=0)
        reading = asyncio.create_task(anext(watch))

        def fail() -> None:
            with transaction.atomic(using=database):
                synchronous.commit([Create(pod("lost"), body("lost"))], using=database)
                raise LookupError

        def succeed() -> None:
            with transaction.atomic(using=database):
                (stored,) = synchronous.commit([Create(pod("a"), body("a"))], using=database)
                assert synchronous.get(pod("a"), using=database) == stored
                synchronous.commit([Update(pod("a"), stored.revision, body("a", x=1))], using=database)

        with pytest.raises(LookupError):
            await django(fail)
        await django(succeed)
        events, revision = await asyncio.wait_for(reading, 300)
        assert [event.key.name for event in events] == ["a", "a"]
        assert revision == 2
        stored = await store.get(pod("a"))
        assert stored is not None
        assert stored.revision == 2
        assert await store.get(pod("lost")) is None


async def test_refusal_leaves_the_transaction_usable(database: str, django: Any) -> None:
    def act() -> None:
        with transaction.atomic(using=database):
            synchronous.commit([Create(pod("a"), body("a"))], using=database)
            with pytest.raises(PreconditionFailed):
                synchronous.commit([Create(pod("a"), body("a"))], using=database)
            (stored,) = synchronous.commit([Delete(pod("a"), 1, body("a"))], using=database)
            assert stored.revision == 2
        assert synchronous.get(pod("a"), using=database) is None

    await django(act)


async def test_a_list_is_in_order_and_a_page_is_a_part_of_it(conninfo: str, database: str, django: Any) -> None:
    async with Engine(conninfo) as store:
        for name in ("c", "a", "b"):
            await store.commit(Create(pod(name), body(name)), Create(pod(name, space="root:zzz"), body(name)))

    def act() -> None:
        listing = synchronous.listing(PODS, most=MEBIBYTE, using=database)
        assert [stored.key.name for stored in listing.items] == ["a", "b", "c"]
        assert (listing.remaining, listing.revision) == (0, 6)
        assert len(synchronous.listing(AllSpaces("", "pods"), most=MEBIBYTE, using=database).items) == 6
        assert not synchronous.listing(PODS._replace(space="root:none"), most=MEBIBYTE, using=database).items
        for limit, after, names, more in ((2, "", "ab", True), (3, "", "abc", False), (2, "b", "c", False)):
            found, others = synchronous.page(PODS, limit=limit, after=("default", after), using=database)
            assert ("".join(stored.key.name for stored in found), others) == (names, more)
        elsewhere = PODS._replace(namespace="aaa")
        assert synchronous.page(elsewhere, limit=2, using=database) == ([], False)

    await django(act)


async def test_no_more_is_read_at_once_than_is_held_however_large_the_objects_are(
    conninfo: str, database: str, django: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOS-03: a tenant chooses how large its objects are."""
    async with Engine(conninfo) as store:
        for number in range(12):
            await store.commit(Create(pod(f"n{number:02}"), body("n", text="x" * MEBIBYTE)))
    read: list[int] = []

    class Counting(Cursor[Any]):
        def fetchall(self) -> list[Any]:
            rows = super().fetchall()
            read.append(sum(len(each) for row in rows for each in row if isinstance(each, bytes)))
            return rows

    monkeypatch.setattr(synchronous, "Cursor", Counting)

    def act() -> None:
        everything = synchronous.objects_of(PODS, portion=500, using=database)
        assert [stored.key.name for stored in everything] == [f"n{number:02}" for number in range(12)]
        found, more = synchronous.page(PODS, limit=500, using=database)
        assert (0 < len(found) < 12, more) == (True, True)
        assert 0 < len(synchronous.objects_below(PODS.space, portion=500, using=database)) < 12
        with pytest.raises(synchronous.TooLarge):
            synchronous.listing(PODS, most=2 * MEBIBYTE, using=database)
        assert max(read) < 4 * MEBIBYTE
        assert len(synchronous.listing(PODS, most=20 * MEBIBYTE, using=database).items) == 12

    await django(act)


async def test_django_writer_makes_the_partition_that_is_missing(conninfo: str, database: str, django: Any) -> None:
    from tests.store.conftest import run

    run(conninfo, "UPDATE store_revision SET revision = 199999, compacted = 199999")
    (stored,) = await django(lambda: synchronous.commit([Create(pod("a"), body("a"))], using=database))
    assert stored.revision == 200_000


_FILLED = """
INSERT INTO store_event (revision, batch, type, space, "group", resource, namespace, name, data)
SELECT number, number, 'ADDED', 'root:acme', '', 'pods', 'default', 'pod-' || number, '{}'
FROM generate_series((SELECT revision + 1 FROM store_revision), %s) AS number
"""
_READ = (
    "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables WHERE relname LIKE 'store%'"
)


async def test_what_a_write_reads_does_not_grow_with_the_log(database: str, django: Any) -> None:
    """Every writer of every process waits meanwhile."""

    def rows_read(events: int) -> int:
        with connections[database].cursor() as cursor:
            cursor.execute(_FILLED, [events])
            cursor.execute("UPDATE store_revision SET revision = %s, batch = %s", [events, events])
            # Who writes by the store's ways has it counted on the way.
            cursor.execute("SELECT store_space_count_on()")
        with transaction.atomic(using=database), connections[database].cursor() as cursor:
            cursor.execute(_READ)
            before = int(cursor.fetchone()[0])
            (stored,) = synchronous.commit([Create(pod(f"a{events}"), body("a"))], using=database)
            assert stored.revision == events + 1
            cursor.execute(_READ)
            return int(cursor.fetchone()[0]) - before

    few, many = [await django(lambda events=events: rows_read(events)) for events in (2_000, 20_000)]
    assert 0 < few < 100
    assert 0 < many < 100


async def test_a_django_process_that_freezes_before_its_commit_is_cut_off(
    conninfo: str, database: str, django: Any
) -> None:
    """It holds the counter row and says nothing more: the database ends its transaction, and the others go on."""
    written, woken = threading.Event(), threading.Event()

    def freeze() -> None:
        with transaction.atomic(using=database):
            synchronous.commit([Create(pod("frozen"), body("frozen"))], using=database)
            written.set()
            woken.wait()

    async with Engine(conninfo, Options(write_seconds=120)) as store:
        frozen = asyncio.create_task(django(freeze))
        try:
            await asyncio.to_thread(written.wait)
            (stored,) = await store.commit(Create(pod("a"), body("a")))
            assert stored.revision == 1
        finally:
            woken.set()
        with pytest.raises(DatabaseError):
            await frozen
        assert await store.get(pod("frozen")) is None
