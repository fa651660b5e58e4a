"""Read leases: whoever holds one does not ask, and no read is stale for that, whoever writes and whatever happens."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import synchronous
from store.engine import Engine, Options
from store.log import committer, leaserevocation, leases
from store.log.follower import clock
from store.log.leaserevocation import leases_sweep
from store.log.leases import Terms
from store.log.replacement import history_replace
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.types import AllSpaces, Check, Create, Delete, Key, OutcomeUnknown, Range, Stored, Update
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.store.conftest import impatient, run
from tests.store.objects import PODS, body, pod
from tests.store.test_faults import bring_back, keep

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
EAGER = Options(leases=Terms(reads=2, rest_seconds=0.01))
DEAF = Options(poll_seconds=60, leases=Terms(reads=2, rest_seconds=0.01))
A = pod("a")
ASKING = Options(leases=Terms(spaces=0))
"""Who takes none."""

ELSEWHERE = pod("b", space="root:globex")
LONG = 600.0
WAITING = Options(write_seconds=LONG)


@pytest.fixture
def django(database: str, django_db_blocker: Any) -> Callable[[Callable[[], T]], Awaitable[T]]:
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


@pytest.fixture
def proxy(conninfo: str) -> Iterator[DatabaseProxy]:
    proxy = DatabaseProxy(conninfo)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers who wait for a lease as long as it takes, which is longer than they have to."""
    for module in (leases, leaserevocation):
        monkeypatch.setattr(module, "LEASE_SECONDS", LONG)


async def lease(store: Engine, key: Key = A) -> None:
    """Read until it is done by a lease."""
    async with asyncio.timeout(LONG):
        reads = store.leases.reads
        while store.leases.reads == reads:
            await store.get(key)
            await asyncio.sleep(0.005)


async def fall_asleep(store: Engine) -> None:
    """Neither renew nor give back, nor hear of anything, as a process that is stopped: what is held it goes on to hold."""
    store.leases.void = lambda: None  # type: ignore[method-assign] # its task would end what it holds as it goes
    await store.leases._task.stop()
    del store.leases.void
    store.leases._heard = store.leases._connection._heard = lambda _: None  # type: ignore[method-assign]
    assert store.leases.held


async def test_a_space_of_which_a_write_checks_something_is_read_by_its_lease_meanwhile(conninfo: str) -> None:
    """Only what is written there could be missed: the rules of a tier are checked by every write of its tenants."""
    async with Engine(conninfo, EAGER) as store:
        (a,) = await store.commit(Create(A, body("a")))
        elsewhere = Create(ELSEWHERE, body("b")), Check(A, a.revision)
        for operations in (elsewhere, (Update(A, a.revision, body("a")), Check(pod("none", space="root:globex"), 0))):
            writing = asyncio.create_task(store.commit(*operations))
            while not store.leases.writing:
                await asyncio.sleep(0)
            assert set(store.leases.writing) == {operations[0].key.space}
            await writing


@pytest.mark.parametrize("kind", ["object", "list", "namespace", "nothing there"])
async def test_who_holds_a_lease_reads_without_the_database(proxy: DatabaseProxy, kind: str) -> None:
    """What is read is there, or is known not to be."""
    async with Engine(proxy.conninfo, EAGER) as store:
        (a,) = await store.commit(Create(A, body("a")))
        questions: dict[str, Callable[[], Awaitable[Any]]] = {
            "object": lambda: store.get(A),
            "list": lambda: store.list(PODS),
            "namespace": lambda: store.list(PODS._replace(namespace="default")),
            "nothing there": lambda: store.get(pod("none")),
        }
        await lease(store)
        proxy.mute = True
        try:
            # Sooner than it could run out unnoticed, or not by a lease and then not at all.
            reads = store.leases.reads
            with suppress(TimeoutError):
                found = await asyncio.wait_for(questions[kind](), 5)
                assert (found if kind in ("object", "nothing there") else list(found.items)) == {
                    "object": a,
                    "nothing there": None,
                }.get(kind, [a])
                assert store.leases.reads > reads
        finally:
            proxy.mute = False


