"""A server's ``Table`` (meta.k8s.io) as rows of text for a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.display.text import visible

_CELL: Final = 300
_GOOD: Final = frozenset({"Running", "Active", "Bound", "Complete", "Completed", "Succeeded", "Ready", "True"})
_BAD: Final = ("Error", "BackOff", "Failed", "Evicted", "OOMKilled", "Unknown", "Lost", "Warning", "ErrImage")
_NEUTRAL: Final = frozenset({"", "Normal", "<none>", "Suspended"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: ``verdict`` is ``allow``, ``wait``, ``deny`` where the column is about a state."""

    column: str
    text: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Row:
    """One object by its name as the server writes it, and its cells without the name."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: what comes next is asked for by ``following``; ``remaining`` is how many, where it is known."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    following: str
    remaining: int | None


def read_table(document: object) -> Page | None:
    """The columns that ``kubectl get`` shows, in the order of the server; ``None`` for what is no table."""
    body = document if isinstance(document, dict) else {}
    definitions = body.get("columnDefinitions")
    if body.get("kind") != "Table" or not isinstance(definitions, list):
        return None
    columns = [column if isinstance(column, dict) else {} for column in definitions]
    naming = next((index for index, column in enumerate(columns) if column.get("format") == "name"), None)
    shown = [index for index, column in enumerate(columns) if not column.get("priority") and index != naming]
    titles = [str(column.get("name", "")) for column in columns]
    told_rows = body.get("rows")
    rows = []
    for row in told_rows if isinstance(told_rows, list) else ():
        cells = row.get("cells") if isinstance(row, dict) else None
        if not isinstance(cells, list):
            continue
        name = _name(row, cells, naming)
        rows.append(Row(name, tuple(_cell(titles[index], cells, index) for index in shown if titles[index] != "Name")))
    metadata = body.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    following, remaining = told.get("continue"), told.get("remainingItemCount")
    return Page(
        tuple(visible(titles[index], most=64) for index in shown if titles[index] != "Name"),
        tuple(rows),
        following if isinstance(following, str) else "",
        remaining if isinstance(remaining, int) and not isinstance(remaining, bool) else None,
    )


def state_verdict(text: str) -> str:
    """What a word for a state means, as far as it is known: ``allow``, ``wait``, ``deny``; empty where it says nothing."""
    if text in _NEUTRAL:
        return ""
    if text in _GOOD:
        return "allow"
    return "deny" if any(part in text for part in _BAD) else "wait"


def _name(row: Mapping[str, Any], cells: list[Any], naming: int | None) -> str:
    if naming is not None and naming < len(cells):
        return str(cells[naming])
    found = row.get("object")
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _cell(title: str, cells: list[Any], index: int) -> Cell:
    value = cells[index] if index < len(cells) else ""
    text = visible("" if value is None else str(value), most=_CELL)
    about_state = title in {"Status", "Type", "Phase"}
    known = state_verdict(text) if title != "Type" else ("deny" if text == "Warning" else "")
    return Cell(visible(title, most=64), text, known if about_state else "")
