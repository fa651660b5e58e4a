"""Two processes and one tenant's quota on clusters: what is kept is the sum of what is open, at the cost of what is new (AD2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from access.admission.tenancy.placedbooks import read_book
from kube.quota.placedusage import Counted
from kube.quota.podresources import amounts
from kube.quota.reservations import Reservation
from kube.quota.tenantquotas import PLACED_RESERVATIONS, with_hard
from kube.quota.usage import QuotaExceeded
from store.interface import Store
from store.log.preconditions import rows_of
from store.types import Create, Operation, PreconditionFailed, Range, Room, Stored, Update
from tenants.quotas import tenant_quota_key
from tests.gateway.test_reservations import NOW, Process, database, processes
from tests.gateway.test_reservations import Counted as CountedStore

__all__ = ["database"]

ENDS = 60.0


@dataclass
class Oracle:
    """What is in the cluster, what is on its way, and what may be; nobody asks it in between."""

    room: int
    now: float = NOW
    there: dict[str, int] = field(default_factory=dict)
    on_its_way: dict[str, tuple[int, float]] = field(default_factory=dict)
    names: int = 0

    def needed(self) -> int:
        """What the tenant has at least: what is there, and what may come yet."""
        coming = {name: amount for name, (amount, until) in self.on_its_way.items() if until >= self.now}
        return sum({**coming, **self.there}.values())


DEEDS = ("reserve", "reserve", "reserve", "make", "refuse", "delete", "count", "lower", "raise", "pass")

Deed = tuple[str, int, int, int]


async def reserve(process: Process, oracle: Oracle, name: str, amount: int) -> int:
    """How much was taken."""
    until = oracle.now + ENDS
    write = Reservation(amounts={}, until=until, what=f"/pods/{name}", uid=name)
    try:
        demand = amounts({"pods": str(amount)})
        assert await process.quotas.reserve(process.place, name, lambda _: demand, write)
    except QuotaExceeded:
        return 0
    oracle.on_its_way[name] = amount, until
    return amount


async def settle(process: Process, oracle: Oracle, name: str, *, made: bool) -> None:
    """The cluster has answered in time: it is there, or never will be."""
    amount, _ = oracle.on_its_way[name]
    if made:
        oracle.there[name] = amount
    await process.quotas.settle(process.place, name, made=made)
    if not made:
        del oracle.on_its_way[name]


async def count(process: Process, oracle: Oracle) -> None:
    """Somebody looks into the cluster, for which it takes its time."""

    async def look(_: object) -> Sequence[Counted]:
        found = [
            Counted(f"/pods/{name}", name, "1", amounts({"pods": str(size)})) for name, size in oracle.there.items()
        ]
        await asyncio.sleep(0)
        return found

    await process.quotas.recount(process.place, look, oracle.now)


async def bound(store: Store, tenant_space: str, room: int) -> None:
    """An operator lets the tenant have more or less."""
    key = tenant_quota_key(tenant_space.removeprefix("root:"))
    while True:
        stored = await store.get(key)
        assert stored is not None
        try:
            body = with_hard(orjson.loads(stored.data), {"pods": str(room)})
            await store.commit(Update(key, stored.revision, body))
        except PreconditionFailed:
            continue
        return


async def burst(found: Sequence[Process], oracle: Oracle, deeds: Sequence[Deed]) -> None:
    """All of these at once; then nothing is over, nothing is forgotten, and the sum is that of the parts."""
    used, room, taken = int(await found[0].used()), oracle.room, list[asyncio.Task[int]]()
    others, touched = list[asyncio.Task[None]](), set[str]()
    for deed, of, which, amount in deeds:
        process = found[of]
        open_ = sorted(
            name
            for name, (_, until) in oracle.on_its_way.items()
            if until >= oracle.now and name not in oracle.there and name not in touched
        )
        gone = sorted(oracle.there.keys() - touched)
        if deed == "reserve":
            oracle.names += 1
            taken.append(asyncio.create_task(reserve(process, oracle, f"p{oracle.names}", amount)))
        elif deed in ("make", "refuse") and open_:
            touched.add(name := open_[which % len(open_)])
            others.append(asyncio.create_task(settle(process, oracle, name, made=deed == "make")))
        elif deed == "delete" and gone:
            touched.add(name := gone[which % len(gone)])
            del oracle.there[name]
            oracle.on_its_way.pop(name, None)
            others.append(asyncio.create_task(process.quotas.touch(process.place, name)))
        elif deed == "count":
            others.append(asyncio.create_task(count(process, oracle)))
        elif deed in ("lower", "raise"):
            oracle.room = max(0, oracle.room + (amount if deed == "raise" else -amount))
    if oracle.room != room:
        others.append(asyncio.create_task(bound(found[0].store, found[0].place.space, oracle.room)))
    room = max(room, oracle.room)
    await asyncio.gather(*taken, *others)
    oracle.now += sum(10.0 * amount for deed, *_, amount in deeds if deed == "pass")
    said = int(await found[1].used())
    held = [(await read_book(process.store, process.place.space)).totals() for process in found]
    assert [sum(total["pods"].value() for total in totals if "pods" in total) for totals in held] == [said, said]
    assert oracle.needed() <= said <= max(room, used), "over, or forgotten"
    if {deed for deed, *_ in deeds} == {"reserve"}:
        assert said == used + sum(task.result() for task in taken)
        refused = [amount for (*_, amount), task in zip(deeds, taken, strict=True) if not task.result()]
        assert all(said + amount > oracle.room for amount in refused), "who was refused had no room"


@given(
    room=st.integers(0, 12),
    bursts=st.lists(
        st.lists(
            st.tuples(st.sampled_from(DEEDS), st.integers(0, 1), st.integers(0, 5), st.integers(1, 3)),
            min_size=1,
            max_size=8,
        ),
        max_size=6,
    ),
)
@example(room=6, bursts=[[("reserve", of, 0, 1) for of in (0, 1, 0, 1, 0, 1, 0, 1)]])
@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to make one smaller takes minutes, with a database
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_two_processes_do_nothing_is_over_and_nothing_lost(
    database: str, room: int, bursts: list[list[Deed]]
) -> None:
    """Reserved, done, refused, deleted, counted, ended, and bounded anew at once: in the end exactly what is there."""

    async def play() -> None:
        async with processes(database, 2, room) as found:
            oracle = Oracle(room)
            for deeds in bursts:
                await burst(found, oracle, deeds)
            oracle.now += ENDS + 1
            await count(found[0], oracle)
            assert await found[1].used() == str(sum(oracle.there.values()))
            left = await found[0].store.list(Range(found[0].place.space, *PLACED_RESERVATIONS))
            assert not left.items, "what is over is kept no longer"

    asyncio.run(play())


class Weighed(CountedStore):
    """A store that knows how much it was asked to write."""

    written = 0
    operations = 0

    async def commit(self, *operations: Operation, room: Room | None = None) -> Sequence[Stored]:
        """As any."""
        self.operations += len(operations)
        self.written += sum(len(row.head) + len(row.tail) for row in rows_of(operations))
        return await super().commit(*operations, room=room)


async def test_a_commit_writes_as_much_however_many_are_open(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is new, one that is done, one that is refused: each by itself, and the quota's sum."""
    monkeypatch.setattr("tests.gateway.test_reservations.Counted", Weighed)
    costs = list[tuple[int, ...]]()
    async with processes(database, 1, 2000) as (process,):
        store = process.store
        assert isinstance(store, Weighed)
        assert await process.take("first000")
        for open_ in (10, 1000):
            await asyncio.gather(*(process.take(f"p{open_:04}{number:03}") for number in range(open_)))
            costs.append(())
            for deed in (
                process.take(f"q{open_:07}"),
                process.quotas.touch(process.place, f"q{open_:07}"),
                process.quotas.settle(process.place, f"q{open_:07}", made=False),
            ):
                before = store.operations, store.written, store.commits, store.asked
                await deed
                after = store.operations, store.written, store.commits, store.asked
                costs[-1] += tuple(now - then for now, then in zip(after, before, strict=True))
    assert [costs[0][index] for index in (0, 4, 8)] == [costs[1][index] for index in (0, 4, 8)] == [2, 1, 2]
    for few, many in zip(costs[0][1::4], costs[1][1::4], strict=True):
        assert many <= few + 8, "the digits of a sum"
    assert costs[1][2::4] == (1, 1, 1) and costs[1][3::4] == (0, 0, 0), "one question to the database for each"