async def test_reading_across_spaces_asks(conninfo: str) -> None:
    """No lease is on all spaces: what another one has written in any of them is there."""
    async with Engine(conninfo, DEAF) as store, Engine(conninfo) as other:
        await store.commit(Create(A, body("a")))
        await lease(store)
        (b,) = await other.commit(Create(ELSEWHERE, body("b")))
        assert b in (await store.list(AllSpaces("", "pods"))).items


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("writer", ["process", "django"])
async def test_a_write_is_acknowledged_when_nobody_can_miss_it(
    conninfo: str, database: str, django: Any, proxy: DatabaseProxy, writer: str, *, deaf: bool
) -> None:
    """Several hold a lease on the space; one of them may not hear of the mark before it asks the next time."""
    async with (
        Engine(proxy.conninfo, DEAF) as store,
        Engine(conninfo, DEAF) as beside,
        Engine(conninfo, DEAF) as other,
    ):
        (current,) = await store.commit(Create(A, body("a")))
        proxy.deaf = deaf
        for number in range(4):
            for reader in (store, beside):
                await lease(reader)
            update = Update(A, current.revision, body("a", number=number))
            if writer == "process":
                (current,) = await other.commit(update)
            else:
                (current,) = await django(partial(synchronous.commit, [update], using=database))
            for reader in (store, beside):
                assert await reader.get(A) == current
                assert list((await reader.list(PODS)).items) == [current]


@pytest.mark.parametrize("writer", ["process", "django"])
async def test_who_waits_for_a_lease_holds_up_nobody_who_writes_elsewhere(
    conninfo: str, database: str, django: Any, patient: None, writer: str
) -> None:
    """Not in the same process, not in others, and with no lock: the holder sleeps, and only its own space waits."""
    async with Engine(conninfo, EAGER) as holder, Engine(conninfo, WAITING) as other, Engine(conninfo) as third:
        (a,) = await other.commit(Create(A, body("a")))
        await lease(holder)
        await fall_asleep(holder)
        update = Update(A, a.revision, body("a", x=1))

        def within() -> Any:
            with transaction.atomic(using=database):
                return synchronous.commit([update], using=database)

        waiting = asyncio.create_task(other.commit(update) if writer == "process" else django(within))
        async with asyncio.timeout(LONG / 2):
            while not run(conninfo, "SELECT ending FROM store_lease")[0]:
                await asyncio.sleep(0.01)
            (b,) = await other.commit(Create(ELSEWHERE, body("b")))
            await third.commit(Update(ELSEWHERE, b.revision, body("b", x=1)))
        behind = asyncio.create_task(other.commit(Update(A, a.revision, body("a", x=2))))
        assert not waiting.done()
        # It wakes.
        holder.leases.void()
        await holder.leases._give_back()
        kept = [
            each for each in await asyncio.gather(waiting, behind, return_exceptions=True) if isinstance(each, list)
        ]
        assert len(kept) == 1
        assert await holder.get(A) == kept[0][0]


async def test_a_lease_of_a_process_that_is_gone_is_taken_away(conninfo: str) -> None:
    async with Engine(conninfo, EAGER) as other:
        holder = Engine(conninfo, EAGER)
        await holder.start()
        (a,) = await other.commit(Create(A, body("a")))
        await lease(holder)
        await fall_asleep(holder)
        (changed,) = await other.commit(Update(A, a.revision, body("a", x=1)))
        assert run(conninfo, "SELECT count(*) FROM store_lease") == (0,)
        # It was only asleep: what it held has run out before it was taken away.
        assert await holder.get(A) == changed
        await holder.stop()


