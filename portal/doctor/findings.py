"""What a check says, and how checks are run: one that cannot look says so and stops none of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import redis
from django.db import Error
from kombu.exceptions import KombuError

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"
UNPROVED: Final = "unproved"
"""Nobody could look, because something else is broken."""
ELSEWHERE: Final = "elsewhere"
"""It is not where this was asked, and need not be there."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``remedy`` is one sentence, and empty where nothing is to be done.

    ``about`` says what is looked at and how it should be.
    """

    name: str
    state: str
    found: str
    remedy: str = ""
    about: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(name: str, found: str) -> Finding:
    """As it should be."""
    return Finding(name, OK, found)


def warning(name: str, found: str, remedy: str) -> Finding:
    """It works, and will not for long, or not safely."""
    return Finding(name, WARNING, found, remedy)


def failed(name: str, found: str, remedy: str) -> Finding:
    """Something does not work, or is open."""
    return Finding(name, FAILED, found, remedy)


def elsewhere(name: str, why: str, remedy: str) -> Finding:
    """Nothing to be looked at here; ``why`` goes on behind "because", ``remedy`` says where to ask."""
    return Finding(name, ELSEWHERE, f"not here, because {why}", remedy)


def some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def findings_of(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """What each check found, in order, with the first sentence that its function says of itself."""
    for name, check in checks:
        about = (check.__doc__ or "").partition("\n")[0]
        try:
            for found in check():
                yield replace(found, about=about)
        except (Error, redis.RedisError, KombuError, OSError) as error:
            words = f"could not be looked at ({type(error).__name__})"
            yield Finding(name, UNPROVED, words, "Mend what failed, then ask again.", about)
