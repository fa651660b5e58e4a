"""Django's secret, read again when its file changes: sessions signed by either of two portals are known to both."""

from __future__ import annotations

import re
import time
from typing import Final

from django.conf import settings

_CHECK_SECONDS: Final = 1.0

_checked = 0.0
_stamp: object = None


def follow() -> None:
    """Look, at most once a second; the first key of the file signs, all are accepted."""
    global _checked, _stamp  # noqa: PLW0603 # one reading for the whole process
    now = time.monotonic()
    if settings.SECRET_KEY_FILE is None or now - _checked < _CHECK_SECONDS:
        return
    _checked = now
    try:
        state = settings.SECRET_KEY_FILE.stat()
        stamp = (state.st_mtime_ns, state.st_ino, state.st_size)
        if stamp == _stamp:
            return
        keys = [key for key in re.split(r"[\s,]+", settings.SECRET_KEY_FILE.read_text()) if key]
    except OSError:
        return
    _stamp = stamp
    if keys:
        settings.SECRET_KEY_FALLBACKS = keys[1:]
        settings.SECRET_KEY = keys[0]
