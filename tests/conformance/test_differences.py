"""The document and the list that the comparison reads name the same differences (TS15)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conformance.recording import FOLDER
from tests.conformance.test_equality import ALLOWED, OPEN
from tests.requirements import ROOT

SCRIPT = "the script"
_TABLE = (ROOT / "docs" / "kubernetes-differences.md").read_text().partition("| difference |")[2].partition("\n## ")[0]
ROWS = {
    difference.strip(): shown.strip()
    for difference, _, shown in (re.split(r"(?<!\\) \| ", line.strip("| ")) for line in _TABLE.splitlines()[2:] if line)
}
"""How the document says each difference, and what shows it."""


def test_nothing_is_open() -> None:
    assert not OPEN


@pytest.mark.parametrize("entry", ALLOWED, ids=lambda entry: entry["row"][:40] + entry.get("request", ""))
def test_every_difference_of_the_list_is_told_of(entry: dict[str, str]) -> None:
    told = [row for row in ROWS if row.startswith(entry["row"])]
    assert len(told) == 1
    assert SCRIPT in ROWS[told[0]]


def test_every_difference_that_is_told_of_is_shown() -> None:
    listed = {entry["row"] for entry in ALLOWED}
    for row, shown in ROWS.items():
        assert (SCRIPT in shown) == any(row.startswith(each) for each in listed), row
        modules = re.findall(r"`([^`]+)`", shown)
        assert SCRIPT in shown or modules, row
        assert all((ROOT / module).is_file() for module in modules), row


def test_every_difference_is_about_what_is_asked() -> None:
    """A request that nobody sends any longer, or that has another name now, leaves no entry behind."""
    asked = [f"{file.stem} {request}" for file in sorted(Path(FOLDER).glob("*.json")) for request in _requests(file)]
    for entry in ALLOWED:
        assert any(re.search(entry.get("request", ""), request) for request in asked), entry


def _requests(file: Path) -> list[str]:
    return [str(json.loads(line).get("request", "")) for line in file.read_text().splitlines()]
