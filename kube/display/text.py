"""Text of strangers as text and nothing else: no escape sequence acts, and nothing changes the order of letters."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""What a terminal obeys (ECMA 48): CSI, OSC and the other strings, and two-letter escapes."""

_REORDERING: Final = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
"""Marks of direction, which make a text read as another, and letters without any width (Unicode TR 36)."""

_CONTROLS: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str, *, most: int = 0) -> str:
    """``text`` with every letter that acts instead of being read replaced by one that is read.

    Escape sequences of terminals are left out; other controls become their pictures, marks of direction their number.
    Longer than ``most`` letters it is cut, and says how much is missing; 0 cuts nothing.
    """
    cut = len(text) - most if most and len(text) > most else 0
    shown = _ESCAPES.sub("", text[:most] if cut else text).translate(_CONTROLS)
    shown = _REORDERING.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", shown)
    return f"{shown}… ({cut} more)" if cut else shown


def acts(text: str) -> bool:
    """Whether ``visible`` would change the text."""
    return visible(text) != text
