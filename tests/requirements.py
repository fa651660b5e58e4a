"""The catalogue of promises in ``docs/requirements.md``: which ID is enforced where, and which test shows it.

The statements are written by hand. The two columns beside them follow the tree: a module that names an ID in its text
enforces it, a test that names it shows it. Where no module names an ID, the cell is written by hand.
``python -m tests.requirements`` writes the others anew.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
CATALOGUE = ROOT / "docs" / "requirements.md"
FLOORS = ("portal", "gateway", "access", "tenants", "store", "audit", "kube")
SHOWN = 3
"""Files named in a cell; who looks for the others searches for the ID."""

_ID = re.compile(r"\b(?:(?:TS|AN|AZ|AD|KC|GW)[1-9]\d?|P(?:[1-9]|1[0-2])|D[1-9]|[A-Z]{2,4}-\d\d)\b")
_FOREIGN = re.compile(r"\bCRC-32\b")
_ROW = re.compile(r"^\| (?P<id>[A-Z]+-?\d+) \| (?P<statement>.*?) \| (?P<enforced>.*?) \| (?P<shown>.*?) \|$")


def ids_in(text: str) -> Counter[str]:
    """The IDs that a text names, ranges such as ``TS10 to TS12`` included."""
    text = _FOREIGN.sub("", text)
    found = Counter(_ID.findall(text))
    for first, last in re.findall(r"\b([A-Z]{2}\d+) to ([A-Z]{2}\d+)\b", text):
        prefix = first[:2]
        if last.startswith(prefix):
            found.update(f"{prefix}{number}" for number in range(int(first[2:]) + 1, int(last[2:])))
    return found


def mentions() -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """By ID: how often each module, and each file of tests, names it."""
    enforced: dict[str, Counter[str]] = defaultdict(Counter)
    shown: dict[str, Counter[str]] = defaultdict(Counter)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name == "tests/requirements.py" or path.suffix not in {".py", ".yaml"} or not path.is_file():
            continue
        floor = name.partition("/")[0]
        into = enforced if floor in FLOORS else shown if floor in {"tests", "bench"} else None
        if into is not None and "recorded" not in path.parts:
            for identifier, count in ids_in(path.read_text(encoding="utf-8")).items():
                into[identifier][name] += count
    return enforced, shown


def written(text: str) -> str:
    """The catalogue's text with its two columns as the tree says."""
    enforced, shown = mentions()
    lines = []
    for line in text.splitlines():
        row = _ROW.match(line)
        if row is None:
            lines.append(line)
            continue
        identifier = row["id"]
        cells = (
            identifier,
            row["statement"],
            _cell(enforced[identifier]) or row["enforced"],
            _cell(shown[identifier]) or row["shown"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rows(text: str) -> list[re.Match[str]]:
    """The catalogue's rows."""
    return [row for row in map(_ROW.match, text.splitlines()) if row is not None]


def catalogued(text: str) -> list[str]:
    """The IDs that the catalogue explains, in its order."""
    return [row["id"] for row in rows(text)]


def _cell(files: Counter[str]) -> str:
    best = sorted(files, key=lambda name: (-files[name], name))[:SHOWN]
    return ", ".join(f"`{name}`" for name in best)


if __name__ == "__main__":
    CATALOGUE.write_text(written(CATALOGUE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{len(catalogued(CATALOGUE.read_text(encoding='utf-8')))} promises\n")
