"""A day's part of the request log is shared evenly (DOS-08)."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from audit.requestlog.shares import DayShares, even_level

TODAY = date(2026, 3, 1)


@given(wanted=st.lists(st.integers(0, 1000), max_size=20), room=st.integers(0, 20_000))
def test_the_level_gives_all_room_away_and_nobody_more_than_another_lacks(wanted, room):
    level = even_level(wanted, room)
    had = [min(each, level) for each in wanted]
    if sum(wanted) <= room:
        assert had == wanted
    else:
        assert abs(sum(had) - room) < 1e-6
        # Whoever is cut has as much as anybody.
        assert all(mine == level for mine, each in zip(had, wanted, strict=True) if mine < each)


@given(
    taken=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1000), min_size=2),
    flood=st.integers(10_000, 10**9),
    most=st.integers(10_000, 20_000),
)
def test_a_flood_ends_nobody_elses_records(taken, flood, most):
    shares = DayShares(most)
    for tenant, size in {**taken, "flood": flood}.items():
        shares.note(TODAY, tenant, size)
    shares.measured(TODAY, sum(taken.values()) + flood)
    assert shares.beyond <= {"flood"}
    assert ("flood" in shares.beyond) == (sum(taken.values()) + flood > most)


def test_it_lasts_until_the_day_ends_and_what_comes_late_is_of_no_new_day():
    shares = DayShares(100)
    shares.note(TODAY, "acme", 1000)
    shares.note(TODAY, "globex", 10)
    shares.measured(TODAY, 1010)
    assert shares.beyond == {"acme"}
    shares.note(TODAY - timedelta(days=1), "globex", 10_000)
    shares.measured(TODAY, 1020)
    assert shares.beyond == {"acme"}
    shares.measured(TODAY + timedelta(days=1), 0)
    assert shares.beyond == frozenset()


def test_who_is_alone_is_bounded_as_well():
    shares = DayShares(100)
    shares.note(TODAY, "acme", 101)
    shares.measured(TODAY, 101)
    assert shares.beyond == {"acme"}
