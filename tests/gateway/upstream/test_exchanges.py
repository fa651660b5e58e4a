"""An answer of a cluster, as whoever reads it waits for it (GW4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from gateway.upstream.exchange import Exchange


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("patience", [30.0, 0.0004, 0.0])
def test_whoever_answers_in_the_last_moment_has_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop], patience: float
) -> None:
    """D8: in every loop, of which one does not tell when it calls what is due at once."""

    async def waited() -> float | None:
        connection = SimpleNamespace(abort=lambda: None, pause_reading=lambda: None, resume_reading=lambda _: None)
        exchange = Exchange(cast("Any", connection), patience)
        asyncio.get_running_loop().call_soon(exchange.feed_head, 200, (), None)
        await exchange.wait_for_head()
        return exchange.patience

    with asyncio.Runner(loop_factory=new_loop) as runner:
        left = runner.run(waited())
    assert left is not None
    assert 0 <= left < patience + 0.001
