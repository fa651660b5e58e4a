"""How commands fail: one line for people, a status for scripts."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses; 2 is Typer's own, for a command line that cannot be read."""

    FAILED = 1
    USAGE = 2
    NOT_SIGNED_IN = 3
    FORBIDDEN = 4
    NOT_FOUND = 5
    CONFLICT = 6
    INVALID = 7
    UNAVAILABLE = 8


class Failure(Exception):
    """What ends a command; ``text`` says what to change, ``reason`` is the portal's word for it."""

    def __init__(self, text: str, status: Status = Status.FAILED, *, reason: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


def printable(value: object, limit: int = 2000) -> str:
    """What others wrote, on one line and without what a terminal would obey."""
    text = " ".join(str(value)[:limit].split())
    return "".join(letter if letter.isprintable() else "?" for letter in text)
