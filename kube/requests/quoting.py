"""Texts in quotation marks as Go prints them with ``%q``, which is how Kubernetes shows names and values."""

from __future__ import annotations

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
