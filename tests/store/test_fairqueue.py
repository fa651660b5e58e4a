"""One tenant's swarm of workspaces stands in nobody else's way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from kube.requests.logicalclusters import ROOT, space_of
from store.fairqueue import SIDE_BY_SIDE, FairQueue
from store.types import Key
from tests.gateway.loopturns import LoopTurns


def of(tenant: str, number: int = 0) -> Key:
    return Key(space_of(tenant), "tenancy.kcp.io", "workspaces", "", f"w{number}")


async def idle() -> None:
    return


@pytest.mark.parametrize("others", [1, 3, 50])
async def test_tenants_take_turns_and_each_has_one_at_a_time(others: int) -> None:
    """Counted in objects, not in seconds: nobody's first waits for more than one round of all."""
    seen: list[Key] = []
    running: Counter[str] = Counter()

    async def settle(key: Key) -> None:
        running[key.space] += 1
        assert running[key.space] == 1
        assert running.total() <= SIDE_BY_SIDE
        seen.append(key)
        await asyncio.sleep(0)
        running[key.space] -= 1

    queue = FairQueue(settle)
    for number in range(300):
        queue.add(of("many", number))
        queue.add(of("many", number))
    work = asyncio.create_task(queue.run(idle, every=5))
    while len(seen) < 10:
        await asyncio.sleep(0)
    begun = len(seen)
    for number in range(others):
        queue.add(of(f"other{number}"))
    queue.add(Key(ROOT, "", "tenants", "", "new"))
    while len(seen) < 300 + others + 1:
        await asyncio.sleep(0)
    firsts = [at for at, key in enumerate(seen) if key.space != space_of("many")]
    assert len(firsts) == others + 1
    assert max(firsts) <= begun + 4 * (others + 2)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_what_is_slow_holds_its_own_tenant_and_what_breaks_ends_the_work() -> None:
    """As the worker starts over with the database, and asks whether it still leads, while others are busy."""
    go_on, seen, asked = asyncio.Event(), [], []

    async def settle(key: Key) -> None:
        seen.append(key)
        if key.space == space_of("slow"):
            await go_on.wait()
            raise ConnectionError

    async def still() -> None:
        asked.append(True)

    queue = FairQueue(settle)
    queue.add(of("slow", 1))
    queue.add(of("slow", 2))
    work = asyncio.create_task(queue.run(still, every=0.01))
    await asyncio.sleep(0)
    queue.add(of("quick"))
    while of("quick") not in seen or not asked:
        await asyncio.sleep(0.001)
    assert of("slow", 2) not in seen
    go_on.set()
    with pytest.raises(ConnectionError):
        await work


async def test_who_is_cancelled_leaves_no_task_behind() -> None:
    queue = FairQueue(lambda _: idle())
    for _ in range(3):
        work = asyncio.create_task(queue.run(idle, every=5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("tenants", [1, 3 * SIDE_BY_SIDE])
async def test_others_have_their_turn_after_each_object(tenants: int) -> None:
    """DOS-03: also where all that is looked at is at hand, so that nothing is ever waited for."""
    turn = 0
    seen: Counter[int] = Counter()

    async def settle(key: Key) -> None:
        seen[turn] += 1

    queue = FairQueue(settle)
    for number in range(300):
        queue.add(of(f"tenant{number % tenants}", number))
    work = asyncio.create_task(queue.run(idle, every=5))
    while seen.total() < 300:
        turn += 1
        await asyncio.sleep(0)
    assert max(seen.values()) <= min(tenants, SIDE_BY_SIDE)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_however_many_are_noted_together_it_is_done_in_a_moment() -> None:
    """DOS-03: what was set aside when a door changes, what follows an owner that goes."""
    turns, calls = LoopTurns(), []
    for many in (10, 1_000):
        queue = FairQueue(lambda _: idle())
        keys = [of("many", number) for number in range(many)]
        for key in keys:
            queue.set_aside(key)
        with turns.counting():
            queue.take_up()
            queue.add_all(space_of("many"), keys)
        calls.append(turns.most)
        assert not queue.is_idle
    assert calls[0] == calls[1]
