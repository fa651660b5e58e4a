"""Patterns that tenants write: what they cost is known before they run, and many of them fill no memory (DOS-03)."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from kube.customresources.schemas import structural_schema
from kube.customresources.validationcosts import LIGHT, MOST, judging_cost
from kube.kinds.patterns import is_pattern, matches, work_per_character
from tests.kube.kinds import definitions

COSTLY = ["(a|b)*a(a|b){1000}c", "[a-z]{9000}", "(a|b)*a(a|b){100}c", "(.*a){30}z"]
USUAL = [
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    r"^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])$",
    "^[A-Za-z0-9+/]*={0,2}$",
    r"^\d{4}-\d\d-\d\d$",
]
FORMS: list[Any] = [
    lambda pattern: {"type": "string", "pattern": pattern},
    lambda pattern: {"type": "string", "anyOf": [{"pattern": "^x$"}, {"pattern": pattern}]},
    lambda pattern: {"type": "string", "not": {"allOf": [{"pattern": pattern}]}},
    lambda pattern: {"type": "array", "items": {"type": "string", "pattern": pattern}},
    lambda pattern: {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "oneOf": [{"properties": {"a": {"pattern": pattern}}}],
    },
]


def cost(form: int, pattern: str, text: str) -> int:
    value: Any = {3: [text], 4: {"a": text}}.get(form, text)
    root = {"type": "object", "properties": {"spec": FORMS[form](pattern)}}
    return judging_cost(structural_schema(root, definitions()), {"spec": value})


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("pattern", COSTLY)
def test_a_text_that_takes_long_to_be_searched_is_not_judged_on_the_loop_nor_at_all(pattern: str, form: int) -> None:
    assert is_pattern(pattern)
    assert cost(form, pattern, "ab" * 10_000) > LIGHT
    assert cost(form, pattern, "ab" * 500_000) > MOST
    assert cost(form, pattern, "") < LIGHT


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_cost_what_the_text_does(pattern: str, form: int) -> None:
    assert work_per_character(pattern) == 0
    assert cost(form, pattern, "a" * 20_000) < LIGHT
    assert cost(form, pattern, "a" * 1_000_000) < MOST


def test_small_and_large_patterns_match_the_same() -> None:
    for pattern, text, found in (
        ("^a{3}$", "aaa", True),
        ("^a{3}$", "aaaa", False),
        ("^[a-z]{3000}$", "b" * 3000, True),
        ("^[a-z]{3000}$", "b" * 2999, False),
        ("(a{1000}){1000}", "a", False),
        ("(", "(", False),
    ):
        assert matches(pattern, text) is found, pattern


MANY = """
from kube.kinds.patterns import matches
from tests.kube.kinds import definitions
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
matches("a", "a")
before = resident()
for number in range(400):
    assert not matches(f"[a-z]{{9000}}{number}", "ab" * 50)
print(resident() - before)
"""


def test_many_large_patterns_fill_no_memory() -> None:
    """Each takes half a megabyte or more."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) < 100 << 20


def test_what_is_too_long_to_be_a_pattern_leaves_nothing_behind() -> None:
    """A tenant sends definitions of three megabytes that are refused, one after the other."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            pattern = f"{number}" + "a" * 1_000_000
            assert not is_pattern(pattern)
            assert not matches(pattern, pattern)
            assert work_per_character(pattern) == 0
        del pattern
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 5_000_000, "a quarter of what was asked: other threads of the tests allocate too"
