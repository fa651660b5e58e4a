"""CSV that is opened in a spreadsheet shows what was stored, and computes nothing (GW13)."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.export import csv_line

COMPUTED = tuple("=+-@|%＝＋－＠")  # noqa: RUF001 - some spreadsheets read the wide ones as well
_TEXTS = st.text(st.sampled_from("a1 ;,\t\r\n\"'(=+-@|%＝＋－＠"), max_size=12)  # noqa: RUF001


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@given(cells=st.lists(_TEXTS, min_size=1, max_size=3))
def test_no_cell_is_a_formula_whatever_the_spreadsheet_takes_for_a_separator(separator: str, cells: list[str]) -> None:
    rows = csv.reader(io.StringIO(csv_line(cells), newline=""), delimiter=separator)
    for row in rows:
        for cell in row:
            assert not cell.lstrip(" ").startswith(COMPUTED), (cells, cell)


def test_numbers_and_plain_words_stay_as_they_are() -> None:
    assert csv_line(["acme", -5, 1.5, None, "a-b", "x=1"]) == "acme,-5,1.5,,a-b,x=1\r\n"
    assert csv_line(["=1+1"]) == "'=1+1\r\n"
