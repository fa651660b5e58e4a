"""Cron schedules, read as the controller that follows them reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kube.requests.durations import parse_duration

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS: Final = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_NONE: Final[Mapping[str, int]] = {}
_FIELDS: Final[tuple[tuple[int, int, Mapping[str, int]], ...]] = (
    (0, 59, _NONE),
    (0, 23, _NONE),
    (1, 31, _NONE),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS: Final = frozenset(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"))
_EVERY: Final = "@every "
_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64: Final = 2**63


class _Unreadable(ValueError):
    """Why a schedule cannot be followed."""


def schedule_reason(schedule: str) -> str:
    """Why nobody could follow this schedule; empty when it is good."""
    if schedule.startswith("@"):
        if schedule in _DESCRIPTORS:
            return ""
        if schedule.startswith(_EVERY):
            try:
                parse_duration(schedule.removeprefix(_EVERY))
            except ValueError as error:
                return f"failed to parse duration {schedule}: {error}"
            return ""
        return f"unrecognized descriptor: {schedule}"
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    try:
        for part, field in zip(parts, _FIELDS, strict=True):
            for expression in part.split(","):
                # Go's FieldsFunc drops what is empty.
                if expression:
                    _check(expression, *field)
    except _Unreadable as error:
        return str(error)
    return ""


def _check(expression: str, least: int, most: int, words: Mapping[str, int]) -> None:
    ranged, *steps = expression.split("/")
    ends = ranged.split("-")
    if ends[0] in ("*", "?"):
        low, high = least, most
    else:
        low = high = _value(ends[0], words)
        if len(ends) == 2:
            high = _value(ends[1], words)
        elif len(ends) > 2:
            raise _Unreadable(f"too many hyphens: {expression}")
    if len(steps) > 1:
        raise _Unreadable(f"too many slashes: {expression}")
    step = _number(steps[0]) if steps else 1
    if steps and len(ends) == 1:
        high = most
    if low < least:
        raise _Unreadable(f"beginning of range ({low}) below minimum ({least}): {expression}")
    if high > most:
        raise _Unreadable(f"end of range ({high}) above maximum ({most}): {expression}")
    if low > high:
        raise _Unreadable(f"beginning of range ({low}) beyond end of range ({high}): {expression}")
    if step == 0:
        raise _Unreadable(f"step of range should be a positive number: {expression}")


def _value(text: str, words: Mapping[str, int]) -> int:
    found = words.get(text.lower())
    return _number(text) if found is None else found


def _number(text: str) -> int:
    quoted = f'strconv.Atoi: parsing "{text}"'
    if not _NUMBER.fullmatch(text):
        raise _Unreadable(f"failed to parse int from {text}: {quoted}: invalid syntax")
    if len(text) > 20 or not -_INT64 <= int(text) < _INT64:
        raise _Unreadable(f"failed to parse int from {text}: {quoted}: value out of range")
    if int(text) < 0:
        raise _Unreadable(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
