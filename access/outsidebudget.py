"""How long one request waits for outside services: in all, whatever it has to ask of whom (AZ-20).

A question that several requests wait for has a budget of its own and goes on when one of them has used up its time:
nobody's haste spoils what others are told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")

BUDGET_SECONDS: Final = 3.0


class Unreachable(Exception):
    """No usable answer; the message names no address and no secret, for it may be shown to callers (API-31)."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BUDGET_SECONDS


_current: ContextVar[_Budget | None] = ContextVar("outside_budget", default=None)


def begin_budget() -> None:
    """What is waited for from here on, in this task, is waited for on behalf of a new request."""
    _current.set(_Budget())


async def within_budget(answer: Awaitable[T]) -> T:
    """``answer``, waited for as long as the request may still wait; raises ``Unreachable`` when that is over."""
    budget = _current.get()
    if budget is None:
        return await answer
    began = time.monotonic()
    try:
        async with asyncio.timeout(budget.left):
            return await answer
    except TimeoutError:
        if time.monotonic() - began < budget.left:
            raise
        raise Unreachable("the request has waited too long for outside services") from None
    finally:
        budget.left = max(0.0, budget.left - (time.monotonic() - began))
