"""Regular expressions that users write, matched in linear time.

Python's ``re`` backtracks, so that a hostile pattern could hold a process for hours. These run on an automaton, like
the RE2 of a kube-apiserver: no look-around, no back references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

MAX_PATTERN: Final = 4096
_SIZE: Final = 1 << 20
"""Bytes that one compiled pattern may take, so that ``(a{1000}){1000}`` is refused and not built."""


def is_pattern(pattern: str) -> bool:
    """Whether the pattern can be compiled within bounds."""
    return _compiled(pattern) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text. A pattern that cannot be compiled matches nothing."""
    compiled = _compiled(pattern)
    return compiled is not None and bool(compiled.is_valid(text))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        return jsonschema_rs.validator_for(
            {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=_SIZE)
        )
    except jsonschema_rs.ValidationError:
        return None
