"""The parts that processes have in a rate (AD6), by their properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from kube.requests.rateshares import RESERVE, SILENT_SECONDS, RateShares, part_of

WANTED = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def parts(wanted: list[float]) -> list[float]:
    return [part_of(each, wanted[:number] + wanted[number + 1 :], len(wanted)) for number, each in enumerate(wanted)]


@given(WANTED)
def test_the_parts_are_one_whole_and_everybody_has_one(wanted: list[float]) -> None:
    """AD6: never more than is promised, and whoever comes to any process next is served."""
    found = parts(wanted)
    assert sum(found) == approx(1)
    assert min(found) >= RESERVE / len(wanted) * (1 - 1e-9)


@given(WANTED)
def test_whoever_wants_no_more_than_an_equal_part_has_it(wanted: list[float]) -> None:
    """AD6: a flood at one process takes nothing from what little is asked at another."""
    for each, part in zip(wanted, parts(wanted), strict=True):
        assert part >= min(each, 1 / len(wanted)) * (1 - 1e-9)


@given(WANTED)
def test_what_all_want_together_is_served_wherever_it_is_wanted(wanted: list[float]) -> None:
    """AD6: up to the reserve."""
    whole = sum(wanted)
    if whole:
        fitting = [each / whole * (1 - RESERVE) for each in wanted]
        for each, part in zip(fitting, parts(fitting), strict=True):
            assert part >= each * (1 - 1e-9)


@given(st.integers(1, 50))
def test_one_that_alone_wants_more_has_all_but_the_reserve(processes: int) -> None:
    """AD6."""
    found = parts([1.0] + [0.0] * (processes - 1))
    assert found[0] == approx(1 - RESERVE + RESERVE / processes)
    assert parts([1.0] * processes) == approx([1 / processes] * processes)


@given(WANTED, st.lists(st.floats(0, 1), max_size=3))
def test_all_processes_find_the_same_parts_in_what_they_have_heard(wanted: list[float], later: list[float]) -> None:
    """AD6: what is not worth telling included."""
    processes = [RateShares(str(number), len(wanted)) for number in range(len(wanted))]
    for said in (wanted, later):
        for each in processes:
            for number, part in enumerate(said[: len(wanted)]):
                each.hear(str(number), each.worth_telling({"rate": part}), 100.0)
    assert sum(each.part("rate") for each in processes) == approx(1)


def test_as_many_as_began_share_until_anybody_is_heard() -> None:
    """AD6."""
    shares = RateShares("own", 4)
    assert (shares.living, shares.part("rate")) == (4, 0.25)
    assert shares.hear("own", {}, 100.0) is None
    assert shares.hear("other", {}, 100.0) is None
    assert (shares.living, shares.part("rate")) == (2, 0.5)


def test_whoever_leaves_or_falls_silent_leaves_its_part_to_the_others() -> None:
    """AD6."""
    shares = RateShares("own", 1)
    for process in ("own", "second", "third"):
        shares.hear(process, {"rate": 1.0}, 100.0)
    assert shares.part("rate") == approx(1 / 3)
    assert shares.leave("third") and not shares.leave("third")
    shares.hear("own", {"rate": 1.0}, 100.0 + SILENT_SECONDS)
    assert not shares.bury(100.0 + SILENT_SECONDS)
    assert shares.part("rate") == approx(1 / 2)
    assert shares.bury(100.5 + SILENT_SECONDS)
    assert (shares.living, shares.part("rate")) == (1, 1.0)


def test_nobody_is_taken_for_dead_while_nothing_can_be_heard() -> None:
    """AD6: the last known parts stand while the database is away, and long enough after it for all to speak again."""
    shares = RateShares("own", 1)
    for process in ("own", "other"):
        shares.hear(process, {"rate": 1.0}, 100.0)
    for now in range(102, 1000, 2):
        shares.excuse(float(now))
        assert shares.part("rate") == approx(1 / 2)
    assert not shares.bury(1000.0)
    shares.hear("own", {}, 1009.0)
    assert shares.bury(1009.0) and shares.living == 1


def test_only_what_may_have_changed_is_told() -> None:
    shares = RateShares("own", 1)
    shares.hear("own", {"a": 0.5, "b": 0.5}, 100.0)
    assert sorted(shares.hear("own", {"a": 0.5, "b": 1.0}, 102.0) or []) == ["b"]
    assert sorted(shares.hear("own", {"c": 1.0}, 102.0, further=True) or []) == ["c"]
    assert sorted(shares.hear("own", {"b": 1.0}, 104.0) or []) == ["a", "c"]
    assert shares.part("a") == 1.0
