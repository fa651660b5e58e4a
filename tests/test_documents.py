"""The documents name what is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from django.urls import resolve

from tests.requirements import FLOORS, ROOT

DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_NAMED = re.compile(
    rf"`((?:{'|'.join((*FLOORS, 'cli', 'tests', 'docs', 'bench', 'templates', 'static'))})/(?:[\w./-]*(?:\.\w+|/))?)`"
)
_LINKED = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_and_links_only_what_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    missing = [name for name in _NAMED.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in _LINKED.findall(text) if not (document.parent / link).exists()]
    assert not missing


_BESIDE = re.compile(r"`([\w./-]+\.(?:py|js))`")
FILES = [
    "/" + str(path.relative_to(ROOT))
    for folder in (*FLOORS, "cli", "login", "tests", "bench", "static")
    for path in (ROOT / folder).rglob("*")
] + ["/manage.py"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_that_is_named_without_its_folder_is_somewhere(document: Path) -> None:
    named = _BESIDE.findall(document.read_text(encoding="utf-8"))
    assert [name for name in named if not any(path.endswith("/" + name) for path in FILES)] == []


TEXTS = sorted(
    path
    for folder in (*FLOORS, "tests", "bench", "templates", "docs")
    for ending in ("*.py", "*.yaml", "*.html", "*.md")
    for path in (ROOT / folder).rglob(ending)
    if "recorded" not in path.parts
)
_DOCUMENT = re.compile(r"(?<![/\w.-])[\w-]+\.md\b")


def test_code_refers_to_documents_of_this_repository_alone() -> None:
    """A reader must be able to look up whatever is named."""
    names = {path.name for path in DOCUMENTS}
    named = {path: set(_DOCUMENT.findall(path.read_text(encoding="utf-8"))) for path in TEXTS}
    assert {str(path): missing for path, found in named.items() if (missing := found - names)} == {}


FEATURES = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")


def test_the_features_are_counted_as_they_stand_there() -> None:
    """All that was found in the products it was compared with, and what is our own beside it, each with a word about it."""
    rows = re.findall(r"^\| ([^|]+) \| (there|in part|not) \| ([^|]*) \|$", FEATURES, re.MULTILINE)
    said = re.search(r"\*\*There: (\d+)\*\*, in\s+part: (\d+), not: (\d+)\.", FEATURES)
    assert said is not None
    counted = Counter(state for _, state, _ in rows)
    assert tuple(map(int, said.groups())) == (counted["there"], counted["in part"], counted["not"])
    own = [name for name, _, _ in rows if name.endswith(r"\*")]
    assert f"and {len(own)} that none of these was compared by" in FEATURES
    assert sum(counted.values()) == len({name for name, _, _ in rows}) == 103 + len(own)
    assert [name for name, _, words in rows if not words.strip()] == []


@pytest.mark.parametrize("page", sorted(set(re.findall(r"`(/[a-z][\w/<>-]*)`", FEATURES))))
def test_a_page_that_the_features_name_is_there(page: str) -> None:
    assert resolve(page.replace("<name>", "acme").replace("<id>", "5f0c2c8e-6d5c-4b7c-9d2a-1f6f0d3b7a10"))
