"""How long one question about decisions may take outside of the API server (AZ11, DOS-03).

Whoever asks has written what is looked through: roles and bindings in any number. What goes through them heeds the time
between two of them, and gives up in words rather than keep a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import get_ident
from typing import Final

from kube.requests.status import ServiceUnavailable

SECONDS: Final = 5.0
"""Of a processor, in each thread that a question takes: on a busy machine it is not refused for what others do."""
PATIENCE_SECONDS: Final = 30.0
"""However little of it was work."""
OBJECTS_MAX: Final = 50_000
"""Objects that one question looks through."""
BYTES_MAX: Final = 32 * 1024 * 1024
"""Of the objects by which it is decided, which are held as long: a few hundred could be a gigabyte."""


@dataclass(frozen=True, slots=True)
class _Question:
    ends: float
    begun: dict[int, float] = field(default_factory=dict)
    """By thread, the processor time that it had taken when the question was first heeded there."""

    def has_taken_its_time(self) -> bool:
        worked = time.thread_time()
        return worked - self.begun.setdefault(get_ident(), worked) > SECONDS or time.monotonic() > self.ends


_question: ContextVar[_Question | None] = ContextVar("question", default=None)


@contextmanager
def limited() -> Iterator[None]:
    """A question's time, which begins now; within another one, that one's."""
    if _question.get() is not None:
        yield
        return
    token = _question.set(_Question(time.monotonic() + PATIENCE_SECONDS))
    try:
        heed()
        yield
    finally:
        _question.reset(token)


def heed() -> None:
    """Raises ``ServiceUnavailable`` where the question has taken its time."""
    question = _question.get()
    if question is not None and question.has_taken_its_time():
        raise too_long()


def too_long() -> ServiceUnavailable:
    """The refusal of a question that there is too much to look through for."""
    return ServiceUnavailable(
        "This takes too long to be answered here: there are too many roles and bindings to look through. Ask about one "
        "person, or ask the API server (kubectl auth can-i)."
    )
