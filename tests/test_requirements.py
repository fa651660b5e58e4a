"""The catalogue of promises says what the tree says."""

from __future__ import annotations

from tests.requirements import CATALOGUE, ROOT, catalogued, mentions, rows


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
