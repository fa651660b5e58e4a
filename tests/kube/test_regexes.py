"""``find`` and ``findAll`` find what Python's engine finds, and never take long (TS10)."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.cel import regexes
from tests.effort import effort

_ATOMS = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", r"\d", r"\w", "(a|b)", "(ab|a)", "(?:a*)", "^", "$", r"\b", "1"]
)
_TIMES = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Patterns that mean the same to Go and to Python."""
    parts = draw(st.lists(st.builds(str.__add__, _ATOMS, _TIMES), min_size=1, max_size=4))
    return "".join(parts) + draw(st.sampled_from(["", "", "|b", "|ab"]))


@given(patterns(), st.text("ab1 ", max_size=8))
def test_the_first_match_is_the_one_that_backtracking_finds(pattern: str, text: str) -> None:
    try:
        found = re.compile(pattern, re.ASCII).search(text)
    except re.error:
        return
    regexes.reset_budget()
    assert regexes.find(text, pattern) == (found[0] if found else "")


@pytest.mark.parametrize("pattern", [r"\pL", "[[:alpha:]]", r"\Qa\E", "(?U)a*", r"a\z", "(?=a)", "a" * 3000, "("])
def test_a_pattern_that_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        regexes.find("a", pattern)


def test_searching_takes_a_bounded_time() -> None:
    """P9."""
    regexes.reset_budget()

    def ask() -> None:
        with pytest.raises(ValueError, match="too long"):
            regexes.find_all("a" * 1_000_000, "(a+a+)+b")

    assert effort(ask) < 500


@pytest.mark.parametrize(
    "pattern", ["(?:){1000000000}", "((?:){1000}){1000}", "(((?:){0,1000}){1000}){1000}", "a{1001}", "(a{1000}){1000}"]
)
def test_repeats_without_end_are_refused_or_pass_at_once(pattern: str) -> None:
    """DOS-09: not even what matches nothing may be repeated for ever."""

    def ask() -> None:
        with contextlib.suppress(ValueError):
            regexes.find("aaa", pattern)

    assert effort(ask) < 200
