"""Texts in quotation marks as Go prints them with ``%q``, which is how Kubernetes shows names and values, and in queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}


def quoted(text: str) -> str:
    """A text in double quotation marks; what has no form of its own is written out."""
    return '"' + "".join('\\"' if letter == '"' else escaped(letter) for letter in text) + '"'


def escaped(letter: str) -> str:
    """One character inside of quotation marks, but for the marks themselves."""
    if letter in _NAMED:
        return _NAMED[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def unescaped(parts: Sequence[bytes]) -> list[str]:
    """Parts of a query, decoded. They are ASCII without blanks, and behind each ``%`` are its two digits.

    All at once: ``urllib.parse`` takes some steps for each part and each escape, and strangers write them by the thousand.
    Raises ``ValueError`` for what is no UTF-8.
    """
    # No text holds the byte that parts them.
    joined = b"\xff".join(parts).replace(b"+", b" ").replace(b"\\", b"\\\\").replace(b"%", b"\\x")
    found = joined.decode("unicode_escape").encode("latin-1").split(b"\xff")
    if len(found) != max(len(parts), 1):
        raise ValueError
    return list(map(bytes.decode, found[: len(parts)]))
