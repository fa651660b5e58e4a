"""Parts of a moment in a time zone, as CEL's ``getHours('Europe/Berlin')`` and its like (TS10).

The evaluator's own look for the zone's name among the files of the machine, wherever that leads, and keep each that they do
not find for ever. Here a zone is one that there is, or an offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache, partial
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

_OFFSET: Final = re.compile(r"([+-]?)([01][0-9]|2[0-3]):([0-5][0-9])\Z", re.ASCII)
_LETTERS: Final = 64
"""No zone's name has more."""

_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    # Some say what the machine is set to.
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def _zone(name: str) -> tzinfo:
    found = _OFFSET.match(name) if len(name) <= _LETTERS else None
    if found is not None:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    if name in ("", "UTC"):
        return UTC
    if len(name) > _LETTERS or name not in _names():
        raise ValueError("unknown time zone")
    return ZoneInfo(name)


def _part(part: Callable[[datetime], int], moment: datetime, name: str) -> int:
    zone = _zone(name)
    try:
        return part((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(zone))
    except OverflowError:
        raise ValueError("there is no such moment in that time zone") from None


ZONED: Final[dict[str, Callable[[datetime, str], int]]] = {name: partial(_part, part) for name, part in _PARTS.items()}
"""By the name of the function: (moment, zone) → the part. They raise ``ValueError`` for a zone that there is not."""
