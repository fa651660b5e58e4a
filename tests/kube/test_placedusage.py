"""What a tenant holds in a placed namespace, step by step: nothing is forgotten, and nothing is lost for ever (AD1, AD2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube.quota.placedusage import PlacedUsage, Reservation, placed_usage_body, read_placed_usage
from kube.quota.quantities import parse_quantity

steps = st.lists(st.tuples(st.sampled_from(["reserve", "done", "nothing", "crash"]), st.integers(1, 5)), max_size=20)


def pods(number: int) -> dict[str, object]:
    return {"pods": parse_quantity(str(number))}


@given(steps)
def test_the_total_is_never_less_than_what_is_there_and_equal_after_a_count(steps: list[tuple[str, int]]) -> None:
    usage, there, under_way = PlacedUsage(), 0, 0
    for number, (what, amount) in enumerate(steps):
        request = str(number)
        usage = usage.with_reservation(request, Reservation(amounts=pods(amount), until=float(number)))
        if what == "done":
            there += amount
            usage = usage.confirmed(request)
        elif what == "nothing":
            usage = usage.without(request)
        elif what == "crash":
            there += amount if number % 2 else 0
        else:
            under_way += amount
        assert usage.total.get("pods", parse_quantity("0")).nanos >= parse_quantity(str(there)).nanos
        assert read_placed_usage(placed_usage_body("n", usage)) == usage
    assert usage.recounted([pods(there)], began=len(steps) + 1.0).total == pods(there)
    assert usage.confirmed("no such") == usage


def test_what_is_on_its_way_counts_beside_what_is_seen() -> None:
    usage = PlacedUsage().with_reservation("a", Reservation(amounts=pods(2), until=10.0))
    assert usage.recounted([pods(2)], began=9.0).total == pods(4)
    assert usage.recounted([pods(2)], began=11.0).total == pods(2)
