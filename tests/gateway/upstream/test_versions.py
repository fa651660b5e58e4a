"""Numbers for the versions of several places: they grow, are remembered while there is room, and belong to one list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream import versions
from gateway.upstream.versions import EXPIRY_SECONDS, LOWEST, MergedVersions, given_at, is_merged

PODS, MAPS = ("root:acme", "", "pods"), ("root:acme", "", "configmaps")
PARTS = st.dictionaries(st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["1", "2", "3"]), min_size=1)


@given(st.lists(st.tuples(st.sampled_from([PODS, MAPS]), PARTS, st.integers(-5, 5)), min_size=1))
def test_numbers_grow_whatever_the_clock_does_and_stand_for_what_they_were_given_for(
    steps: list[tuple[versions.Scope, dict[str, str], int]],
) -> None:
    now = 1_800_000_000.0
    merged = MergedVersions(lambda: now)
    given_: dict[tuple[versions.Scope, str], dict[str, str]] = {}
    last: dict[versions.Scope, int] = {}
    for scope, parts, moved in steps:
        now += moved
        number = merged.number(scope, parts)
        assert is_merged(number)
        known = given_.setdefault((scope, number), parts)
        assert known == parts
        assert int(number) >= last.get(scope, LOWEST)
        last[scope] = int(number)
    for (scope, number), parts in given_.items():
        assert merged.parts(scope, number) == parts
        assert merged.parts(MAPS if scope == PODS else PODS, number) is None


def test_what_is_too_much_is_forgotten_the_oldest_first() -> None:
    merged = MergedVersions()
    parts = {str(place): "1" for place in range(1000)}
    numbers = [merged.number(PODS, {**parts, "0": str(turn)}) for turn in range(200)]
    assert merged.parts(PODS, numbers[0]) is None
    assert merged.parts(PODS, numbers[-1]) is not None


def test_nothing_of_the_store_or_a_cluster_is_taken_for_one() -> None:
    for text in ("", "0", "12", str(LOWEST), "-5", "1e20", "9" * 30, "٣" * 16):
        assert not is_merged(text)
        assert MergedVersions().parts(PODS, text) is None


def test_whoever_has_the_most_forgets_first() -> None:
    """One tenant's clusters may send as many events as they like: the informers of another go on from where they were."""
    merged = MergedVersions()
    quiet = merged.number(("root:globex", "", "pods"), {"": "1", "a": "1"})
    parts = {str(place): "1" for place in range(1000)}
    for turn in range(300):
        merged.number(PODS, {**parts, "0": str(turn)})
    assert merged.parts(("root:globex", "", "pods"), quiet) == {"": "1", "a": "1"}


def test_a_place_that_calls_everything_expired_is_believed_once() -> None:
    """D8: by all who have theirs from before, and not by those who have got others since, until a while has passed."""
    now = 1_800_000_000.0
    merged = MergedVersions(lambda: now)
    older, old = given_at(merged.number(PODS, {"a": "1"})), given_at(merged.number(PODS, {"a": "2"}))
    now += 5
    assert merged.expire(PODS, "a", old)
    assert merged.expire(PODS, "a", older)
    now += 1
    new = given_at(merged.number(PODS, {"a": "2"}))
    assert not merged.expire(PODS, "a", new)
    assert not merged.expire(PODS, "a", new + 1)
    assert merged.expire(PODS, "a", old)
    assert merged.expire(PODS, "b", new)
    assert merged.expire(MAPS, "a", new)
    now += EXPIRY_SECONDS
    assert merged.expire(PODS, "a", new)
    # What is long past is not kept.
    assert len(merged._expired) == 1
