"""The literals and comments of an expression: nothing in them is part of it."""

from __future__ import annotations

import re
from typing import Final

_OPENED: Final = re.compile(r"[rRbB]{0,2}(\"\"\"|'''|\"|')|//[^\n]*")
_BODIES: Final = {
    quote: re.compile(rf"(?:\\.|(?!{end})[^\\])*+({quote})?", re.DOTALL)
    for quote, end in (('"""', '"""'), ("'''", "'''"), ('"', r'["\n]'), ("'", r"['\n]"))
}
"""What may stand behind a quote, and the quote that ends it, if any does."""


class Literals:
    """Those of one text. Looking for all of them from the left takes time by the length of the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        # A quote that nothing ends is read to the end of its line, or of the text. No other of its kind on the way is
        # ended then: they are not read again.
        self._unended = dict.fromkeys(_BODIES, 0)

    def end(self, position: int) -> int:
        """Where what begins there ends; at the position itself where neither literal nor comment begins."""
        opened = _OPENED.match(self._text, position)
        if opened is None:
            return position
        quote = opened[1]
        if quote is None:
            return opened.end()
        # Three quotes that nothing ends are an empty literal, and one quote.
        ends = self._ended(quote, opened.end())
        if ends is None and len(quote) == 3:
            return opened.end() - 1
        return position if ends is None else ends

    def _ended(self, quote: str, start: int) -> int | None:
        if start <= self._unended[quote]:
            return None
        body = _BODIES[quote].match(self._text, start)
        if body and body[1]:
            return body.end()
        self._unended[quote] = body.end() if body else start
        return None
