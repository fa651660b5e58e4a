"""What the event loop does in one of its turns, counted in calls: no clock decides a test (DOS-03)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import orjson


class LoopTurns:
    """Counts the calls that the loop's own thread makes in each of its turns."""

    def __init__(self) -> None:
        self.most = 0
        self._steps = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.most = self._steps = 0
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.most = max(self.most, self._steps)

    def _counts(self, event: str, called: object) -> bool:
        return event in ("call", "c_call")

    def _count(self, frame: FrameType, event: str, called: object) -> None:
        if event == "call" and frame.f_code.co_name == "_run" and frame.f_globals["__name__"] == "asyncio.events":
            self.most, self._steps = max(self.most, self._steps), 0
        self._steps += self._counts(event, called)


class Decodings(LoopTurns):
    """Counts the texts that are decoded in one turn."""

    def _counts(self, event: str, called: object) -> bool:
        return event == "c_call" and called is orjson.loads


class Compilations(LoopTurns):
    """Counts the rules that are compiled in one turn."""

    def _count(self, frame: FrameType, event: str, called: object) -> None:
        super()._count(frame, event, called)
        code = frame.f_code
        if event == "call" and code.co_name == "_expression" and frame.f_globals["__name__"] == "kube.cel.rules":
            self._steps += 1

    def _counts(self, event: str, called: object) -> bool:
        return False
