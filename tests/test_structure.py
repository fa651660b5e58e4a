"""Rooms that can be overlooked: how long a module, and how full a folder, may be."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.requirements import FLOORS, ROOT

LINES_MAX = 500
FILES_MAX = 20
FULL = {"migrations", "kube/validation"}
"""Folders that grow by their nature: one file a step, one file a group of kinds."""

EVERYWHERE = {"migrations", "management"}
"""What each of Django's applications may have beside its rooms."""

MODULES = sorted(path for folder in (*FLOORS, "tests", "bench", "cli") for path in (ROOT / folder).rglob("*.py"))


def test_no_module_is_too_long_to_be_read_in_one_go() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {str(path): length for path, length in lengths.items() if length > LINES_MAX} == {}


def test_no_folder_is_too_full_to_be_seen_at_once() -> None:
    folders = (*FLOORS, "bench", "cli", "deploy", "docs", "static", "templates")
    files = Counter(
        path.parent.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    full = {str(folder): count for folder, count in files.items() if count > FILES_MAX}
    assert {folder for folder in full if not folder.endswith(tuple(FULL))} == set()


DRAWN = re.search(r"```\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("floor", FLOORS)
def test_every_room_is_drawn_on_its_floor(floor: str) -> None:
    """And nothing is drawn there that is no room."""
    assert DRAWN is not None
    (drawing,) = re.findall(rf"^{floor}/ .*\n((?:  .*\n)*)", DRAWN[1], re.MULTILINE)
    drawn = set(re.findall(r"(?<![\w.])(\w+)/(?=\s)", drawing))
    rooms = {path.parent.name for path in (ROOT / floor).glob("*/__init__.py")}
    assert drawn == rooms - EVERYWHERE
