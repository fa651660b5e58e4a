"""Limits on what people do: the same in Redis and without it, never open (GW6, AD6)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants import actionlimits
from tenants.actionlimits import Bucket

YEARS = 10**9
"""Seconds from one token to the next: nothing comes back while a test runs, however slow the machine is."""


@pytest.fixture
def without_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(actionlimits, "_script", None)
    monkeypatch.setattr(actionlimits, "_away_until", 0.0)


def calls(bucket: Bucket, key: object, number: int) -> list[bool]:
    return [actionlimits.wait_for(bucket, key) == 0 for _ in range(number)]


def test_what_is_too_often_is_refused_with_the_time_to_wait() -> None:
    """AD6."""
    bucket, key = Bucket("test", burst=3, interval=YEARS), uuid.uuid4()
    assert calls(bucket, key, 4) == [True, True, True, False]
    assert YEARS / 2 < actionlimits.wait_for(bucket, key) <= YEARS


@pytest.mark.usefixtures("without_redis")
def test_what_is_too_often_is_refused_when_redis_is_away() -> None:
    """AD6, API-29: never open."""
    bucket, key = Bucket("test", burst=3, interval=YEARS), uuid.uuid4()
    assert calls(bucket, key, 4) == [True, True, True, False]
    assert YEARS / 2 < actionlimits.wait_for(bucket, key) <= YEARS


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(burst=st.integers(1, 5), moves=st.lists(st.sampled_from([1, -1]), max_size=20))
def test_redis_counts_as_this_process_does(burst: int, moves: list[int]) -> None:
    """GW6: the script in Redis and ``TokenBucket`` are one arithmetic."""
    bucket, key = Bucket("test", burst=burst, interval=YEARS), uuid.uuid4()
    local = actionlimits._Local()
    for taken in moves:
        answers = actionlimits._move(bucket, key, taken), local.take(str(key), bucket, 0.0, taken)
        assert (answers[0][0] > 0, answers[0][1]) == (answers[1][0] > 0, answers[1][1])


def test_the_memory_without_redis_is_bounded_and_never_open() -> None:
    """API-29."""
    local = actionlimits._Local()
    bucket = Bucket("test", burst=2, interval=10)
    assert [local.take("victim", bucket, 0.0) for _ in range(2)] == [(0.0, 1), (0.0, 0)]
    refused = [local.take(f"k{number}", bucket, 1.0)[0] for number in range(actionlimits._LOCAL_KEYS + 10)]
    assert len(local._levels) <= actionlimits._LOCAL_KEYS
    assert refused[-1] > 0, "a new key is refused while the used ones are remembered"
    assert local.take("victim", bucket, 1.0)[0] > 0
    assert local.take("new", bucket, 100.0)[0] == 0, "what is full again is forgotten"
