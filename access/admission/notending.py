"""Whether what a creation is put into ends, seen once for each of its revisions: each creation asks."""

from __future__ import annotations

from typing import Final

import orjson

from store.types import Check, Key, Stored

_ENDING: Final = b'"deletionTimestamp"'
_REMEMBERED: Final = 4096


class NotEnding:
    """The checks that hold objects which do not end."""

    def __init__(self) -> None:
        self._checks: dict[Key, Check] = {}

    def check(self, stored: Stored) -> Check | None:
        """Holds an object at this revision in a commit, or ``None`` where it is being deleted."""
        check = self._checks.get(stored.key)
        if check is not None and check.expected == stored.revision:
            return check
        # Most do not have the word in them.
        if _ENDING in stored.data and "deletionTimestamp" in orjson.loads(stored.data)["metadata"]:
            return None
        if len(self._checks) >= _REMEMBERED:
            self._checks.clear()
        check = self._checks[stored.key] = Check(stored.key, stored.revision)
        return check
