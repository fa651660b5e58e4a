"""Random identities, of objects and of requests."""

from __future__ import annotations

import os
from os import urandom
from typing import Final

_AT_ONCE: Final = 64

_drawn: list[str] = []
"""Digits of those to come. The system is asked for many at once: one is made for every request and for every new object."""

os.register_at_fork(after_in_child=_drawn.clear)


def random_uid() -> str:
    """A random UUID (version 4, RFC 9562) as text; never one that another process or thread has got."""
    try:
        text = _drawn.pop()
    except IndexError:
        digits = urandom(16 * _AT_ONCE).hex()
        text, *others = (digits[start : start + 32] for start in range(0, len(digits), 32))
        _drawn.extend(others)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
