"""Texts that others have written, in a form in which nobody can hide anything: for records and logs (GW13)."""

from __future__ import annotations

from functools import partial


def visible(text: str, keep: str = "") -> str:
    r"""``text`` with whatever has no form of its own written out as ``\uXXXX``, except the characters of ``keep``.

    Those are ends of lines, what turns the direction of writing, what takes no room, what a terminal obeys, and every
    space but the usual one. They are not left out: two names that differ must not become one.
    """
    if text.isprintable():
        return text
    return "".join(map(partial(_shown, keep), text))


def _shown(keep: str, letter: str) -> str:
    if letter.isprintable() or letter in keep:
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"