async def test_what_has_run_out_is_not_renewed(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sleeper's lease was taken away without a trace; its next question is answered as if there had been no mark."""
    async with Engine(conninfo, DEAF) as holder, Engine(conninfo) as other:
        (a,) = await other.commit(Create(A, body("a")))
        await lease(holder)
        number = holder.leases.holder
        await fall_asleep(holder)
        (changed,) = await other.commit(Update(A, a.revision, body("a", x=1)))
        async with asyncio.timeout(LONG):
            await holder.leases._renew(())
        assert holder.leases.held == 0
        assert holder.leases.holder != number
        assert await holder.get(A) == changed


async def test_own_writes_are_read_as_soon_as_anybody_could_have_read_them(conninfo: str, proxy: DatabaseProxy) -> None:
    """The database has kept it and another one has read it, but the answer to its writer is still on the way."""
    async with Engine(proxy.conninfo, EAGER) as holder, Engine(conninfo) as other:
        (a,) = await holder.commit(Create(A, body("a")))
        await lease(holder)
        proxy.mute = True
        writing = asyncio.create_task(holder.commit(Update(A, a.revision, body("a", x=1))))
        async with asyncio.timeout(LONG):
            while await other.get(A) == a:
                await asyncio.sleep(0.005)
        assert not holder.leases.cover(A.space, clock())
        reading = asyncio.create_task(holder.get(A))
        await asyncio.sleep(0.05)
        proxy.mute = False
        assert await reading == await other.get(A)
        await writing


async def test_nobody_reads_by_a_lease_while_an_own_write_is_in_doubt(conninfo: str, proxy: DatabaseProxy) -> None:
    """It may be kept when nobody expects it any more: then it is the write of another."""
    async with Engine(conninfo, EAGER) as holder, Engine(conninfo, ASKING) as other:
        # Only the answer to the write is lost: leases are renewed all the time.
        holder._committer._writer = DedicatedConnection(proxy.conninfo, "tenantry-writer")
        (a,) = await holder.commit(Create(A, body("a")))
        await lease(holder)
        number = holder.leases.holder
        proxy.mute = True
        with pytest.raises(OutcomeUnknown), impatient(holder):
            await holder.commit(Update(A, a.revision, body("a", x=1)))
        assert holder.leases.held == 0
        assert holder.leases.holder != number
        proxy.mute = False
        assert await holder.get(A) == await other.get(A)


async def test_a_write_whose_first_try_may_still_arrive_is_not_said_to_be_refused(
    conninfo: str, proxy: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused leaves no trace in the log by which the try that comes late would be found out: it may be kept then."""
    monkeypatch.setattr(committer, "ATTEMPT_SECONDS", 0.5)
    async with Engine(conninfo, EAGER) as holder, Engine(conninfo, ASKING) as other:
        writer = holder._committer._writer = DedicatedConnection(proxy.conninfo, "tenantry-writer")
        await holder.commit(Create(pod("first"), body("first")))
        (a,) = await other.commit(Create(A, body("a")))
        await lease(holder)
        number = holder.leases.holder
        proxy.cut = True
        # Whoever tries again comes through.
        writer._conninfo = conninfo
        with pytest.raises(OutcomeUnknown):
            await holder.commit(Create(A, body("a", late=1)))
        assert holder.leases.holder != number
        await other.commit(Delete(A, a.revision, body("a")))
        proxy.cut = False
        async with asyncio.timeout(LONG):
            while await other.get(A) is None:
                await asyncio.sleep(0.01)
        assert await holder.get(A) == await other.get(A)


@pytest.mark.parametrize("grown", [False, True])
async def test_a_renewal_finds_that_the_history_is_another_one(conninfo: str, *, grown: bool) -> None:
    """Nobody writes, nobody notifies, and the follower does not poll: asking whether the lease holds brings it out."""
    async with Engine(conninfo, DEAF) as holder:
        await holder.commit(Create(A, body("a")))
        keep(conninfo)
        ghosts = [*await holder.commit(Create(pod("ghost"), body("ghost")))]
        await lease(holder)
        bring_back(conninfo)
        if grown:
            async with Engine(conninfo) as other:
                for number in range(3):
                    await other.commit(Create(pod(f"new-{number}", space="root:globex"), body("new")))
        async with asyncio.timeout(LONG):
            while await holder.get(pod("ghost")) in ghosts and holder.leases.cover(A.space, clock()):
                await asyncio.sleep(0.01)
        assert await holder.get(pod("ghost")) is None


async def test_a_restore_ends_every_lease_before_it_counts(conninfo: str, database: str, django: Any) -> None:
    async with Engine(conninfo, DEAF) as holder:
        (a,) = await holder.commit(Create(A, body("a")))

        def restore() -> None:
            with transaction.atomic(using=database):
                with connections[database].cursor() as cursor:
                    cursor.execute("DELETE FROM store_object")
                history_replace(reached=a.revision, using=database)

        await lease(holder)
        reading = asyncio.create_task(django(restore))
        async with asyncio.timeout(LONG):
            await reading
            assert await holder.get(A) is None


async def test_a_space_that_others_write_is_left_alone(conninfo: str) -> None:
    """Whose lease was ended does not take the next one at once: nobody's writes wait again and again."""
    terms = Terms(reads=2, rest_seconds=3600)
    async with Engine(conninfo, Options(leases=terms)) as holder, Engine(conninfo) as other:
        (a,) = await other.commit(Create(A, body("a")))
        await lease(holder)
        await other.commit(Update(A, a.revision, body("a", x=1)))
        await other.commit(Create(ELSEWHERE, body("b")))
        # By the time that another space has got its lease, this one would have it too.
        for _ in range(5):
            await holder.get(A)
        await lease(holder, ELSEWHERE)
        for _ in range(5):
            await holder.get(A)
        await lease(holder, ELSEWHERE)
        assert run(conninfo, "SELECT array_agg(DISTINCT space) FROM store_lease") == ([ELSEWHERE.space],)


async def test_rest_grows_with_every_lease_that_does_not_last(conninfo: str) -> None:
    async with Engine(conninfo, EAGER) as store:
        held = store.leases
        held._terms = Terms(rest_seconds=100)
        lengths = []
        for age in (0, 0, 0, 1000, 0):
            held._held["root:acme"] = leases.Lease(1, clock() - age, clock())
            held._rest("root:acme")
            lengths.append(held._rests["root:acme"][1])
            held._release(("root:acme",))
        assert lengths == [100, 200, 300, 100, 200]
        for number in range(leases.RESTING_MAX + 10):
            held._held[f"root:{number}"] = leases.Lease(1, clock(), clock())
            held._rest(f"root:{number}")
        assert len(held._rests) == leases.RESTING_MAX
        held._held.clear()


async def test_leases_are_few_and_go_with_their_process_or_when_nobody_reads(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "UNUSED_SECONDS", 1.0)
    count = "SELECT count(DISTINCT space) FROM store_lease"
    async with Engine(conninfo, Options(leases=Terms(spaces=3, reads=2))) as store:
        keys = [pod("a", space=f"root:t{number}") for number in range(6)]
        for _ in range(60):
            for key in keys:
                await store.get(key)
            await asyncio.sleep(0.01)
        assert store.leases.held <= 3
        await lease(store, keys[0])
        async with asyncio.timeout(LONG):
            while run(conninfo, count) != (0,):
                await asyncio.sleep(0.05)
        await lease(store, keys[0])
        assert run(conninfo, count) == (1,)
    assert run(conninfo, count) == (0,)


async def test_no_lease_is_taken_where_somebody_waits_to_write(conninfo: str, patient: None) -> None:
    async with Engine(conninfo, EAGER) as holder, Engine(conninfo, EAGER) as eager, Engine(conninfo, WAITING) as writer:
        (a,) = await writer.commit(Create(A, body("a")))
        await writer.commit(Create(ELSEWHERE, body("b")))
        await lease(holder)
        await fall_asleep(holder)
        waiting = asyncio.create_task(writer.commit(Update(A, a.revision, body("a", x=1))))
        async with asyncio.timeout(LONG / 2):
            while not run(conninfo, "SELECT ending FROM store_lease")[0]:
                await asyncio.sleep(0.01)
            for _ in range(5):
                await eager.get(A)
            await lease(eager, ELSEWHERE)
        assert not eager.leases.cover(A.space, clock())
        holder.leases.void()
        await holder.leases._give_back()
        await waiting


async def test_what_the_dead_have_left_behind_is_swept(conninfo: str, database: str, django: Any) -> None:
    run(
        conninfo,
        "INSERT INTO store_lease (number, space, holder, taken_at) VALUES (1, 'root:old', 7, now() - interval '2 hours'),"
        " (2, 'root:new', 7, now())",
    )
    assert await django(lambda: leases_sweep(using=database)) == 1
    assert run(conninfo, "SELECT array_agg(space) FROM store_lease") == (["root:new"],)


async def test_a_database_that_restarts_gives_no_lease_away(conninfo: str) -> None:
    """What is held is written down as durably as what is stored."""
    assert run(conninfo, "SELECT relpersistence::text FROM pg_class WHERE relname = 'store_lease'") == ("p",)


def test_whatever_writes_the_store_looks_for_leases(conninfo: str) -> None:
    """The class: in the database the two ways of writing, in the sources nobody else; the restore waits by itself."""
    with psycopg.connect(conninfo) as connection:
        functions = dict(
            connection.execute(
                "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            ).fetchall()
        )
    writes = re.compile(
        r"(INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|COPY)\s+\"?store_(object|event|revision)\b", re.IGNORECASE
    )
    writers = {name for name, text in functions.items() if writes.search(text)}
    assert writers == {"store_write", "store_commit", "store_log_compact", "store_space_count_on"}
    for name in ("store_write", "store_commit"):
        lock, look = functions[name].index("store_revision"), functions[name].index("FROM store_lease")
        first = writes.search(functions[name], look)
        assert lock < look < (first.start() if first else -1)
    folders = ("store", "tenants", "access", "gateway", "portal", "audit", "kube", "cli", "login")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if "migrations" not in path.parts]
    assert {path.name for path in sources if writes.search(path.read_text())} == {"replacement.py"}
    for path in sources:
        if "store.models" in (text := path.read_text()):
            for function in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)):
                named = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
                called = {each.attr for each in ast.walk(function) if isinstance(each, ast.Attribute)}
                if named & {"StoredObject", "ChangeEvent", "Revision", "ReadLease"}:
                    assert not called & {"create", "bulk_create", "update", "bulk_update", "delete", "save"}, path


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "django", "read", "list", "hot", "sleep", "void"]),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_in_any_order_everybody_reads_what_was_acknowledged_last(
    conninfo: str, database: str, django: Any, steps: list[tuple[str, int, int]]
) -> None:
    asyncio.run(play(conninfo, database, django, steps))


