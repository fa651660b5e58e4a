"""Loops over two variables are written out wherever they stand, in time by the length of the text (TS10, DOS-03)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.cel.macros import expand_macros
from tests.effort import effort

Pair = tuple[str, str]
"""An expression, and it with its macros written out."""

PLAIN: Final = (
    *("v", "self.l", "[1, {'a': v}]", "self.l.all(i, i > 0)", "self.l.map(i, v, i)", "self.l.all(1, v, v)"),
    *("self.l.all(v, v, v)", "self.l.sortBy(v)", "self.l.exists(i, v, 1, v)", "self.l.transformMap(i, v)"),
    *("'.all(i, v, 1)'", '"\'.all(i, v, 1)"', r"'\'.all(i, v, 1)'", r"r'\\d{1,}('", 'b"sortBy(a, b"', "'\\\\'"),
    *('""".validate(")"""', "'''\n'.all(i, v, \\'''1)'''", "// .all(i, v, 1) '\nv", "xformat.named('a')", "''"),
)
LOOPS: Final[tuple[tuple[str, str], ...]] = (
    ("{0}.all(i, v, {1})", "{0}.pairs__().all(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, ({1}))))"),
    (
        "{0} . existsOne ( i,v ,\n{1} )",
        "{0} .pairs__().exists_one(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, ({1}))))",
    ),
    (
        "{0}.transformList(i, v, {1}, [{2}])",
        "{0}.pairs__().map(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, ({1}))), "
        "cel.bind(i, pair__.key, cel.bind(v, pair__.value, ([{2}]))))",
    ),
    (
        "{0}.transformMap(i, v, {1})",
        "{0}.pairs__().map(pair__, {{'key': pair__.key, 'value': "
        "cel.bind(i, pair__.key, cel.bind(v, pair__.value, ({1})))}}).mapped__()",
    ),
    (
        "{0}.transformMapEntry(i, v, {{{1}: {2}}})",
        "{0}.pairs__().map(pair__, cel.bind(i, pair__.key, cel.bind(v, pair__.value, ({{{1}: {2}}})))).merged__()",
    ),
    ("{0}.sortBy(v, {1})", "{0}.map(v, {{'key': ({1}), 'value': v}}).sorted__()"),
    ("{0}.validate({1})", "{0}.validated__({1})[?0]"),
    ("format.named({0})", "format.named__({0})[?0]"),
    ("{0}.exists(v, {1})", "{0}.exists(v, {1})"),
    ("({0}) + f({1}, [{2}])", "({0}) + f({1}, [{2}])"),
)


def _in_one_another(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def filled(loop: Pair, parts: tuple[Pair, Pair, Pair]) -> Pair:
        return loop[0].format(*(part[0] for part in parts)), loop[1].format(*(part[1] for part in parts))

    return st.builds(filled, st.sampled_from(LOOPS), st.tuples(inner, inner, inner))


EXPRESSIONS: Final = st.recursive(st.sampled_from(PLAIN).map(lambda text: (text, text)), _in_one_another, max_leaves=8)


@given(EXPRESSIONS)
def test_a_macro_is_written_out_around_what_its_arguments_are_written_out_as(expression: Pair) -> None:
    text, written = expression
    assert expand_macros(text) == written


@given(st.lists(st.sampled_from(PLAIN), max_size=6).map(" + ".join), st.text(")]}([{,'\"\\\nrb/ ", max_size=12))
def test_a_text_without_macros_is_left_as_it_is(text: str, rest: str) -> None:
    assert expand_macros(text) == text
    assert expand_macros(text + rest) == text + rest


@given(EXPRESSIONS)
def test_behind_what_does_not_end_macros_are_written_out_all_the_same(expression: Pair) -> None:
    text, written = expression
    for before in ("x.all(i, v, ", "x.all(i, v, [", "'\n", r"\'\'" + "\n", "] ) } "):
        assert expand_macros(before + text) == before + written


def test_macros_are_written_out_nine_deep() -> None:
    loop = "self.l.sortBy(v, "
    for depth in (9, 10, 11):
        assert expand_macros(loop * depth + "1" + ")" * depth).count("sorted__") == 9


SHAPES: Final[dict[str, Callable[[int], str]]] = {
    "calls of one argument in one another": lambda count: "x.all(" * count + "1" + ")" * count,
    "loops over one variable in one another": lambda count: "self.l.all(a, " * count + "1" + ")" * count,
    "loops over two variables in one another": lambda count: "self.l.all(a, b, " * count + "1" + ")" * count,
    "loops one behind the other": lambda count: "self.l.all(a, b, 1) && " * count + "true",
    "calls that do not end": lambda count: ".all(" * count,
    "quotes that nothing ends": lambda count: "x.all(" + r"\'" * count,
    "three quotes that nothing ends": lambda count: "x.all(" + r"\'''\"" * count,
    "calls with another kind of bracket": lambda count: ".all(" * count + "]" * count + "," * count + ")" * count,
    "many arguments": lambda count: ".validate(" * count + "]" * count + "," * count + ")" * count,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_takes_time_by_its_length(shape: str) -> None:
    """Three times twice as long, it takes no more than two and a half times as much each time."""
    short, long = SHAPES[shape](1_000), SHAPES[shape](8_000)
    efforts = [(effort(lambda: expand_macros(short)), effort(lambda: expand_macros(long))) for _ in range(5)]
    assert min(longer for _, longer in efforts) < 2.5**3 * min(shorter for shorter, _ in efforts)
