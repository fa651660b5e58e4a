"""What a container has said, as lines that can be read and searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kube.display.text import visible

LINE_MAX: Final = 4000
"""What is shown of one line."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line in pieces: every second one is what was searched for."""

    pieces: tuple[str, ...]


def read_lines(raw: bytes, *, search: str = "") -> tuple[list[LogLine], int]:
    """The lines that contain ``search``, whatever the case, with the places marked; and how many there are in all."""
    lines = raw.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    shown = (visible(line.rstrip("\r").rpartition("\r")[2], most=LINE_MAX) for line in lines)
    return [LogLine(tuple(_pieces(line, search))) for line in shown if search.lower() in line.lower()], len(lines)


def _pieces(line: str, search: str) -> Iterator[str]:
    lowered, wanted, start = line.lower(), search.lower(), 0
    if not wanted or len(lowered) != len(line):
        yield line
        return
    while (at := lowered.find(wanted, start)) >= 0:
        yield line[start:at]
        yield line[at : at + len(wanted)]
        start = at + len(wanted)
    yield line[start:]
