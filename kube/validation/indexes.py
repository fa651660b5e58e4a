"""Lists of a Job's indexes: ``0-2,5``."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"\+?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1


def count_indexes(text: str, completions: int) -> tuple[int, str]:
    """How many indexes ``text`` names, or why it names none."""
    total, previous = 0, -1
    for part in text.split(",") if text else ():
        interval = _interval(part, completions)
        if isinstance(interval, str):
            return 0, interval
        low, high = interval
        if low <= previous:
            return 0, f"non-increasing order, previous: {previous}, current: {low}"
        total, previous = total + high - low + 1, high
    return total, ""


def overlap(one: str, other: str, completions: int) -> int | None:
    """The first index that two lists share; what cannot be read names none."""
    ours, theirs = (
        [interval for part in text.split(",") if not isinstance(interval := _interval(part, completions), str)]
        for text in (one, other)
    )
    mine = theirs_at = 0
    while mine < len(ours) and theirs_at < len(theirs):
        (low, high), (from_, to) = ours[mine], theirs[theirs_at]
        if low <= to and from_ <= high:
            return max(low, from_)
        if low <= from_:
            mine += 1
        else:
            theirs_at += 1
    return None


def _interval(part: str, completions: int) -> tuple[int, int] | str:
    """The first and the last index of a part of a list, or what is wrong with it."""
    numbers = part.split("-")
    if len(numbers) > 2:
        return (
            f'the fragment "{part}" violates the requirement that an index interval can have at most two parts '
            "separated by '-'"
        )
    for number in numbers:
        if not _NUMBER.fullmatch(number) or int(number) > _LARGEST:
            return f'cannot convert string to integer for index: "{number}"'
        if int(number) >= completions:
            return f'too large index: "{number}"'
    low, high = int(numbers[0]), int(numbers[-1])
    if len(numbers) > 1 and low >= high:
        return f"non-increasing order, previous: {low}, current: {high}"
    return low, high
