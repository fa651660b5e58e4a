"""The catalogue of promises says what the tree says."""

from __future__ import annotations

import ast
import re

from tests.requirements import CATALOGUE, FLOORS, ROOT, catalogued, mentions, rows

NO_IDS = {"CRC-32", "RE2", "UTF-8"}
"""Words of the field that look like an ID."""


def test_every_id_that_code_and_tests_name_is_explained_once() -> None:
    explained = catalogued(CATALOGUE.read_text(encoding="utf-8"))
    enforced, shown = mentions()
    assert len(explained) == len(set(explained))
    assert set(explained) == set(enforced) | set(shown), "python -m tests.requirements writes the columns, not the rows"


def test_every_promise_is_enforced_and_shown_by_files_that_are_there() -> None:
    for row in rows(CATALOGUE.read_text(encoding="utf-8")):
        for column in ("enforced", "shown"):
            files = row[column].replace("`", "").split(", ")
            assert files != ["-"], f"{row['id']}: nothing stands in the column {column}"
            for name in files:
                assert (ROOT / name).exists(), f"{row['id']}: there is no {name}"


def test_a_test_that_is_named_names_the_promise() -> None:
    _, shown = mentions()
    for row in rows(CATALOGUE.read_text(encoding="utf-8")):
        for name in row["shown"].replace("`", "").split(", "):
            assert name in shown[row["id"]], f"{name} does not name {row['id']}: python -m tests.requirements"


def test_what_looks_like_an_id_in_a_docstring_is_one() -> None:
    """No reference leads a reader to a document that is not here."""
    known, unknown = set(catalogued(CATALOGUE.read_text(encoding="utf-8"))) | NO_IDS, set[str]()
    for folder in (*FLOORS, "tests", "bench", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    found = re.findall(r"\b[A-Z]{1,4}-?\d{1,2}\b", ast.get_docstring(node) or "")
                    unknown |= {f"{path.relative_to(ROOT)}: {name}" for name in found if name not in known}
    assert not unknown
