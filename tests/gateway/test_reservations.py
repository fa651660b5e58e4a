"""Writers of what one tenant's quota counts on clusters stand in line, and those who wait share a commit (AD2, GW17)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access.admission.keeping import keep
from access.admission.tenancy.placedbooks import read_book
from access.admission.tenancy.placedledger import LINE_MAX
from access.admission.tenancy.placedquota import Demand, PlacedQuotas, usage_key
from gateway.process.keyedlocks import KeyedLocks
from kube.quota.podresources import amounts
from kube.quota.quantities import InvalidQuantity, Quantity
from kube.quota.reservations import Reservation
from kube.quota.tenantquotas import TenantQuota, used_of
from kube.quota.usage import QuotaExceeded
from kube.requests.status import TooManyRequests
from store.engine import Engine
from store.types import Check, Create, Key, Operation, PreconditionFailed, Room, Stored, Update
from tenants.quotas import tenant_quota_key
from tests.databases import migrated

NOW = 1_800_000_000.0
MANY = 40


def one(_: TenantQuota) -> dict[str, Quantity]:
    """One pod."""
    return amounts({"pods": "1"})


class Counted(Engine):
    """A store that knows how often it was asked to write, and for the newest state."""

    commits = 0
    asked = 0

    async def commit(self, *operations: Operation, room: Room | None = None) -> Sequence[Stored]:
        """As any."""
        self.commits += 1
        return await super().commit(*operations, room=room)

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """As any."""
        self.asked += not cached
        return await super().get(key, cached=cached)


class Process:
    """What one process of the API server has of the quotas of placed namespaces."""

    def __init__(self, store: Counted, tenant: str) -> None:
        self.store = store
        self._quota = tenant_quota_key(tenant)
        self.place = usage_key(self._quota.space, f"{tenant}-web")
        self.quotas = PlacedQuotas(store, (), self._none, self._all, turns=KeyedLocks().of_tenant_quota)

    async def _none(self, _space: str, _namespace: str) -> Sequence[Any]:
        return ()

    async def _all(self, *_: Any) -> dict[str, Any]:
        return {}

    async def take(self, name: str, demand: Demand = one, **more: Any) -> bool:
        """Whether there was room for one more."""
        write = Reservation(amounts={}, until=NOW + 60, what=f"/pods/{name}", uid=name)
        try:
            return await self.quotas.reserve(self.place, name, demand, write, **more)
        except QuotaExceeded:
            return False

    async def taken(self) -> set[str]:
        """The requests that have taken something in the namespace."""
        usage = (await read_book(self.store, self.place.space)).usage(self.place)
        return set(usage.reserved) if usage is not None else set()

    async def note(self, name: str) -> Stored:
        """Keep an object of the tenant that has nothing to do with its quota."""
        (kept,) = await self.store.commit(Create(Key(self.place.space, "", "notes", "", name), {"metadata": {}}))
        return kept

    async def used(self) -> str:
        """How many the tenant has by its quota."""
        stored = await self.store.get(self._quota)
        assert stored is not None
        return str(used_of(orjson.loads(stored.data))["pods"])


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("reservations") as url:
        yield url


@asynccontextmanager
async def processes(database: str, number: int, room: int) -> AsyncIterator[list[Process]]:
    """So many on one database, and a new tenant with so much room."""
    tenant = f"t{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        found = [Process(await stack.enter_async_context(Counted(database)), tenant) for _ in range(number)]
        spec, status = {"hard": {"pods": str(room)}}, {"hard": {"pods": str(room)}, "used": {"pods": "0"}}
        body = {"metadata": {"name": "quota"}, "spec": spec, "status": status}
        await found[0].store.commit(Create(tenant_quota_key(tenant), body))
        found[0].store.commits = 0
        yield found


async def test_whoever_asks_at_once_shares_a_commit(database: str) -> None:
    """Those who fight for one revision lose all but one of each round: a burst takes its square, and some never win."""
    async with processes(database, 1, MANY + 10) as (process,):
        assert all(await asyncio.gather(*(process.take(f"p{number}") for number in range(MANY))))
        assert process.store.commits == 1
        await asyncio.gather(*(process.quotas.touch(process.place, f"p{number}") for number in range(MANY)))
        assert process.store.commits == 2
        assert await process.used() == str(MANY)


async def test_they_are_judged_in_the_order_in_which_they_came(database: str) -> None:
    """First come, first served; a refusal is from the newest state, which all who are refused read once."""
    async with processes(database, 1, 7) as (process,):
        before = process.store.asked
        said = await asyncio.gather(*(process.take(f"p{number}") for number in range(MANY)))
        assert said == [True] * 7 + [False] * (MANY - 7)
        assert (process.store.commits, process.store.asked - before) == (1, 1)
        assert await process.taken() == {f"p{number}" for number in range(7)}


async def test_what_counts_in_no_quota_asks_the_database_nothing(database: str) -> None:
    async with processes(database, 1, 1) as (process,):
        await process.take("first")
        note = await process.note("rested-on")
        await process.store.get(note.key, cached=True)
        commits, asked = process.store.commits, process.store.asked
        assert not await process.take("map", lambda _: {})
        assert (process.store.commits, process.store.asked) == (commits, asked)
        # What only has to hold is looked at, and nothing is written.
        assert await keep(process.store, [Check(note.key, note.revision)]) == ()
        with pytest.raises(PreconditionFailed):
            await keep(process.store, [Check(note.key, note.revision - 1)])
        with pytest.raises(PreconditionFailed):
            await keep(process.store, [Check(note.key, 0)])
        assert process.store.commits == commits


@pytest.mark.parametrize(("name", "version"), [("p", ""), ("p", "7"), ("p*", "")])
async def test_what_somebody_else_writes_with_what_the_door_has_taken_is_not_given_back(
    database: str, name: str, version: str
) -> None:
    """AD2: the account writes past the door what its request is about, and the request comes to nothing for that."""

    def write(uid: str = "") -> Reservation:
        what = f"/pods/{name.replace('*', uid or '*')}"
        return Reservation(amounts={}, until=NOW + 60, what=what, uid=uid, version=version)

    async with processes(database, 1, 1) as (process,):
        place, quotas = process.place, process.quotas
        assert await quotas.reserve(place, "door", one, write())
        assert await quotas.reserve(place, f"u/{version}", one, write("u"), from_door=True)
        if not version:
            # The cluster asks about the door's own before it finds the name taken; a change of another version it does not.
            with pytest.raises(QuotaExceeded):
                await quotas.reserve(place, "v/", one, write("v"), from_door=True)
        await quotas.settle(place, "door", made=False)
        assert await process.used() == "1"
        assert not await process.take("q")


async def test_one_who_fails_or_goes_harms_nobody(database: str) -> None:
    """And leaves nothing behind."""

    def broken(_: TenantQuota) -> dict[str, Quantity]:
        raise InvalidQuantity("none")

    turn = 0

    def breaking(_: TenantQuota) -> dict[str, Quantity]:
        nonlocal turn
        turn += 1
        if turn > 1:
            raise KeyError("spec")
        raise QuotaExceeded("the newest may say something else")

    async with processes(database, 1, MANY) as (process,):
        others = [asyncio.create_task(process.take(f"p{number}")) for number in range(MANY // 2)]
        bad, worse = asyncio.create_task(process.take("bad", broken)), asyncio.create_task(process.take("w", breaking))
        gone = [asyncio.create_task(process.take(f"gone{number}")) for number in range(3)]
        others += [asyncio.create_task(process.take(f"q{number}")) for number in range(MANY // 2)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        assert all(await asyncio.gather(*others))
        with pytest.raises(InvalidQuantity):
            await bad
        with pytest.raises(KeyError):
            await worse
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*gone, return_exceptions=True)
        )
        assert await process.used() == str(MANY)
        assert len(await process.taken()) == MANY


async def test_what_is_kept_together_is_held_for_each_alone(database: str) -> None:
    """A policy that has changed meanwhile, a name that somebody else has taken: who rests on it is judged anew."""
    async with processes(database, 1, MANY) as (process,):
        note = await process.note("policy")
        holds, held = Check(note.key, note.revision), Check(note.key, note.revision - 1)
        name = Key(process.place.space, "", "notes", "", "name")
        said = await asyncio.gather(
            process.take("a", together=[holds]),
            process.take("b", together=[held]),
            process.take("c", together=[holds, Create(name, {"metadata": {"of": "c"}})]),
            process.take("d", together=[Create(name, {"metadata": {"of": "d"}})]),
            process.take("e"),
            return_exceptions=True,
        )
        assert [each if isinstance(each, bool) else type(each) for each in said] == [
            True,
            PreconditionFailed,
            True,
            PreconditionFailed,
            True,
        ]
        assert await process.taken() == {"a", "c", "e"}
        stored = await process.store.get(name)
        assert stored is not None and orjson.loads(stored.data)["metadata"]["of"] == "c"
        await process.store.commit(Update(note.key, note.revision, {"metadata": {}}))
        later = await asyncio.gather(
            *(process.take(f"late{number}", together=[holds]) for number in range(3)),
            process.take("f"),
            return_exceptions=True,
        )
        assert [type(each) for each in later[:3]] == [PreconditionFailed] * 3 and later[3] is True
        assert await process.taken() == {"a", "c", "e", "f"}


async def test_a_line_has_an_end_and_every_tenant_its_own(database: str) -> None:
    async with processes(database, 1, 2 * LINE_MAX) as (process,), processes(database, 1, 1) as (other,):
        asked = [process.take(f"p{number}") for number in range(LINE_MAX + 3)]
        *said, theirs = await asyncio.gather(*asked, other.take("theirs"), return_exceptions=True)
        assert said[:LINE_MAX] == [True] * LINE_MAX and theirs is True
        assert [type(each) for each in said[LINE_MAX:]] == [TooManyRequests] * 3
        assert await process.take("again")
        assert await process.used() == str(LINE_MAX + 1)


@given(seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_two_processes_do_at_once_the_sum_is_that_of_the_parts(database: str, seed: int) -> None:
    """Taken, asked about again, settled, given back, gone while it waits: never one over, and none is lost."""
    chance = random.Random(seed)

    async def play() -> None:
        room = chance.randint(1, 12)
        async with processes(database, 2, room) as found:
            held = set[str]()
            for number in range(6):
                names = [f"{number}-{each}" for each in range(chance.randint(1, 12))]
                tasks = [asyncio.create_task(chance.choice(found).take(name)) for name in names]
                back = chance.sample(sorted(held), chance.randint(0, len(held)))
                gives = [chance.choice(found).quotas.settle(found[0].place, name, made=False) for name in back]
                for task in chance.sample(tasks, chance.randint(0, 2) % (len(tasks) + 1)):
                    asyncio.get_running_loop().call_later(chance.random() * 0.005, task.cancel)
                await asyncio.gather(*gives)
                said = await asyncio.gather(*tasks, return_exceptions=True)
                # Behind whatever those who went have left under way.
                await asyncio.gather(*(each.quotas.touch(each.place) for each in found))
                taken = await found[0].taken()
                assert {name for name, each in zip(names, said, strict=True) if each is True} <= taken
                # Who went while the commit was under way may have taken.
                assert taken <= held | {name for name, each in zip(names, said, strict=True) if each is not False}
                assert await found[1].used() == str(len(taken)) and len(taken) <= room
                held = taken

    asyncio.run(play())


@pytest.mark.parametrize("room", [MANY // 2, MANY + 1])
async def test_several_processes_are_never_one_over_and_give_up_nothing(database: str, room: int) -> None:
    async with processes(database, 3, room) as found:
        asked = [found[number % 3].take(f"p{number}") for number in range(MANY)]
        assert sum(await asyncio.gather(*asked)) == min(room, MANY)
        assert await found[0].used() == str(min(room, MANY))


async def test_what_another_process_has_given_back_is_not_refused(database: str) -> None:
    """A refusal counts only from the newest state."""
    async with processes(database, 2, 1) as (one, other):
        assert await one.take("first")
        assert not await other.take("second")
        await one.quotas.settle(one.place, "first", made=False)
        assert await other.take("second")
