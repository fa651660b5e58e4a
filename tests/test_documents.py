"""The documents name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.requirements import FLOORS, ROOT

DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_NAMED = re.compile(
    rf"`((?:{'|'.join((*FLOORS, 'tests', 'docs', 'bench', 'templates', 'static'))})/(?:[\w./-]*(?:\.\w+|/))?)`"
)
_LINKED = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_and_links_only_what_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    missing = [name for name in _NAMED.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in _LINKED.findall(text) if not (document.parent / link).exists()]
    assert not missing
