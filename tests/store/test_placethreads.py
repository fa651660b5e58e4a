"""However slow one cluster is, there are threads left for the others (D8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Event
from typing import Any

import pytest

from kube.requests.status import TooManyRequests
from store.placethreads import AT_ONCE, WAITING_MAX, PlaceThreads


class Cluster:
    """One that answers when it is let go."""

    def __init__(self) -> None:
        self.go = Event()
        self.asked: list[int] = []

    def answer(self, number: int) -> int:
        self.asked.append(number)
        assert self.go.wait(300)
        return number


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Threads get their turns when the machine gives them."""
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_silent_cluster_keeps_its_own_turns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, silent = PlaceThreads("test"), Cluster()
    submit, turns = threads._threads.submit, list[int]()

    def in_turn(work: Callable[..., Any]) -> Future[Any]:
        if isinstance(work, partial):
            turns.append(work.args[0])
        return submit(work)

    monkeypatch.setattr(threads._threads, "submit", in_turn)
    orders = [asyncio.create_task(threads.run("silent", partial(silent.answer, number))) for number in range(40)]
    await settled()
    for other in range(20):
        assert await threads.run(f"other-{other}", lambda: "at once") == "at once"
    await until(lambda: len(silent.asked) >= AT_ONCE)
    await settled()
    assert len(silent.asked) == AT_ONCE
    assert not any(order.done() for order in orders)
    silent.go.set()
    assert await asyncio.gather(*orders) == list(range(40))
    # Who has its turn is told by the order of turns: which of several threads runs first, the machine decides.
    assert turns == sorted(silent.asked) == list(range(40))


async def test_who_waits_in_vain_is_told_and_nothing_is_left_behind() -> None:
    threads, silent = PlaceThreads("test"), Cluster()
    orders = [
        asyncio.create_task(threads.run("silent", partial(silent.answer, number)))
        for number in range(AT_ONCE + WAITING_MAX)
    ]
    await until(lambda: len(silent.asked) >= AT_ONCE)
    with pytest.raises(TooManyRequests, match='"silent"'):
        await threads.run("silent", partial(silent.answer, -1))
    for order in orders:
        order.cancel()
    await asyncio.gather(*orders, return_exceptions=True)
    # What has begun goes on and has its turn until it ends; who waited is never called.
    later = asyncio.create_task(threads.run("silent", partial(silent.answer, -2)))
    await settled()
    assert sorted(silent.asked) == list(range(AT_ONCE))
    silent.go.set()
    assert await later == -2
    await until(lambda: not threads._inside)
    assert threads._turns == {}


async def test_what_fails_is_its_askers_alone() -> None:
    threads = PlaceThreads("test")

    def fail() -> None:
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        await threads.run("away", fail)
    assert await threads.run("away", lambda: 1) == 1