async def nothing(_: object) -> Sequence[Counted]:
    """What is in a cluster of which all is gone."""
    return ()


async def test_nobody_waits_for_what_ends_and_all_of_a_moment_share_a_commit(database: str) -> None:
    """GW17: deletions come in swarms; what is lost on the way is given back at its end."""
    async with processes(database, 2, 20) as (one, other):
        assert all(await asyncio.gather(*(one.take(f"p{number}") for number in range(20))))
        commits = one.store.commits
        for number in range(20):
            one.quotas.touch_soon(one.place, f"p{number}")
        assert one.store.commits == commits, "the answer is not kept waiting"
        async with asyncio.timeout(300):
            while True:
                usage = (await read_book(other.store, other.place.space)).usage(other.place)
                assert usage is not None
                if all(each.done for each in usage.reserved.values()):
                    break
                await asyncio.sleep(0.01)
        assert (one.store.commits, len(usage.reserved), await other.used()) == (commits + 1, 20, "20")

        await other.quotas.recount(other.place, nothing, NOW)
        assert await one.used() == "0" and await one.taken() == set()


async def test_what_ends_is_noted_with_what_is_taken_next(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW17: where much comes and goes, deletions cost no commit of their own; a refused write does not lose them."""
    monkeypatch.setattr("access.admission.tenancy.placedquota._GONE_SECONDS", 0.0)
    monkeypatch.setattr("access.admission.tenancy.placedquota._ENDING_SECONDS", 3600.0)
    async with processes(database, 2, 3) as (one, other):
        assert await one.take("a") and await one.take("b") and await one.take("c")
        one.quotas.touch_soon(one.place, "a")
        one.quotas.touch_soon(one.place, "b")
        assert not await one.take("d"), "a refusal keeps nothing"
        await one.quotas.settle(one.place, "c", made=False)
        commits = one.store.commits
        assert await one.take("d")
        assert one.store.commits == commits + 1
        for process in (one, other):
            usage = (await read_book(process.store, process.place.space)).usage(process.place)
            assert usage is not None
            assert {each.uid for each in usage.reserved.values() if each.done} == {"a", "b"}
            assert await process.used() == "3", "until somebody has looked"

        async def found(_: object) -> Sequence[Counted]:
            return [Counted("/pods/d", "d", "1", amounts({"pods": "1"}))]

        await other.quotas.recount(other.place, found, NOW)
        assert await one.used() == "1" and await one.take("e") and await one.take("f") and not await one.take("g")


@pytest.mark.parametrize("follows", [True, False])
async def test_that_others_have_ended_is_said_by_what_is_taken_next(
    database: str, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """GW17: no write is made for that; a process that ``follows`` hears it, and one that reads it later does."""
    monkeypatch.setattr("tests.gateway.test_reservations.Counted", Weighed)
    monkeypatch.setattr("access.admission.tenancy.placedquota._GONE_SECONDS", 0.0)
    monkeypatch.setattr("access.admission.tenancy.placedquota._ENDING_SECONDS", 3600.0)
    async with processes(database, 2, 4) as (one, other):
        assert isinstance(one.store, Weighed)
        assert await one.take("a") and await one.take("b")
        if follows:
            assert await other.take("c")
        one.quotas.touch_soon(one.place, "a")
        one.quotas.touch_soon(one.place, "b")
        assert await one.used() == ("3" if follows else "2")
        operations = one.store.operations
        assert await one.take("d")
        assert one.store.operations == operations + 2, "what is taken, and the sum"
        assert await other.used() == ("4" if follows else "3")
        await other.quotas.recount(other.place, nothing, NOW)
        assert await one.taken() == ({"c", "d"} if follows else {"d"})
        assert await one.used() == ("2" if follows else "1")


async def test_what_nobody_says_any_more_to_have_ended_is_taken_until_its_end(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has said it was refused: whoever has heard it knows it all the same, and who comes later gives nothing back early."""
    monkeypatch.setattr("access.admission.tenancy.placedquota._GONE_SECONDS", 0.0)
    monkeypatch.setattr("access.admission.tenancy.placedquota._ENDING_SECONDS", 3600.0)
    async with processes(database, 2, 3) as (one, late):
        assert await one.take("a") and await one.take("b")
        one.quotas.touch_soon(one.place, "a")
        assert await one.take("c")
        await one.quotas.settle(one.place, "c", made=False)
        assert await late.used() == "2"
        await late.quotas.recount(late.place, nothing, NOW)
        assert await late.taken() == {"a", "b"} and await late.used() == "2"
        await one.quotas.recount(one.place, nothing, NOW)
        assert await late.taken() == {"b"} and await late.used() == "1"
        await late.quotas.recount(late.place, nothing, NOW + 61)
        assert await one.taken() == set() and await one.used() == "0"


async def test_however_many_end_at_once_a_commit_notes_some_of_them(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW17: whoever deletes a thousand objects at once holds nobody else up."""
    monkeypatch.setattr("access.admission.tenancy.placedquota._ENDING_MOST", 8)
    monkeypatch.setattr("access.admission.tenancy.placedquota._ENDING_SECONDS", 0.0)
    monkeypatch.setattr("access.admission.tenancy.placedquota._GONE_SECONDS", 0.0)
    async with processes(database, 1, 20) as (one,):
        assert all(await asyncio.gather(*(one.take(f"p{number:02}") for number in range(20))))
        commits, noted = one.store.commits, list[int]()
        for number in range(20):
            one.quotas.touch_soon(one.place, f"p{number:02}")
        async with asyncio.timeout(300):
            while not noted or noted[-1] < 20:
                await asyncio.sleep(0.01)
                usage = (await read_book(one.store, one.place.space)).usage(one.place)
                assert usage is not None
                noted.append(sum(each.done for each in usage.reserved.values()))
        assert set(noted) <= {0, 8, 16, 20} and one.store.commits == commits + 3


async def test_what_an_earlier_version_has_reserved_stays_until_its_end(database: str) -> None:
    """It wrote them into the row of the namespace, all together: they go out of it with the first write, and lose nothing."""
    async with processes(database, 2, 4) as (one, other):
        old = {name: Reservation(amounts=amounts({"pods": "1"}), until=NOW + 60, uid=name).body() for name in "ab"}
        row = {"metadata": {"name": one.place.name}, "counted": {"pods": "1"}, "reserved": old, "turn": 3}
        await one.store.commit(Create(one.place, row))
        stored = await one.store.get(tenant_quota_key(one.place.space.removeprefix("root:")))
        assert stored is not None
        body = orjson.loads(stored.data)
        body["status"]["used"]["pods"] = "3"
        await one.store.commit(Update(stored.key, stored.revision, body))
        assert await other.taken() == await one.taken() == {"a", "b"}
        assert await other.take("c") and not await one.take("d")
        assert await other.taken() == await one.taken() == {"a", "b", "c"}
        rewritten = await one.store.get(one.place)
        assert rewritten is not None and "reserved" not in orjson.loads(rewritten.data)
        await one.quotas.settle(one.place, "a", made=False)
        assert await other.take("d") and not await one.take("e")
        assert await one.used() == "4"
        # A process of that version still runs, and is asked about one that it knows nothing of.
        stored, rewritten = await one.store.get(stored.key), await one.store.get(one.place)
        assert stored is not None and rewritten is not None
        row = {**orjson.loads(rewritten.data), "reserved": {"c": old["a"] | {"uid": "c"}}}
        body = orjson.loads(stored.data)
        body["status"]["used"]["pods"] = "5"
        await one.store.commit(
            Update(rewritten.key, rewritten.revision, row), Update(stored.key, stored.revision, body)
        )

        await other.quotas.recount(other.place, nothing, NOW + 61)
        assert await one.used() == "0" and await one.taken() == set()
