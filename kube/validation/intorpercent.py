"""Counts that may be percentages."""

from __future__ import annotations

import re
from typing import Any, Final

from kube.requests.fielderrors import invalid
from kube.requests.status import Cause

_PERCENT: Final = re.compile(r"[0-9]+%", re.ASCII)
_WORDS: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)


def share_causes(value: Any, path: str) -> list[Cause]:
    """What is wrong with a count or a percentage."""
    if isinstance(value, str):
        return [] if _PERCENT.fullmatch(value) else [invalid(path, value, _WORDS)]
    return [] if value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]


def whole_causes(value: Any, path: str) -> list[Cause]:
    """Whether a percentage is more than the whole."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1][:6]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def is_nothing(value: Any) -> bool:
    """Whether a count or a percentage is zero."""
    return value == 0 or (isinstance(value, str) and bool(re.fullmatch(r"0+%", value, re.ASCII)))
