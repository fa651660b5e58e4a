"""Regular expressions that users write, matched in linear time.

Python's ``re`` backtracks, so that a hostile pattern could hold a process for hours. These run on an automaton, like
the RE2 of a kube-apiserver: no look-around, no back references.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

MAX_PATTERN: Final = 4096
_SIZE: Final = 1 << 20
"""Bytes that one compiled pattern may take, so that ``(a{1000}){1000}`` is refused and not built."""

_SMALL: Final = 1 << 14
"""Bytes of the compiled patterns of which many are kept: of larger ones a few, or they would fill the memory."""

_FREE: Final = 1 << 11
_STATES: Final = 1 << 16
"""Bytes that a pattern may take more for what it has met in texts."""

WORK_OF_UNIT: Final = 12
"""Work on a text that takes 7 µs at most."""


def is_pattern(pattern: str) -> bool:
    """Whether the pattern can be compiled within bounds."""
    return _compiled(pattern) is not None


def is_small(pattern: str) -> bool:
    """Whether the pattern is compiled in less than half a millisecond, and kept; a larger one may take six."""
    return len(pattern) <= MAX_PATTERN and _small(pattern) is not None


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text. A pattern that cannot be compiled matches nothing."""
    compiled = _compiled(pattern)
    return compiled is not None and bool(compiled.is_valid(text))


def _compiled(pattern: str) -> Any:
    # What is too long leaves nothing in the memories: they are bounded by the length of what they are asked.
    return (_small(pattern) or _large(pattern)) if len(pattern) <= MAX_PATTERN else None


@lru_cache(maxsize=1024)
def _small(pattern: str) -> Any:
    return _compile(pattern, _SMALL)


@lru_cache(maxsize=32)
def _large(pattern: str) -> Any:
    return _compile(pattern, _SIZE)


def work_per_character(pattern: str) -> int:
    """What each character of a text may take to be compared: the kibibytes of the compiled pattern, 0 for small ones.

    Linear time is not little: of ``(a|b){1000}`` it may have to be compared with all that is repeated.
    """
    return _work(pattern) if len(pattern) <= MAX_PATTERN else 0


@lru_cache(maxsize=4096)
def _work(pattern: str) -> int:
    if _compile(pattern, _FREE) is not None:
        return 0
    sizes: Sequence[int] = [_FREE << step for step in range(1, (_SIZE // _FREE).bit_length())]
    return next((size for size in sizes if _compile(pattern, size) is not None), 0) >> 10


def _compile(pattern: str, size: int) -> Any:
    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_STATES)
    try:
        return jsonschema_rs.validator_for({"type": "string", "pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return None
