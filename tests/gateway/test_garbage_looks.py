"""Looking for objects that only know each other holds nobody up, and finds all of them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.process.garbage import look_for_garbage

TURN = 500
"""Objects that come in a turn of the loop."""


class Knot:
    """An object that knows itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _thresholds() -> Any:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@asynccontextmanager
async def looking(**how: Any) -> AsyncIterator[None]:
    """A process that looks as often as the loop has turns."""
    task = asyncio.create_task(look_for_garbage(every=0, **how))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()


async def test_where_as_many_go_as_come_few_are_looked_at_at_a_time() -> None:
    """The interpreter counts how many more have come than gone: by that it would look at all that are held, at once."""
    held, young = deque[list[int]](maxlen=100 * TURN), list[int]()

    def look(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            young.append(len(gc.get_objects(generation=0)))

    gc.collect()
    async with looking():
        gc.callbacks.append(look)
        try:
            for _ in range(300):
                held.extend([number] for number in range(TURN))
                await asyncio.sleep(0)
        finally:
            gc.callbacks.remove(look)
    assert len(young) >= 300
    assert max(young) < 4 * TURN


@pytest.mark.parametrize("looks", [0, 2, 30])
async def test_whatever_outlives_looks_is_found_once_enough_has_come(looks: int) -> None:
    knot = Knot()
    found = weakref.ref(knot)
    held = list[list[int]]()
    gc.collect()
    async with looking(grown=20 * TURN, grown_old=80 * TURN):
        for _ in range(looks):
            held += ([number] for number in range(TURN))
            await asyncio.sleep(0)
        del knot
        async with asyncio.timeout(300):
            while found() is not None:
                held += ([number] for number in range(TURN))
                await asyncio.sleep(0)
    assert len(held) <= (looks + 90) * TURN


async def test_all_are_looked_at_again_when_there_are_many_more() -> None:
    """However much garbage comes and is found: where much is held, that look is a long one."""
    all_of_them = list[int]()

    def look(phase: str, said: dict[str, int]) -> None:
        if phase == "start" and said["generation"] == 2:
            all_of_them.append(len(held))

    held = [[number] for number in range(100 * TURN)]
    gc.collect()
    async with looking(grown=10 * TURN, grown_old=20 * TURN):
        gc.callbacks.append(look)
        try:
            for _ in range(400):
                for _ in range(TURN):
                    Knot()
                await asyncio.sleep(0)
            assert len(all_of_them) == 1
            while len(all_of_them) == 1:
                held += ([number] for number in range(TURN))
                await asyncio.sleep(0)
        finally:
            gc.callbacks.remove(look)


async def test_one_request_that_makes_many_is_looked_at_meanwhile() -> None:
    """Without a turn of the loop in between."""
    async with looking():
        knots = [weakref.ref(Knot()) for _ in range(100_000)]
        assert sum(each() is not None for each in knots) < 50_000
