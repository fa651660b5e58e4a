"""What a browser calls itself, in words that people know; what it says is believed by nobody."""

from __future__ import annotations

from typing import Final

_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("HeadlessChrome/", "Chromium"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
"""Each also says that it is the ones that came before it: the first that fits is it."""

_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_name(user_agent: str) -> str:
    """``Firefox on Linux``; the beginning of what it says where that is unknown."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), user_agent[:40] or "Unknown browser")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return f"{browser} on {system}" if system else browser
