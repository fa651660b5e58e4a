"""How long one question about decisions may take outside of the API server (AZ11, DOS-03).

Whoever asks has written what is looked through: roles and bindings in any number. What goes through them heeds the time
between two of them, and gives up in words rather than keep a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from kube.requests.status import ServiceUnavailable

SECONDS: Final = 5.0
OBJECTS_MAX: Final = 50_000
"""Objects that one question reads."""

_ends: ContextVar[float | None] = ContextVar("ends", default=None)


@contextmanager
def limited() -> Iterator[None]:
    """A question's time, which begins now; within another one, that one's."""
    if _ends.get() is not None:
        yield
        return
    token = _ends.set(time.monotonic() + SECONDS)
    try:
        yield
    finally:
        _ends.reset(token)


def heed() -> None:
    """Raises ``ServiceUnavailable`` where the question has taken its time."""
    ends = _ends.get()
    if ends is not None and time.monotonic() > ends:
        raise too_long()


def too_long() -> ServiceUnavailable:
    """The refusal of a question that there is too much to look through for."""
    return ServiceUnavailable(
        "This takes too long to be answered here: there are too many roles and bindings to look through. Ask about one "
        "person, or ask the API server (kubectl auth can-i)."
    )
