"""When a quota will be full (AD7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quota.forecast import hours_until_full


@given(begin=st.floats(0, 1e6), rate=st.floats(0.01, 1e3), hours=st.integers(6, 200), room=st.floats(1, 1e6))
def test_what_grows_evenly_is_full_when_the_room_is_used_up(begin: float, rate: float, hours: int, room: float) -> None:
    now = 500_000.0
    samples = [(now + hour, begin + rate * hour) for hour in range(hours)]
    found = hours_until_full(samples, samples[-1][1] + room)
    assert found == pytest.approx(room / rate, rel=1e-3)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50), st.floats(0, 1e12))
def test_it_is_said_only_of_what_grows_and_never_of_the_past(used: list[float], hard: float) -> None:
    found = hours_until_full(list(enumerate(used)), hard)  # type: ignore[arg-type]
    assert found is None or found >= 0
    assert (found == 0) == (used[-1] >= hard)
    if all(each == used[0] for each in used) and used[-1] < hard:
        assert found is None


def test_of_nothing_and_of_little_nothing_is_said() -> None:
    assert hours_until_full([], 10) is None
    assert hours_until_full([(1, 1), (2, 2)], 10) is None
    assert hours_until_full([(hour, 9 - hour) for hour in range(8)], 10) is None
