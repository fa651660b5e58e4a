"""What is charged for what was used (AD7)."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from kube.quota.charges import Price, bill

amounts = st.decimals(0, 10**6, places=6)
quantities = st.decimals(0, 10**15, places=3)


@given(
    st.dictionaries(st.sampled_from(["requests", "streams", "requests.cpu", "pods"]), quantities),
    st.dictionaries(
        st.sampled_from(["requests", "requests.cpu", "pods"]), st.tuples(amounts, st.integers(1, 2**40)), max_size=3
    ),
)
def test_each_line_is_right_to_half_a_cent_and_the_total_is_what_the_lines_add_up_to(
    used: dict[str, Decimal], priced: dict[str, tuple[Decimal, int]]
) -> None:
    found = bill("acme", used, [Price(measure, *price) for measure, price in priced.items()])
    assert [line.price.measure for line in found.lines] == sorted(name for name in priced if used.get(name))
    for line in found.lines:
        amount, per = priced[line.price.measure]
        exact = used[line.price.measure].as_integer_ratio(), amount.as_integer_ratio()
        (a, b), (c, d) = exact
        numerator, denominator = a * c, b * d * per
        cost, hundred = line.cost.as_integer_ratio()
        assert abs(cost * denominator - numerator * hundred) * 200 <= denominator * hundred
    assert found.total == sum((line.cost for line in found.lines), Decimal(0))


def test_a_price_is_for_so_many_units() -> None:
    found = bill("acme", {"requests": Decimal(2_500_000)}, [Price("requests", Decimal("0.40"), 1_000_000)])
    assert (found.lines[0].cost, found.total) == (Decimal("1.00"), Decimal("1.00"))
