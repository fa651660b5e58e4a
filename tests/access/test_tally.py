"""What is counted again after others had turns is what a fresh count would say (AD2)."""

from __future__ import annotations

from random import Random

import orjson
import pytest

from access.admission.tally import Tally
from kube.quota.quantities import parse_quantity
from store.pace import TOGETHER_BYTES, Pace
from store.types import Key, Range, Stored

PLACE = Range("root:acme", "", "things", "default")


@pytest.mark.parametrize("seed", range(40))
async def test_looks_come_to_what_is_there(seed: int) -> None:
    """Whatever comes, changes and goes between the looks; and each state is read once."""
    drawn, there, read = Random(seed), dict[str, Stored](), list[int]()

    def count(_group: str, _plural: str, body: dict[str, str]) -> dict[str, object]:
        read.append(1)
        return {name: parse_quantity(amount) for name, amount in body.items() if name != "kind"}

    tally, revision = Tally(count), 0  # type: ignore[arg-type]
    for _ in range(12):
        for _ in range(drawn.randrange(6)):
            name, revision = f"o{drawn.randrange(8)}", revision + 1
            if drawn.random() < 0.3:
                there.pop(name, None)
                continue
            body = {each: f"{drawn.randrange(5)}" for each in ("cpu", "memory") if drawn.random() < 0.8}
            there[name] = Stored(Key(*PLACE, name), revision, orjson.dumps(body))
        read.clear()
        await tally.look(PLACE, "things", list(there.values()), Pace())
        assert len(read) <= len(there)
        wanted: dict[str, int] = {}
        for stored in there.values():
            for each, amount in orjson.loads(stored.data).items():
                wanted[each] = wanted.get(each, 0) + int(amount)
        found = {each: int(str(amount)) for each, amount in tally.used.items() if amount}
        assert found == {each: amount for each, amount in wanted.items() if amount}
        read.clear()
        await tally.look(PLACE, "things", list(there.values()), Pace())
        assert not read


async def test_a_second_look_at_what_is_as_it_was_takes_no_turn() -> None:
    data = orjson.dumps({"pad": "1" * 1_000})
    there = [Stored(Key(*PLACE, f"o{number}"), 1, data) for number in range(1_000)]
    tally, first, second = Tally(lambda *_: {}), Pace(), Pace()
    await tally.look(PLACE, "things", there, first)
    await tally.look(PLACE, "things", there, second)
    assert (first.turns, second.turns) == (1_000 * len(data) // TOGETHER_BYTES, 0)