async def play(conninfo: str, database: str, django: Any, steps: list[tuple[str, int, int]]) -> None:
    """Three processes that hear of nothing by themselves, two spaces, and Django's side."""
    keys = (A, ELSEWHERE)
    engines = [Engine(conninfo, DEAF) for _ in range(3)]
    for engine in engines:
        await engine.start()
    asleep = set[int]()
    last: dict[Key, Stored | None] = {key: await engines[0].get(key) for key in keys}
    for what, number, which in steps:
        key, engine, current = keys[which], engines[number], last[keys[which]]
        if what in ("write", "django"):
            change = Update(key, current.revision, body(key.name, of=what)) if current else Create(key, body(key.name))
            if what == "write":
                (last[key],) = await engine.commit(change)
            else:
                (last[key],) = await django(partial(synchronous.commit, [change], using=database))
        elif what == "read":
            assert await engine.get(key) == current
        elif what == "list":
            assert list((await engine.list(Range(key.space, "", "pods"))).items) == [current] * (current is not None)
        elif what == "hot" and number not in asleep:
            await lease(engine, key)
        elif what == "sleep" and number not in asleep:
            # From here on it hears nothing of leases, and whoever writes has to wait until what it held has run out.
            await lease(engine, key)
            await fall_asleep(engine)
            asleep.add(number)
        elif what == "void":
            engine.leases.void()
    for engine in engines:
        await engine.stop()
