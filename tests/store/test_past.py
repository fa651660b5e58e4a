"""Chunked lists while others write: each chunk is of the first one's moment, and costs what it holds."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Sequence

import pytest

import store.past
from store.cache import ListKey
from store.engine import Engine, Options
from store.types import AllSpaces, Create, Delete, Key, Operation, Range, Spaces, Stored, Update
from tests.gateway.loopturns import LoopTurns
from tests.store.objects import PODS, body, pod

SPACES = ("root:acme", "root:globex", "root:zzz")
SELECTIONS: tuple[Range | AllSpaces | Spaces, ...] = (
    PODS,
    PODS._replace(namespace="b"),
    PODS._replace(namespace="none"),
    AllSpaces("", "pods"),
    Spaces("", "pods", SPACES[:2]),
)
Kept = dict[Key, Stored]


class Remembered:
    """Writes that are drawn at random, and all that there was at each revision."""

    def __init__(self, store: Engine, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self.at: dict[int, Kept] = {0: {}}
        self.newest = 0

    async def write(self) -> None:
        """One write: its objects are all of the last of its revisions, which alone is remembered."""
        chance, kept = self._chance, dict(self.at[self.newest])
        keys = {
            Key(chance.choice(SPACES), "", "pods", chance.choice("abc"), f"n{chance.randrange(6)}")
            for _ in range(chance.randint(1, 3))
        }
        operations: list[Operation] = []
        for key in sorted(keys):
            new = body(key.name, x=chance.random(), resourceVersion=str(chance.randrange(100)))
            if key not in kept:
                operations.append(Create(key, new))
            elif chance.random() < 0.5:
                operations.append(Update(key, kept[key].revision, new))
            else:
                operations.append(Delete(key, kept[key].revision, new))
        for operation, stored in zip(operations, await self._store.commit(*operations), strict=True):
            if isinstance(operation, Delete):
                del kept[stored.key]
            else:
                kept[stored.key] = stored
            self.newest = stored.revision
        self.at[self.newest] = kept

    def plainly(
        self, selection: Range | AllSpaces | Spaces, revision: int, after: ListKey | None, limit: int
    ) -> tuple[list[Stored], int]:
        """All that there was, sorted, and cut."""
        kept = sorted(self.at[revision].values(), key=lambda stored: _place(stored.key))
        behind = [each for each in kept if _holds(selection, each.key) and (not after or _place(each.key) > after)]
        page = behind[:limit] if limit else behind
        return page, len(behind) - len(page)


def _holds(selection: Range | AllSpaces | Spaces, key: Key) -> bool:
    if isinstance(selection, Range):
        return key.space == selection.space and selection.namespace in {None, key.namespace}
    return isinstance(selection, AllSpaces) or key.space in selection.spaces


def _place(key: Key) -> ListKey:
    return key.space, key.namespace, key.name


async def _same(store: Engine, remembered: Remembered, chance: random.Random) -> int:
    """One chunk behind any place, then all from there on in chunks; how many objects that were."""
    selection, revision = chance.choice(SELECTIONS), chance.choice(list(remembered.at)[1:])
    after: ListKey | None = (chance.choice(SPACES), chance.choice("abc"), f"n{chance.randrange(6)}")
    after, limit = chance.choice((None, after)), chance.choice((0, 1, 2, 5, 1000))
    listed = 0
    while True:
        found = await store.list(selection, exact=revision, after=after, limit=limit)
        items, remaining = remembered.plainly(selection, revision, after, limit)
        assert list(found.items) == items
        assert found.revision == revision
        # Of many spaces nobody counts how many more there are.
        assert found.remaining == remaining or (isinstance(selection, Spaces) and found.remaining and remaining)
        listed += len(items)
        if not remaining:
            return listed
        after = _place(items[-1].key)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (Options(), 500),
        (Options(), 7),
        (Options(window_events=20), 7),
        (Options(window_events=1), 500),
        (Options(window_events=20, cache_bytes=1), 7),
    ],
    ids=["remembered", "in parts", "remembered and read", "read", "not held"],
)
@pytest.mark.parametrize("seed", range(4))
async def test_a_chunk_is_what_the_whole_list_of_its_moment_would_hold(
    conninfo: str, monkeypatch: pytest.MonkeyPatch, seed: int, options: Options, part: int
) -> None:
    """The same objects in the same order, the same number behind them; while others write, and in whichever parts the past comes."""
    monkeypatch.setattr(store.past, "REPLAY_PAGE", part)
    chance, listed = random.Random(seed), 0
    async with Engine(conninfo, options) as engine:
        remembered = Remembered(engine, chance)
        for _ in range(30):
            await remembered.write()
        for _ in range(10):
            *counts, _ = await asyncio.gather(
                *(_same(engine, remembered, chance) for _ in range(6)), remembered.write()
            )
            listed += sum(count or 0 for count in counts)
    assert listed > 100


async def _chunk(engine: Engine, revision: int, last: Stored, turns: LoopTurns) -> tuple[int, int]:
    """The calls of the loop's longest turn while one object is listed, and the memory that it took."""
    after = _place(last.key)
    # What it is taken from is held.
    await engine.list(PODS, limit=1)
    with turns.counting():
        found = await engine.list(PODS, exact=revision, after=after, limit=1)
    assert [stored.key.name for stored in found.items] == ["m-1"]
    tracemalloc.start()
    try:
        await engine.list(PODS, exact=revision, after=after, limit=1)
        return turns.most, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def _make(engine: Engine, names: Sequence[str]) -> Sequence[Stored]:
    made: list[Stored] = []
    for first in range(0, len(names), 500):
        made += await engine.commit(*(Create(pod(name), body(name)) for name in names[first : first + 500]))
    return made


async def test_a_chunk_costs_the_same_however_many_there_are(conninfo: str) -> None:
    """DOS-03: neither all that is there nor all that has changed since is gone through in one turn."""
    turns, taken = LoopTurns(), list[tuple[int, int]]()
    async with Engine(conninfo) as engine:
        (last, *_) = await _make(engine, [f"m-{number}" for number in range(10)])
        for many in (1_000, 10_000):
            await _make(engine, [f"z{many}-{number}" for number in range(many)])
            revision = engine.revision
            await _make(engine, [f"a{many}"])
            taken.append(await _chunk(engine, revision, last, turns))
        (few, little), (calls, memory) = taken
        assert calls < few * 1.2
        # One that copied nothing but references to all would take 80,000 bytes.
        assert memory < little + 20_000
        taken.clear()
        for changes in (1_000, 10_000):
            revision = engine.revision
            await _make(engine, [f"y{changes}-{number}" for number in range(changes)])
            taken.append(await _chunk(engine, revision, last, turns))
        (few, _), (calls, _) = taken
        assert calls < few * 1.2
