"""Spans of time, in kubectl's words (``45s``, ``3m20s``, ``2d4h``, ``5y12d``) and as flags take them (``1m30s``)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

# up to this many seconds: the unit that is shown, and the smaller one shown beside it when it is not zero
_STEPS: Final = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_GO_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, **_UNITS}
_GO_LENGTH_MAX: Final = 256
"""Characters of a span: no longer one is written to be read."""
_GO_SECONDS_MAX: Final = 2**63 / 1e9
_GO_PART: Final = re.compile(r"([0-9]*\.?[0-9]*)([^0-9.]*)", re.ASCII)
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(h|ms|m|s)", re.ASCII)
_SPAN: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_seconds(text: str) -> float:
    """A span as Go writes it, or a number of seconds, in seconds; raises ``ValueError`` for anything else."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    if not _SPAN.fullmatch(text):
        raise ValueError("must be a duration such as 30s or 1m30s, or a number of seconds")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


@lru_cache(maxsize=64)
def parse_duration(text: str) -> float:
    """A span as Go alone takes it, with its sign, in seconds; raises ``ValueError`` in Go's words for anything else."""
    if len(text) > _GO_LENGTH_MAX:
        raise ValueError(f'time: invalid duration "{text[:_GO_LENGTH_MAX]}"')
    start = position = 1 if text[:1] in ("+", "-") else 0
    if text[start:] == "0":
        return 0.0
    seconds = 0.0
    for part in _GO_PART.finditer(text, start):
        number, unit = part.groups()
        if number in ("", "."):
            break
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _GO_UNITS:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        seconds += float(number) * _GO_UNITS[unit]
        position = part.end()
    if not start < position == len(text) or seconds > _GO_SECONDS_MAX:
        raise ValueError(f'time: invalid duration "{text}"')
    return -seconds if text[0] == "-" else seconds


def human_duration(seconds: float) -> str:
    """A duration as ``kubectl`` prints it; ``<invalid>`` for one that lies more than a second in the future."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for limit, (unit, letter), smaller in _STEPS:
        if whole < limit:
            count, rest = divmod(whole, unit)
            beside = rest // smaller[0] if smaller else 0
            return f"{count}{letter}{beside}{smaller[1]}" if smaller and beside else f"{count}{letter}"
    return f"{whole // _YEAR}y"


def age(timestamp: str | None, now: float) -> str:
    """The time since an RFC 3339 timestamp at ``now`` (Unix seconds); ``<unknown>`` when it is missing."""
    moment = parse_time(timestamp)
    return "<unknown>" if moment is None else human_duration(now - moment)


def parse_time(timestamp: str | None) -> float | None:
    """An RFC 3339 timestamp as Unix seconds, or ``None`` when it is missing or malformed."""
    if not isinstance(timestamp, str):
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
