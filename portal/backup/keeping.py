"""A folder of backups: each is called by its time, and the newest of them stay (P12)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

_NAME: Final = "tenantry-%Y-%m-%dT%H-%M-%SZ.backup"
_OURS: Final = re.compile(r"tenantry-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.backup")
_HALF_MADE: Final = re.compile(rf"\.{_OURS.pattern}\.\d+\.partial")

_GIVEN_UP: Final = timedelta(days=1)
"""What was half made and has not grown for so long belongs to a process that was killed."""


def file_of(folder: Path, now: datetime) -> Path:
    """The file of a backup that is made ``now`` (UTC): names are in the order of their times."""
    return folder / now.strftime(_NAME)


def older_remove(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Remove what ``file_of`` has named up to ``now`` but the newest ``keep``, and what killed processes left; nothing else.

    A clock that was ahead once has named what seems newer than all that is made: it stays, and takes nobody's place.
    """
    made = file_of(folder, now).name
    whole = sorted(path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name <= made)
    left = [path for path in folder.iterdir() if _HALF_MADE.fullmatch(path.name) and _is_given_up(path, now)]
    removed = [*whole[:-keep], *left]
    for path in removed:
        path.unlink(missing_ok=True)  # somebody else keeps the same folder
    return removed


def _is_given_up(path: Path, now: datetime) -> bool:
    try:
        return now.timestamp() - path.stat().st_mtime > _GIVEN_UP.total_seconds()
    except FileNotFoundError:
        return False  # it is finished just now, and called otherwise
