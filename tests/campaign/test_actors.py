"""What actors note of what they ask, however the round ends."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from bench.campaign.actors.people import operate
from bench.campaign.actors.speaking import Speaker
from bench.campaign.history import History, Wish
from bench.campaign.inhabitants import OPERATOR


@pytest.mark.parametrize("status", [202, 409])
async def test_a_round_that_ends_ends_nobody_in_the_middle_of_a_question(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done after the round is over was asked for in it: the checkers would take it for nobody's wish."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def suspend(_request: web.Request) -> web.Response:
        arrived.set()
        await go_on.wait()
        return web.json_response({}, status=status)

    portal = web.Application()
    portal.router.add_post("/api/v1/workspaces/{id}/suspend", suspend)
    runner = web.AppRunner(portal)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    pause = asyncio.sleep
    monkeypatch.setattr("bench.campaign.actors.people.asyncio.sleep", lambda _seconds: pause(0))
    house: Any = SimpleNamespace(
        trust=None, bearers=None, portal_url=f"http://{host}:{port}", tokens=lambda: {OPERATOR: "a token"}
    )
    speaker, history = Speaker(house), History()
    history.wishes.append(Wish(0, 0, "make", "acme", "w0", "kept", "w0-id"))
    operator = asyncio.create_task(operate(speaker, history, random.Random(1)))
    try:
        async with asyncio.timeout(300):
            await arrived.wait()
            operator.cancel()
            await pause(0)
            go_on.set()
            with suppress(asyncio.CancelledError):
                await operator
    finally:
        await speaker.close()
        await runner.cleanup()
    assert [(wish.verb, wish.outcome) for wish in history.wishes[1:]] == [
        ("suspend", "kept" if status == 202 else "refused")
    ]
