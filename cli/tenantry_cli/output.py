"""What commands print: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from tenantry_cli.failures import printable


class Format(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("--output", "-o", help="The form of the answer.", show_default=True)]


def show(value: Any, columns: Sequence[str], form: Format) -> None:
    """Print an object or a list of them; ``columns`` are those of the table, dots lead into objects."""
    if form is Format.JSON:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=True))
    elif form is Format.YAML:
        typer.echo(yaml.safe_dump(value, sort_keys=False), nl=False)
    else:
        rows = value if isinstance(value, list) else [value]
        _table([column.rpartition(".")[2] for column in columns], [[_cell(row, c) for c in columns] for row in rows])


def show_pairs(value: Mapping[str, Any], form: Format) -> None:
    """Print one object, in the table with a line for each of its members."""
    if form is Format.TABLE:
        show([{"field": key, "value": inner} for key, inner in value.items()], ["field", "value"], form)
    else:
        show(value, [], form)


def say(text: str) -> None:
    """A word for whoever sits at the terminal."""
    typer.echo(printable(text), err=True)


def _cell(row: Any, column: str) -> str:
    for part in column.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    if row is None:
        return ""
    if isinstance(row, dict):
        return printable(", ".join(f"{key}={value}" for key, value in row.items()))
    if isinstance(row, list):
        return printable(", ".join(str(item) for item in row))
    return printable(str(row).lower() if isinstance(row, bool) else row)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        say("There is nothing here.")
        return
    lines = [[name.replace("_", " ").upper() for name in head], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
