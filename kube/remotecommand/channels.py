"""The channels of a command in a pod, whatever they are carried by, and what the two that are no bytes of it say (GW21)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
ERROR: Final = 3
RESIZE: Final = 4

STATUS_MAX: Final = 64 * 1024
"""Bytes of the error channel that are read: a ``Status`` is far shorter."""

SIDE_MAX: Final = 10_000
"""Columns or rows that are taken for a terminal's."""

_SIZE: Final = re.compile(rb"\{[^{}]{0,256}\}")
_SIZE_MAX: Final = 512

Piece = tuple[int, bytes]
"""A channel, and what came on it; empty where nothing is to be known but that there was something."""


class Unreadable(ValueError):
    """What passes is not what was agreed on, and nobody can say what it holds."""


class Channels(Protocol):
    """Follows the bytes of one connection into a pod, in both directions.

    Both yield a piece for every step that took time, so that whoever reads may let others have a turn. They raise
    ``Unreadable``, after which nothing more can be read.
    """

    def sent(self, data: bytes) -> Iterator[Piece]:
        """What the client has said of the size of its terminal. What it types is passed over unread."""
        ...

    def received(self, data: bytes) -> Iterator[Piece]:
        """What the cluster has sent: on ``ERROR`` how the command ended, on every other channel output."""
        ...


class TerminalSizes:
    """The sizes that come on ``RESIZE``: JSON objects, in whatever pieces."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Columns and rows of each size that is complete; what is none is passed over."""
        text = (self._begun + data)[-_SIZE_MAX:]
        end = 0
        for found in _SIZE.finditer(text):
            end = found.end()
            try:
                said: dict[str, Any] = json.loads(found[0])
            except ValueError:
                continue
            columns, rows = said.get("Width"), said.get("Height")
            if isinstance(columns, int) and isinstance(rows, int) and 0 < columns <= SIDE_MAX and 0 < rows <= SIDE_MAX:
                yield columns, rows
        self._begun = text[end:]


def exit_code_of(status: bytes) -> int | None:
    """How a command ended, by what came on ``ERROR``; ``None`` where that does not say."""
    try:
        said = json.loads(status)
        if said.get("status") == "Success":
            return 0
        causes = said["details"]["causes"] if said.get("reason") == "NonZeroExitCode" else ()
        (code,) = (int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return code if abs(code) < 2**31 else None
