"""Token buckets, by their properties (AD6)."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kube.requests.tokenbuckets import Level, TokenBucket

BUCKETS = st.builds(TokenBucket, st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0]), st.integers(1, 20))
PAUSES = st.lists(st.integers(0, 64).map(lambda number: number / 8), max_size=60)


@given(BUCKETS, PAUSES)
def test_nobody_gets_more_than_the_burst_and_what_came_since(bucket: TokenBucket, pauses: list[float]) -> None:
    """AD6. Numbers are powers of two, so that sums are exact."""
    level: Level | None = None
    now, served = 0.0, 0
    for pause in pauses:
        now += pause
        tokens = bucket.tokens(level, now)
        if bucket.wait(tokens) == 0:
            level = bucket.take(tokens, 1, now)
            served += 1
        assert served <= bucket.burst + Fraction(bucket.qps) * Fraction(now)


@given(BUCKETS, st.integers(0, 40), st.integers(1, 20))
def test_after_the_wait_it_is_there_and_not_before(bucket: TokenBucket, taken: int, wanted: int) -> None:
    """AD6: ``Retry-After`` is no guess."""
    level = bucket.take(bucket.burst, taken, 0.0)
    wanted = min(wanted, bucket.burst)
    wait = bucket.wait(bucket.tokens(level, 0.0), wanted)
    assert bucket.wait(bucket.tokens(level, wait), wanted) == 0
    if wait:
        assert bucket.wait(bucket.tokens(level, wait / 2), wanted) > 0


@given(BUCKETS, st.integers(-40, 40), st.integers(0, 100))
def test_a_level_is_bounded_and_full_when_it_says_so(bucket: TokenBucket, taken: int, later: int) -> None:
    level = bucket.take(bucket.burst, taken, 0.0)
    assert -bucket.burst <= level.tokens <= bucket.burst
    assert bucket.tokens(level, bucket.full_at(level)) == bucket.burst
    assert level.tokens <= bucket.tokens(level, float(later)) <= bucket.burst
    assert bucket.tokens(level, -1.0) == level.tokens
