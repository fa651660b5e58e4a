"""An engine in a thread of its own: whoever asks it stands still until it has answered, as a stopped process does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from store.engine import Engine

T = TypeVar("T")


class Elsewhere:
    """Another process' engine, as far as this event loop can tell: it runs while this one does not."""

    def __init__(self, conninfo: str) -> None:
        self.engine = Engine(conninfo)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.answer(lambda engine: engine.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.answer(_end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def answer(self, question: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """What the engine answers; this event loop stands still."""
        return asyncio.run_coroutine_threadsafe(question(self.engine), self._loop).result()


async def _end(engine: Engine) -> None:
    await engine.stop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*left, return_exceptions=True)
